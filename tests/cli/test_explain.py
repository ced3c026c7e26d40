"""`explain`: offline, the very search that a replay makes."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from replayproxy.core.values import EnvWiring, Run
from replayproxy.session import secrecy
from replayproxy.storage import open_store
from replayproxy.testing import episode, exchange, trace
from tests.cli.conftest import Call, Told

KIND = {"Content-Type": "application/json"}
A, X = "5eed0000-1234-4abc-8def-9e3779b97f4a", "11fe0000-9876-4cba-9fed-c2b2ae3d27d4"
RULE = '[[rule]]\nname = "clock"\nat = "POST /act"\npointer = "/ts"\naction = "ignore"\nreason = "a clock"\n'


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "store"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(path))
    monkeypatch.chdir(tmp_path)
    with open_store(path, create=True) as store:
        writer = store.writer()
        envs = {"app": EnvWiring(name="app", upstream="http://127.0.0.1:9")}
        made = writer.open_run(Run(key=0, name="r", opened_wall=1, envs=envs))
        opened = writer.open_episode(episode("e", run_key=made.key))
        for one in trace([
            exchange("GET", "/deals/42?a=1&b=2", body={"id": 42}),
            exchange("POST", "/act", sent={"call_id": A, "ts": 1, "action": "left"}, request_headers=KIND),
            exchange("GET", "/lane", lane="tool-b"),
        ]).exchanges:  # fmt: skip
            writer.put_exchange(opened.key, one)
        writer.seal(opened).result(5)
        writer.open_episode(episode("half", run_key=made.key))
        writer.close()
    return path


def ask(call: Call, monkeypatch: pytest.MonkeyPatch, raw: str, *arguments: str, address: str = "r/e") -> Told:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw.encode())))
    return call("explain", address, *arguments)


def test_a_request_that_would_be_served_is_exit_0_with_address_and_grade(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ask(call, monkeypatch, "GET /rp/e/deals/42?b=2&a=1 HTTP/1.1\nHost: x\n\n")
    assert told.code == 0
    assert told.text.splitlines()[0].startswith("SERVED  r/e/1  canonical   200   GET /deals/42?b=2&a=1")
    assert told.text.splitlines()[-1] == "exit 0     look: replayproxy show r/e/1"
    document = ask(call, monkeypatch, "GET /deals/42?a=1&b=2 HTTP/1.1\n\n", "--json").json
    assert (document["served"], document["exchange"], document["grade"]) == (True, "r/e/1", "exact")


def test_a_miss_is_exit_1_with_the_nearest_and_the_first_difference(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ask(call, monkeypatch, "GET /deals/43?a=1&b=2 HTTP/1.1\n\n")
    assert told.code == 1
    assert 'e/1  free        path/1  "42" | "43"' in told.text
    document = ask(call, monkeypatch, "GET /deals/43?a=1&b=2 HTTP/1.1\n\n", "--json").json
    assert not document["served"]
    assert document["nearest"][0]["pointer"] == "path/1"


def test_bindings_and_rules_are_told(call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    raw = f'POST /act HTTP/1.1\nContent-Type: application/json\n\n{{"call_id":"{X}","ts":2,"action":"left"}}'
    assert ask(call, monkeypatch, raw).code == 1
    (tmp_path / "replayproxy.toml").write_text(RULE)
    document = ask(call, monkeypatch, raw, "--json").json
    assert (document["grade"], document["exchange"]) == ("relaxed", "r/e/2")
    assert document["rules"] == [{"name": "clock", "action": "ignore", "uses": 1}]
    assert [(one["recorded"], one["live"]) for one in document["bindings"]] == [(A, X)]
    text = ask(call, monkeypatch, raw).text
    assert "rule clock (ignore)  needed 1 time" in text
    assert f'bound  1 value   e/2: "{A}" is "{X}" at body/call_id' in text


def test_the_lane_is_that_of_the_mark_or_of_the_option(call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(call, monkeypatch, "GET /lane HTTP/1.1\n\n").code == 1
    assert ask(call, monkeypatch, "GET /lane HTTP/1.1\n\n", "--lane", "tool-b").code == 0
    assert ask(call, monkeypatch, "GET /lane HTTP/1.1\nX-Replay-Lane: tool-b\n\n").code == 0


@pytest.mark.parametrize(
    ("raw", "arguments", "address", "code"),
    [
        ("nonsense", (), "r/e", 2), ("", (), "r/e", 2), ("GET /lane HTTP/1.1\n\n", ("--env", "none"), "r/e", 2),
        ("GET /lane HTTP/1.1\n\n", (), "r", 2), ("GET /lane HTTP/1.1\n\n", (), "r/none", 2),
        ("GET /lane HTTP/1.1\n\n", (), "r/half", 3),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_told_in_one_line(
    call: Call,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    raw: str,
    arguments: tuple[str, ...],
    address: str,
    code: int,
) -> None:
    told = ask(call, monkeypatch, raw, *arguments, address=address)
    assert told.code == code
    assert len(told.err.strip().splitlines()) == 1


def test_a_credential_is_matched_as_a_replay_does_and_never_shown(
    call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(shop) as store:
        redactor = secrecy.for_recording(shop)
        writer = store.writer()
        envs = {"app": EnvWiring(name="app", upstream="http://127.0.0.1:9")}
        config = {"secrets": secrecy.wired(redactor)}
        made = writer.open_run(Run(key=0, name="s", opened_wall=2, envs=envs, config=config))
        opened = writer.open_episode(episode("e", run_key=made.key))
        asked = exchange("GET", "/x", request_headers={"Authorization": "Bearer planted-secret-1"})
        writer.put_exchange(opened.key, redactor.exchange(asked))
        writer.seal(opened).result(5)
        writer.close()
    served = ask(call, monkeypatch, "GET /x HTTP/1.1\nAuthorization: Bearer planted-secret-1\n\n", address="s/e")
    missed = ask(call, monkeypatch, "GET /x HTTP/1.1\nAuthorization: Bearer planted-secret-2\n\n", address="s/e")
    assert (served.code, missed.code) == (0, 1)
    assert "planted" not in served.text + missed.text + served.err + missed.err
