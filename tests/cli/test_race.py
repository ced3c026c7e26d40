"""What `replayproxy race` prints, its exit codes, and that `check` and `show` have what it showed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replayproxy.core.values import Request
from replayproxy.storage import open_store
from tests.cli.conftest import Call
from tests.session.race_shop import Booking, recorded
from tests.session.redrive_lab import ask, serving

BOOK = ask("POST", "/slots/S-1/book", {"holder": "ada"})
LOOK = ask("GET", "/slots/S-1")


@contextmanager
def live(shop: Booking) -> Iterator[str]:
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


def shop(folder: Path, gap: float | None, *requests: Request) -> Booking:
    """A shop, and a store in which these requests were recorded as r/e."""
    made = Booking(folder / "shop.db", gap)
    with open_store(folder / ".replayproxy", create=True) as store:
        asyncio.run(recorded(store, made, *requests))
    return made


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_was_shown_is_told_and_is_a_finding_of_the_next_check(call: Call, here: Path) -> None:
    with live(shop(here, 0.01, LOOK, BOOK)) as url:
        told = call("race", "r/e", "--env", f"app={url}", "--times", "5")
    assert told.code == 1
    lines = told.text.splitlines()
    assert lines[0].startswith("SHOWN  r/e")
    assert "1 pair of 1 predicted: 1 shown, 0 not shown" in lines[0]
    assert any(line.startswith("  PAIR 1  RACE  CONFIRMED") and "POST /slots/S-1/book, twice" in line for line in lines)
    assert "    in turn  A then B: 201, 409 · B then A: 409, 201" in lines
    assert "replayproxy race r/e --env app=URL --pair 2,2" in told.text
    assert lines[-1].split()[:4] == ["next", "replayproxy", "check", "r"]
    assert "overwriting the state of app" in told.err
    assert max(map(len, lines)) <= 130
    checked = call("check", "r", "--json")
    assert checked.code == 1
    (finding,) = [f for f in checked.json["findings"] if f["grade"] == "confirmed"]
    assert (finding["kind"], finding["sub"], finding["episode"]) == ("race", "double-claim", "e")
    assert finding["effect"]["last"].startswith("together ")
    assert checked.json["verdicts"] == {"e": "poisoned"}
    shown = call("show", finding["id"])
    assert shown.code == 0
    assert "CONFIRMED" in shown.text


def test_what_was_not_shown_is_told_with_its_bound(call: Call, here: Path) -> None:
    with live(shop(here, None, LOOK, BOOK)) as url:
        told = call("race", "r/e", "--env", f"app={url}", "--times", "20")
        as_json = call("race", "r/e", "--env", f"app={url}", "--times", "2", "--json")
    assert told.code == 0
    assert "NOT SHOWN 0/20" in told.text
    assert "at most 14% of such meetings (95 %); that it cannot happen is not shown" in told.text
    assert as_json.code == 0
    assert as_json.json["verdict"] == "not shown"
    (pair,) = as_json.json["pairs"]
    assert (pair["k"], pair["n"], pair["finding"]) == (0, 2, None)


def test_the_list_sends_nothing(call: Call, here: Path) -> None:
    shop(here, 0.01, LOOK, BOOK)
    told = call("race", "r/e", "--list")
    assert told.code == 0
    assert told.text.splitlines()[0] == "r/e: 1 pair may be risky together; 2 exchanges looked at; nothing was sent"
    assert "takes slots/S-1 /holder: null -> ada" in told.text
    assert max(map(len, told.text.splitlines())) <= 100
    assert call("race", "r/e", "--list", "--json").json["predicted"][0]["a"] == "r/e#2"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "no target is given"),
        (["--env", "app=http://192.0.2.7:1"], "--disposable app"),
        (["--pair", "2"], "two numbers"),
        (["--env", "app=http://127.0.0.1:9", "--pair", "7,7"], "no exchange 7"),
        (["--times", "0"], "--times"),
    ],
)
def test_wrong_words_are_exit_2_before_anything_is_sent(call: Call, here: Path, more: list[str], words: str) -> None:
    shop(here, 0.01, LOOK, BOOK)
    told = call("race", "r/e", *more)
    assert told.code == 2
    assert words in told.err


def test_an_environment_that_is_not_there_is_exit_5(call: Call, here: Path) -> None:
    shop(here, 0.01, LOOK, BOOK)
    assert call("race", "r/e", "--env", "app=http://127.0.0.1:9").code == 5


def test_an_episode_of_reads_is_exit_3(call: Call, here: Path) -> None:
    shop(here, 0.01, LOOK)
    told = call("race", "r/e", "--env", "app=http://127.0.0.1:9")
    assert told.code == 3
    assert "no two requests that look risky" in told.err
