"""What `replayproxy redrive` prints, and its exit codes."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from replayproxy.cli.main import run
from replayproxy.storage import open_store
from tests.session.redrive_lab import Recording, Shop, ask, body_of, kept, serving


@contextmanager
def live(shop: Shop) -> Iterator[str]:
    """The shop in a thread of its own, because the command has an event loop of its own."""
    up, down = threading.Event(), asyncio.Event()
    found: list[str] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with serving(shop.app()) as url:
            found.append(url)
            up.set()
            await down.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert up.wait(10)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(down.set)
        thread.join(10)
        loop.close()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop, and a store in which it was recorded as r/e."""
    monkeypatch.chdir(tmp_path)
    made = Shop(tmp_path / "shop.db")

    async def record() -> None:
        async with serving(made.app()) as url:
            recording = Recording(url, {"app": f"sqlite:{made.path}"})
            await recording.begin()
            login = await recording.send(ask("POST", "/login", {"user": "ada"}))
            assert login.response is not None
            cookie = next(v for n, v in login.response.fields if n.lower() == b"set-cookie").partition(b";")[0]
            await recording.send(ask("GET", "/me", headers=[("Cookie", cookie.decode())]))
            deal = body_of(await recording.send(ask("POST", "/deals", {"name": "Acme", "amount": 1200})))["id"]
            await recording.send(ask("GET", f"/deals/{deal}"))
            await recording.end()
        with open_store(tmp_path / ".replayproxy", create=True) as store:
            await kept(store, recording)

    asyncio.run(record())
    return made


def test_the_same_behaviour_is_exit_0_and_says_what_was_done(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    with live(Shop(shop.path, first_id=31)) as url:
        assert run(["redrive", "r/e", "--env", f"app={url}"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith(f"SAME  r/e   app={url}")
    assert "read back: equal" in lines[1]
    assert lines[2].split() == ["sent", "4", "of", "4", "requests"]
    assert lines[3].startswith("    answers  4 compared")
    assert lines[4].startswith("    states   4 compared")
    assert any("/deals/1 | /deals/31" in line and "from #3" in line and "in #4 target" in line for line in lines)
    assert lines[-1].strip().startswith("next ")
    assert "overwriting the state of app" in err
    assert "before-restore/" in err


def test_a_cookie_is_never_printed_whole(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    with live(Shop(shop.path)) as url:
        run(["redrive", "r/e", "--env", f"app={url}"])
        run(["redrive", "r/e", "--env", f"app={url}", "--json"], as_json=True)
    out, err = capsys.readouterr()
    assert "(32 characters)" in out
    with open_store(Path(".replayproxy")) as store:
        reader = store.reader()
        sent = reader.exchange(reader.episode(reader.run("r"), "e"), 2, bodies=100).request.fields
    sid = next(value for name, value in sent if name == b"Cookie").decode().removeprefix("sid=")
    assert len(sid) == 32
    assert sid not in out + err


def test_another_behaviour_is_exit_1_and_names_exchange_pointer_values_and_row(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    with live(Shop(shop.path, double=True)) as url:
        assert run(["redrive", "r/e", "--env", f"app={url}", "--repeat", "2"]) == 1
    out, _ = capsys.readouterr()
    assert out.startswith("DIFFERENT  r/e")
    assert "2 of 2 repetitions different" in out
    assert "r/e#3" in out
    assert "body/amount" in out
    assert "1200 | 2400" in out
    assert "app deals/" in out
    assert "next     replayproxy show r/e#3" in out


class Touching(Shop):
    """It writes where it is only asked: no snapshot follows the request, and the one at the end shows it."""

    async def deal(self, request: web.Request) -> web.Response:
        self.rows("INSERT INTO items VALUES ('i', 'seen', '1')")
        return await super().deal(request)


def test_a_state_that_no_exchange_led_to_is_named_by_its_snapshot(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    with live(Touching(shop.path)) as url:
        assert run(["redrive", "r/e", "--env", f"app={url}"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    shown = next(line for line in lines if line.startswith("state of app"))
    assert re.fullmatch(r"state of app at end   r/e/s\d", shown)


def test_json_is_one_document_with_the_members_that_are_promised(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    with live(Shop(shop.path, double=True)) as url:
        assert run(["redrive", "r/e", "--env", f"app={url}", "--json", "--save", "today"], as_json=True) == 1
    out, _ = capsys.readouterr()
    told = json.loads(out)
    assert out.count("\n") == 1
    assert {"verdict", "receipt", "roots", "explained", "repeats"} <= set(told)
    assert told["roots"][0]["b"] == "today/e#3"
    assert told["receipt"]["saved"] == "today/e"


def test_a_saved_run_can_be_compared_with_the_recording(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    with live(Shop(shop.path)) as url:
        assert run(["redrive", "r/e", "--env", f"app={url}", "--save", "today"]) == 0
    assert run(["ls", "today", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(one["episode"], one["exchanges"], one["state"]) for one in listed["episodes"]] == [("e", 4, "sealed")]


def test_a_missing_target_is_exit_2_and_says_the_flag(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["redrive", "r/e"]) == 2
    assert "--env app=URL" in capsys.readouterr().err


def test_an_unknown_address_is_exit_2(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["redrive", "r/nope", "--env", "app=http://127.0.0.1:1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "words", [["--pace", "soon"], ["--repeat", "0"], ["--answer-limit", "x"], ["--disposable", "nobody"]]
)
def test_words_that_mean_nothing_are_exit_2(shop: Shop, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert run(["redrive", "r/e", "--env", "app=http://127.0.0.1:1", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_unfaithful_restore_is_exit_3_with_the_row(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    again = Shop(shop.path)
    again.reset_leaves = "left over"
    with live(again) as url:
        words = ["redrive", "r/e", "--env", f"app={url}", "--reset", f"app=POST {url}/reset", "--json"]
        assert run(words, as_json=True) == 3
    out, err = capsys.readouterr()
    assert "deals/77" in err
    assert "nothing was sent -> leave --reset app out: the provider of app writes the state back" in err
    assert json.loads(out)["exit"] == 3


def test_an_environment_that_is_not_there_is_exit_5(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    with live(Shop(shop.path)) as url:
        pass
    assert run(["redrive", "r/e", "--env", f"app={url}"]) == 5
    told = f"environment app cannot be reached at {url}: connection refused -> nothing was sent or restored"
    assert told in capsys.readouterr().err


def test_a_rule_of_the_config_file_explains_a_difference(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    Path("replayproxy.toml").write_text(
        '[[rule]]\nname = "doubling"\nat = "* *"\npointer = "/amount"\naction = "ignore"\nreason = "known"\n'
        '[[rule]]\nname = "rows"\npointer = "state/deals/*/amount"\naction = "ignore"\nreason = "known"\n'
    )
    with live(Shop(shop.path, double=True)) as url:
        code = run(["redrive", "r/e", "--env", f"app={url}", "--json"], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"]) == (0, "same")
    assert told["explained"]["rule:doubling"] >= 1
