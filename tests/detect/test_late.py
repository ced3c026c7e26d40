"""A write that takes effect after its answer: nobody is named for it, and nothing is clean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replayproxy.core.values import EnvWiring, Exchange
from replayproxy.detect.finding import Finding, Grade, Kind
from replayproxy.detect.judge import Judgement
from replayproxy.detect.late import WHY
from replayproxy.detect.verdicts import Word
from replayproxy.testing import exchange, run
from tests.detect.hand import Hand

CLAIM = {"who": "ada"}
NOTE = {"id": "5c1f0a9e77", "ticket": "T-1", "body": "on it"}


def ticket(owner: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "T-1", "title": "printer", "owner": owner, **more}


def state(owner: str | None = None, *, notes: tuple[dict[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    return {"tickets": {"T-1": ticket(owner, **more)}, "notes": {note["id"]: note for note in notes}}


def look(at: float, owner: str | None = None, **more: Any) -> Exchange:
    return exchange("GET", "/tickets/T-1", body=ticket(owner, **more), at_ms=at)


def claim(at: float = 10, status: int = 200) -> Exchange:
    return exchange("POST", "/tickets/T-1/claim", sent=CLAIM, body={"ok": True}, status=status, at_ms=at)


def note(at: float, **sent: str) -> Exchange:
    sent = sent or {"body": "on it"}
    return exchange("POST", "/tickets/T-1/notes", sent=sent, body=NOTE, status=201, at_ms=at)


def judged(exchanges: list[Exchange], *states: tuple[float, dict[str, Any]], eventual: str = "") -> Judgement:
    wired = EnvWiring(name="app", upstream="http://app.test", eventual={eventual: 5.0} if eventual else {})
    hand = Hand(replace(run(), envs={"app": wired}))
    hand.episode("e", [replace(one, seq=n) for n, one in enumerate(exchanges, 1)], states)
    return hand.judge()


def came_late(found: Judgement) -> bool:
    return WHY in found.coverage["e"].not_checked.values()


LATE = [look(2), claim(10), look(30), note(50), look(80, "ada")]
SHOTS = ((0, state()), (20, state()), (60, state("ada", notes=(NOTE,))))


def test_a_value_that_came_with_a_later_write_is_no_clean_episode_and_the_read_before_it_is_suspected() -> None:
    found = judged(LATE, *SHOTS)
    (stale,) = found.findings
    assert (stale.kind, stale.sub, stale.grade) == (Kind.STALE_READ, "RYW", Grade.SUSPECTED)
    assert [(w.role, w.address) for w in stale.exchanges] == [("write", "r/e#2"), ("read", "r/e#3")]
    assert (stale.pointer, stale.values) == ("/owner", ("ada", None))
    assert (
        stale.title
        == "/tickets/T-1 does not show POST /tickets/T-1/claim, answered 0.019 s before and in effect only later"
    )
    assert "may act after its answer by design" in stale.cannot_say
    assert found.words["e"] is Word.SUSPECT
    assert found.coverage["e"].checked == ()


def test_where_nothing_was_read_meanwhile_no_check_could_run() -> None:
    found = judged([look(2), claim(10), note(50)], *SHOTS)
    assert found.findings == ()
    assert found.words["e"] is Word.UNKNOWN
    assert found.coverage["e"].not_checked["stale-read"] == WHY


def test_the_same_at_once_is_clean() -> None:
    at_once = [look(2), claim(10), look(30, "ada"), note(50), look(80, "ada")]
    found = judged(at_once, (0, state()), (20, state("ada")), (60, state("ada", notes=(NOTE,))))
    assert (found.findings, found.words["e"]) == ((), Word.CLEAN)
    assert not came_late(found)


def test_a_value_that_came_while_nothing_was_written_is_late_too() -> None:
    found = judged([look(2), claim(10), look(30), look(80, "ada")], (0, state()), (20, state()), (60, state("ada")))
    assert came_late(found)
    assert [f.grade for f in found.findings] == [Grade.SUSPECTED]


def test_a_row_that_was_answered_201_and_comes_with_the_next_write() -> None:
    other = exchange("PATCH", "/tickets/T-1", sent={"title": "x"}, body=ticket(title="x"), at_ms=50)
    empty = exchange("GET", "/notes", body=[], at_ms=30)
    found = judged(
        [look(2), note(10), empty, other], (0, state()), (20, state()), (60, state(notes=(NOTE,), title="x"))
    )
    assert came_late(found)
    assert found.words["e"] is not Word.CLEAN


def test_what_the_late_write_was_late_with_hides_not_that_the_next_one_was_late_as_well() -> None:
    """Each effect comes in the time of the write after it."""
    close = exchange("PATCH", "/tickets/T-1", sent={"title": "x"}, body=ticket("ada", title="x"), at_ms=90)
    listed = exchange("GET", "/notes", body=[NOTE], at_ms=120)
    found = judged(
        [look(2), claim(10), note(50), look(70, "ada"), close, listed],
        (0, state()), (20, state()), (60, state("ada")), (100, state("ada", notes=(NOTE,))),
    )  # fmt: skip
    assert came_late(found)


def publish(at: float) -> Exchange:
    return exchange("POST", "/tickets/T-1/publish", sent={}, body={"ok": True}, at_ms=at)


NAMED = exchange("PATCH", "/tickets/T-1", sent={"owner": "ada"}, body=ticket("ada"), at_ms=50)
GIVEN = [(0, state()), (20, state()), (60, state("ada"))]
HAD = [(0, state("ada")), (20, state("ada")), (40, state("bob")), (60, state("ada"))]


@pytest.mark.parametrize(
    ("exchanges", "states", "eventual"),
    [
        pytest.param([claim(), publish(50)], GIVEN, "", id="a second write of the row puts in force what was given"),
        pytest.param([claim(), NAMED], GIVEN, "", id="the second write gives the value itself"),
        pytest.param([claim(), note(50, body="x", who="ada")], GIVEN, "", id="the note speaks of the value"),
        pytest.param([claim(status=202), note(50)], GIVEN, "", id="202 says that it will be done"),
        pytest.param([claim(status=409), note(50)], GIVEN, "", id="a refused write was answered for nothing"),
        pytest.param([claim(), note(50)], GIVEN, "POST /tickets/*", id="it is declared to act after its answer"),
        pytest.param(
            [claim(), exchange("PATCH", "/tickets/T-1", sent={"owner": "bob"}, body=ticket("bob"), at_ms=30), note(50)],
            HAD, "", id="it changed nothing because it was so already, and another write changed it since",
        ),
    ],
)  # fmt: skip
def test_what_has_another_reason_is_not_late(
    exchanges: list[Exchange], states: list[tuple[float, dict[str, Any]]], eventual: str
) -> None:
    found = judged([look(2, states[0][1]["tickets"]["T-1"]["owner"]), *exchanges], *states, eventual=eventual)
    assert not came_late(found)
    assert found.words["e"] is Word.CLEAN


def test_a_filled_column_of_a_row_is_its_neighbours_doing_where_a_write_beside_it_may_change_it() -> None:
    """The note under the ticket may hand the ticket on; that it takes it from somebody is not called late."""
    found = judged([claim(), note(50)], (0, state("bob")), (20, state("bob")), (60, state("ada", notes=(NOTE,))))
    assert not came_late(found)


def convincing(found: Judgement) -> list[Finding]:
    return [f for f in found.findings if f.grade in (Grade.PROVEN, Grade.CONFIRMED)]


def test_a_certain_finding_does_not_name_the_write_that_ran_when_it_came() -> None:
    """A read that misses the owner after it came is stale; whose work the owner is nobody can say."""
    found = judged(
        [*LATE, look(100, None)], *SHOTS, (90, state("ada", notes=(NOTE,))), (120, state("ada", notes=(NOTE,)))
    )
    assert len(convincing(found)) == 1
    named = {w.address for f in convincing(found) for w in f.exchanges}
    assert "r/e#4" not in named
    assert "r/e#6" in named
