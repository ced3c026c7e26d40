"""What `replayproxy reproduce` prints, and its exit codes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replayproxy.cli.main import run
from replayproxy.storage import open_store
from tests.session.redrive_lab import serving
from tests.session.reproduce_lab import Desk, look, recorded, work


@contextmanager
def live(desk: Desk) -> Iterator[str]:
    """The desk in a thread of its own, because the command has an event loop of its own."""
    up, down = threading.Event(), asyncio.Event()
    found: list[str] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with serving(desk.app()) as url:
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
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk whose reset leaves notes behind, and a store in which that poisoned r/v4."""
    monkeypatch.chdir(tmp_path)
    made = Desk(tmp_path / "app.db", {"leaky"})

    async def record() -> None:
        async with serving(made.app()) as url:
            with open_store(tmp_path / ".replayproxy", create=True) as store:
                await recorded(store, made, url, [*((f"v{n}", look) for n in (1, 2, 3)), ("p", work), ("v4", look)])

    asyncio.run(record())
    return made


def test_a_finding_is_checked_shown_again_and_told_from_the_commands_it_prints(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", "r"]) == 1
    capsys.readouterr()
    assert run(["show", "F1", "--json"]) == 0
    proposed = json.loads(capsys.readouterr().out)["reproduce"]
    assert proposed.startswith("replayproxy reproduce state-bleed-")
    with live(desk) as url:
        assert run([*proposed.replace("URL", url).split()[1:], "--repeat", "2"]) == 1
        out, err = capsys.readouterr()
        assert out.splitlines()[0].split(maxsplit=1)[1].startswith("SHOWN AGAIN   alone 0/2, after p/3 2/2   confirmed")
        assert "enough     1 of 6 exchanges: r/p#3, found in " in out
        assert "between    the environment's reset was sent between the two" in out
        assert out.splitlines()[-1] == "  next       replayproxy check r"
        assert "overwriting the state of app" in err
        desk.faults.clear()
        assert run(["reproduce", "F1", "--env", f"app={url}", "--repeat", "2"]) == 0
        assert capsys.readouterr().out.startswith("F1: NOT SHOWN AGAIN   alone 0/2, after 6 exchanges of p")
    assert run(["show", "F1"]) == 0
    assert "alone 0/2, after 6 exchanges of p (1, 2, 3, 4, 5, 6) 0/2" in capsys.readouterr().out


def test_its_document_is_one_and_has_its_members(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", "r"])
    capsys.readouterr()
    with live(desk) as url:
        assert run(["reproduce", "F1", "--env", f"app={url}", "--repeat", "2", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert set(told) >= {"finding", "kind", "verdict", "k", "n", "told", "grade", "reasons", "evidence", "exit"}
    assert (told["verdict"], told["grade"], told["exit"], told["saved"]) == ("shown again", "confirmed", 1, True)


def test_without_a_target_nothing_is_sent(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", "r"])
    capsys.readouterr()
    assert run(["reproduce", "F1"]) == 2
    assert "--env app=URL" in capsys.readouterr().err


def test_the_codes_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Exit code 1: shown again; 0: not shown again; 3: it cannot be judged" in told
