"""What comes in is redacted like a recording, judged like one, and named by what the file says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.canonical import body_of
from replayproxy.core.values import Episode, Exchange, Run
from replayproxy.errors import DamagedRecord, UnknownAddress, WrongUsage
from replayproxy.proxy.flowfile import FlowFile
from replayproxy.session import secrecy
from replayproxy.session.look import looking
from replayproxy.session.porting import Exported, choose, export_archive, file_name
from replayproxy.session.porting_flow import export_flow
from replayproxy.session.porting_har import export_har
from replayproxy.session.porting_in import import_file
from replayproxy.session.taking import Asked, Imported, parse_envs
from replayproxy.storage import Reader, open_store
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run

SECRET = "kx9-planted-Zq81hT"
WRITERS: dict[str, Callable[..., Exported]] = {"archive": export_archive, "har": export_har, "flow": export_flow}


def secretive(at: int = 0) -> Exchange:
    return exchange(
        "POST", f"/login?api_key={SECRET}q", sent={"password": SECRET + "p"}, body={"access_token": SECRET + "t"},
        request_headers=[("Host", "env.test"), ("Authorization", f"Bearer {SECRET}a"),
                         ("Content-Type", "application/json")],
        headers=[("Set-Cookie", f"sid={SECRET}c; Path=/"), ("Content-Type", "application/json")], at_ms=at,
    )  # fmt: skip


def stored(path: Path, *listed: Exchange, config: dict[str, Any] | None = None, **of: Any) -> Path:
    with open_store(path, create=True) as store:
        writer = store.writer()
        made = writer.open_run(run("r", config=config or {}))
        rollout = writer.open_episode(episode("e", run_key=made.key, **of))
        for one in listed:
            writer.put_exchange(rollout.key, one)
        writer.seal(rollout).result(5)
        writer.close()
    return path


def exported(store: Path, form: str, out: Path, *addresses: str) -> Exported:
    with looking([store]) as stores:
        return WRITERS[form](choose(stores, addresses or ("r/e",)), out)


def content(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in store.iterdir() if path.is_file())


def held(store: Path, name: str = "r") -> tuple[Run, Episode, list[Exchange]]:
    with open_store(store) as opened:
        reader: Reader = opened.reader()
        made = reader.run(name)
        (found,) = reader.episodes(made)
        return made, found, list(reader.exchanges(found, bodies=1 << 30))


@pytest.mark.parametrize("form", ["har", "flow"])
def test_an_import_is_redacted_before_it_is_written(tmp_path: Path, form: str) -> None:
    source = stored(tmp_path / "s", secretive(), exchange("GET", f"/x/{SECRET}a", at_ms=9))
    exported(source, form, tmp_path / f"out.{form}")
    assert SECRET.encode() in (tmp_path / f"out.{form}").read_bytes(), "the source kept its secrets"
    target = tmp_path / "t"
    told = import_file(Asked(path=tmp_path / f"out.{form}"), target)
    assert (told.exchanges, told.runs) == (2, ["r"])
    made, found, listed = held(target)
    shown = repr((made, found, listed))
    assert SECRET not in shown
    assert "rp-secret-" in shown
    assert SECRET.encode() not in content(target)
    assert made.origin == "import"
    assert secrecy.same_key(secrecy.load(target, made), made)
    length = dict(listed[0].request.fields).get(b"Content-Length")
    assert length in (None, str(listed[0].request.body.size).encode())  # type: ignore[union-attr]
    assert verify(target).damaged == []


@pytest.mark.parametrize("form", ["har", "flow"])
def test_secrets_stay_where_it_is_asked_for(tmp_path: Path, form: str) -> None:
    source = stored(tmp_path / "s", secretive())
    exported(source, form, tmp_path / "out")
    import_file(Asked(path=tmp_path / "out", keep_secrets=True), tmp_path / "t")
    assert held(tmp_path / "t")[2] == held(source)[2]


@pytest.mark.parametrize("form", ["har", "flow"])
def test_tokens_of_another_store_are_known_as_such(tmp_path: Path, form: str) -> None:
    source = tmp_path / "s"
    source.mkdir()
    redactor = secrecy.for_recording(source)
    stored(source, redactor.exchange(secretive()), config={"secrets": secrecy.wired(redactor)})
    exported(source, form, tmp_path / "out")
    import_file(Asked(path=tmp_path / "out"), tmp_path / "t")
    made, _, listed = held(tmp_path / "t")
    assert listed == held(source)[2], "a token comes in as it is"
    assert not secrecy.same_key(secrecy.load(tmp_path / "t", made), made)
    for path in (tmp_path / "out", *(tmp_path / "t").iterdir()):
        assert (source / "secret.key").read_bytes() not in path.read_bytes()


def test_the_key_is_in_no_archive(tmp_path: Path) -> None:
    source = tmp_path / "s"
    source.mkdir()
    redactor = secrecy.for_recording(source)
    stored(source, redactor.exchange(secretive()), config={"secrets": secrecy.wired(redactor)})
    exported(source, "archive", tmp_path / "a.replay")
    assert (source / "secret.key").read_bytes() not in (tmp_path / "a.replay").read_bytes()
    import_file(Asked(path=tmp_path / "a.replay"), tmp_path / "t")
    assert not (tmp_path / "t" / "secret.key").exists()
    made = held(tmp_path / "t")[0]
    assert made.config["secrets"]["key"] == redactor.key_id


def test_a_secret_in_a_body_too_large_to_hold_is_found(tmp_path: Path) -> None:
    large = b'{"x": "' + b"y" * 9_000_000 + b'", "z": "' + f"{SECRET}a".encode() + b'"}'
    one = secretive(0)
    other = exchange("POST", "/big", sent=large, at_ms=5)
    exported(stored(tmp_path / "s", one, other), "flow", tmp_path / "out")
    import_file(Asked(path=tmp_path / "out"), tmp_path / "t")
    body = held(tmp_path / "t")[2][1].request.body
    assert body is not None
    assert body.inline is not None
    assert SECRET.encode() not in body.inline
    assert len(body.inline) == body.size > 9_000_000
    assert dict(held(tmp_path / "t")[2][1].request.fields)[b"Content-Length"] == str(body.size).encode()


def test_an_episode_keeps_what_is_known_of_it(tmp_path: Path) -> None:
    source = stored(tmp_path / "s", exchange(), task="t-1", seed=7, attempt=2, group="g", meta={"k": [1.5, "x"]})
    exported(source, "har", tmp_path / "e.har")
    import_file(Asked(path=tmp_path / "e.har"), tmp_path / "t")
    made, found, _ = held(tmp_path / "t")
    assert (found.task, found.seed, found.attempt, found.group, found.meta) == ("t-1", 7, 2, "g", {"k": [1.5, "x"]})
    assert found.state == "sealed"
    assert made.envs["app"].upstream == "http://app.test"


def test_a_run_is_a_directory_of_hars_and_comes_back_as_a_run(tmp_path: Path) -> None:
    source = stored(tmp_path / "s", exchange())
    with open_store(source) as store:
        writer = store.writer(exclusive=False)
        made = store.reader().run("r")
        for name in ("E", "a%2Fb", ".hidden", "x" * 200):
            rollout = writer.open_episode(episode(name, run_key=made.key))
            writer.put_exchange(rollout.key, exchange(target=f"/{len(name)}"))
            writer.seal(rollout).result(5)
        writer.close()
    done = exported(source, "har", tmp_path / "out", "r")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(Path(p).name for p in done.paths)
    assert "%2Ehidden.har" in {Path(path).name for path in done.paths}
    told = import_file(Asked(path=tmp_path / "out"), tmp_path / "t")
    assert (told.episodes, told.exchanges, told.runs) == (5, 5, ["r"])
    with open_store(tmp_path / "t") as store:
        names = {one.name for one in store.reader().episodes(store.reader().run("r"))}
    assert names == {"e", "E", "a%2Fb", ".hidden", "x" * 200}
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnknownAddress, match=r"holds no \.har file"):
        import_file(Asked(path=tmp_path / "empty"), tmp_path / "t")


def test_an_import_goes_on_with_a_run_where_it_is_asked_to(tmp_path: Path) -> None:
    source = stored(tmp_path / "s", exchange())
    exported(source, "har", tmp_path / "one.har")
    document = json.loads((tmp_path / "one.har").read_bytes())
    document["log"]["_replayproxy"]["episode"] = "two"
    (tmp_path / "two.har").write_text(json.dumps(document))
    import_file(Asked(path=tmp_path / "one.har"), tmp_path / "t")
    with pytest.raises(WrongUsage, match="exists already"):
        import_file(Asked(path=tmp_path / "two.har"), tmp_path / "t")
    import_file(Asked(path=tmp_path / "two.har", append=True), tmp_path / "t")
    with pytest.raises(WrongUsage, match="an episode named 'r/two' exists already"):
        import_file(Asked(path=tmp_path / "two.har", append=True), tmp_path / "t")
    with open_store(tmp_path / "t") as store:
        assert [one.name for one in store.reader().episodes(store.reader().run("r"))] == ["e", "two"]
    assert verify(tmp_path / "t").damaged == []


@pytest.mark.parametrize("form", ["archive", "har", "flow"])
def test_an_incomplete_episode_does_not_become_whole_by_travelling(tmp_path: Path, form: str) -> None:
    with open_store(tmp_path / "s", create=True) as store:
        writer = store.writer()
        made = writer.open_run(run("r"))
        writer.put_exchange(writer.open_episode(episode("e", run_key=made.key)).key, exchange())
        writer.close()
    exported(tmp_path / "s", form, tmp_path / "out")
    import_file(Asked(path=tmp_path / "out"), tmp_path / "t")
    assert held(tmp_path / "s")[1].state == "incomplete"
    assert held(tmp_path / "t")[1].state == "incomplete"
    assert verify(tmp_path / "t").damaged == []


def flows(path: Path, *listed: tuple[Exchange, str]) -> Path:
    with path.open("wb") as file:
        out = FlowFile(file)
        for one, name in listed:
            out.add(one, origin="http://app.test", run="r", episode=name)
    return path


def test_flows_of_many_episodes_are_told_apart_and_ordered_by_arrival(tmp_path: Path) -> None:
    path = flows(
        tmp_path / "x.flow", (exchange(target="/2", at_ms=2), "a"), (exchange(target="/1", at_ms=1), "b"),
        (exchange(target="/0", at_ms=0), "a"), (exchange(target="/again", at_ms=0), "a"),
    )  # fmt: skip
    told = import_file(Asked(path=path), tmp_path / "t")
    assert (told.episodes, told.exchanges) == (2, 4)
    with open_store(tmp_path / "t") as store:
        reader = store.reader()
        made = reader.run("r")
        listed = {one.name: [x.request.target for x in reader.exchanges(one)] for one in reader.episodes(made)}
    assert listed == {"a": [b"/0", b"/again", b"/2"], "b": [b"/1"]}


def test_a_cut_flow_file_leaves_nothing_that_is_seen(tmp_path: Path) -> None:
    path = flows(tmp_path / "x.flow", *((exchange(at_ms=at), "a") for at in range(5)))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DamagedRecord, match="flow 5 is damaged, or the file is cut"):
        import_file(Asked(path=path), tmp_path / "t")
    with open_store(tmp_path / "t") as store:
        assert store.reader().runs() == []
    assert verify(tmp_path / "t").damaged == []


@pytest.mark.parametrize(
    "document",
    [{}, {"log": 5}, {"log": {}}, {"log": {"entries": {}}}, {"log": {"entries": [5]}}, {"log": {"entries": [{}]}},
     {"log": {"entries": [], "_replayproxy": {"format": 1, "seed": "x"}}}],
)  # fmt: skip
def test_json_that_is_no_har_is_refused_in_one_line(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "x.har"
    path.write_text(json.dumps(document))
    with pytest.raises(WrongUsage) as refused:
        import_file(Asked(path=path), tmp_path / "t")
    assert "\n" not in str(refused.value)


def test_a_cut_har_is_damage(tmp_path: Path) -> None:
    exported(stored(tmp_path / "s", exchange()), "har", tmp_path / "e.har")
    whole = (tmp_path / "e.har").read_bytes()
    for at in (2, len(whole) // 2, len(whole) - 3):
        (tmp_path / "e.har").write_bytes(whole[:at])
        with pytest.raises(DamagedRecord, match="no JSON, or it is cut"):
            import_file(Asked(path=tmp_path / "e.har"), tmp_path / "t")


def test_a_har_without_entries_is_an_empty_episode(tmp_path: Path) -> None:
    (tmp_path / "x.har").write_text('{"log": {"entries": []}}')
    told: Imported = import_file(Asked(path=tmp_path / "x.har"), tmp_path / "t")
    assert (told.runs, told.episodes, told.exchanges) == (["x"], 1, 0)


def test_environments_are_named_as_asked_or_after_their_host(tmp_path: Path) -> None:
    entry = {"startedDateTime": "2026-01-01T00:00:00Z", "request": {"method": "GET", "url": ""},
             "response": {"status": 200}}  # fmt: skip
    urls = ["http://a.test/x", "https://a.test/x", "http://127.0.0.1:80/", "http://[::1]:9/y"]
    entries = [entry | {"request": {"method": "GET", "url": url}} for url in urls]
    (tmp_path / "x.har").write_text(json.dumps({"log": {"entries": entries}}))
    asked = Asked(path=tmp_path / "x.har", envs=parse_envs(("shop=http://a.test",)))
    import_file(asked, tmp_path / "t")
    made, _, listed = held(tmp_path / "t", "x")
    assert [one.env for one in listed] == ["shop", "a-test", "env-127-0-0-1", "env-1-9"]
    assert {name: wiring.upstream for name, wiring in made.envs.items()} == {
        "shop": "http://a.test", "a-test": "https://a.test", "env-127-0-0-1": "http://127.0.0.1",
        "env-1-9": "http://[::1]:9",
    }  # fmt: skip
    for wrong in ("x", "a b=http://x", "=http://x"):
        with pytest.raises(WrongUsage):
            parse_envs((wrong,))


def test_names_become_files_that_any_system_takes() -> None:
    assert file_name("a b") == "a%20b"
    assert file_name("-rf") == "%2Drf"
    assert file_name("..x") == "%2E.x"
    long = file_name("é" * 100)
    assert len(long) < 200
    assert long != file_name("é" * 99)


def test_a_body_that_lies_apart_goes_out_whole(tmp_path: Path) -> None:
    large = body_of(b"\xff" * 700_000)
    one = exchange(body=large)
    one = replace(one, request=replace(one.request, body=body_of(b"q" * 5000)))
    for form in ("har", "flow"):
        exported(stored(tmp_path / f"s-{form}", one), form, tmp_path / f"out-{form}")
        import_file(Asked(path=tmp_path / f"out-{form}"), tmp_path / f"t-{form}")
        (back,) = held(tmp_path / f"t-{form}")[2]
        assert back.response is not None
        assert back.response.body is not None
        assert back.response.body.digest == large.digest
