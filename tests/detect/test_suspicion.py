"""A read that misses its own lane's write, told at once; and what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.values import Exchange, Outcome
from replayproxy.detect.suspicion import MAX_BODY, Reason, Suspect
from replayproxy.testing import exchange, run
from tests.detect.hand import with_interval


def noted(*exchanges: Exchange) -> list[Reason | None]:
    suspect = Suspect(run())
    return [suspect.note(one) for one in exchanges]


def get(at: float, stage: str = "lead", **more: Any) -> Exchange:
    more.setdefault("body", {"id": "D-1", "stage": stage})
    return exchange("GET", more.pop("target", "/deals/D-1"), at_ms=at, **more)


def patch(at: float = 20, stage: str = "won", **more: Any) -> Exchange:
    more.setdefault("body", {"id": "D-1", "stage": stage})
    return exchange("PATCH", more.pop("target", "/deals/D-1"), sent={"stage": stage}, at_ms=at, **more)


def test_a_read_that_shows_what_was_there_before_the_lanes_own_write_is_told_with_the_write() -> None:
    write, read = patch(), get(30)
    *before, reason = noted(get(10), write, read)
    assert before == [None, None]
    assert reason is not None
    assert (reason.write, reason.read, reason.pointer) == (write.order, read.order, "/stage")
    assert (reason.expected, reason.shown, reason.alone) == ("won", "lead", True)
    assert read.times.fwd is not None
    assert write.times.up_end is not None
    assert reason.late == read.times.fwd - write.times.up_end
    assert str(reason) == (
        'GET /deals/D-1 shows "lead" at /stage, 0.009 s after PATCH /deals/D-1 had been answered, which set another'
    )


@pytest.mark.parametrize(
    "exchanges",
    [
        [get(10), patch(), get(30, "won")],
        [patch(), get(30)],  # what was there before is not known: the answer may spell the value in its own way
        [get(10), patch(), get(30, "lost")],
        [get(10), patch(lane="a"), get(30, lane="b")],
        [get(10), patch(), with_interval(get(20.5), 20.6, 40)],
        [get(10), patch(status=500), get(30)],
        [get(10), patch(status=202), get(30)],
        [get(10), patch(outcome=Outcome.CLIENT_GONE), get(30)],
        [get(10), patch(), patch(24, "lead"), get(30)],
        [get(10), patch(), exchange("POST", "/deals/D-1/reopen", at_ms=24), get(30)],
        [get(10), patch(), get(30, target="/deals/D-1?version=1")],
        [get(10), patch(), exchange("POST", "/reset", at_ms=24, is_reset=True), get(30)],
        [get(10), patch(), get(30, is_probe=True)],
        [get(10, body={"stage": "x" * MAX_BODY}), patch(), get(30, body={"stage": "x" * MAX_BODY})],
        [get(10), with_interval(patch(), 20, 40), with_interval(patch(21, "lead", lane="b"), 21, 39), get(50)],
    ],
)
def test_what_only_looks_like_it_is_not_told(exchanges: list[Exchange]) -> None:
    assert noted(*exchanges) == [None] * len(exchanges)


def test_another_write_between_them_is_mentioned() -> None:
    elsewhere = exchange("POST", "/notes", at_ms=25, status=201, body={"id": 1})
    reason = noted(get(10), patch(), elsewhere, get(30))[-1]
    assert reason is not None
    assert not reason.alone


def test_a_row_that_the_lane_made_must_be_there_and_one_that_it_deleted_must_not() -> None:
    made = exchange("POST", "/deals", sent={"stage": "lead"}, status=201, body={"id": "D-1", "stage": "lead"}, at_ms=5)
    gone = get(30, status=404, body={"error": "no such row"})
    reason = noted(made, gone)[-1]
    assert reason is not None
    assert (reason.expected, reason.shown) == ("present", "absent")
    assert noted(made, get(30), gone)[1] is None
    delete = exchange("DELETE", "/deals/D-1", status=204, at_ms=20)
    reason = noted(get(10), delete, get(30))[-1]
    assert reason is not None
    assert (reason.expected, reason.shown, reason.pointer) == ("absent", "present", "")
    soft = get(30, body={"id": "D-1", "stage": "lead", "deleted_at": "2026-01-01"})
    assert noted(get(10), delete, soft)[-1] is None, "the row was only marked"
    assert noted(get(10), delete, gone)[-1] is None


def test_a_list_that_shows_the_row_as_it_was_counts_too_unless_it_declares_itself_cached() -> None:
    def listed(at: float, **more: Any) -> Exchange:
        return get(at, target="/deals", body={"items": [{"id": "D-1", "stage": "lead"}]}, **more)

    reason = noted(listed(10), patch(), listed(30))[-1]
    assert reason is not None
    assert reason.pointer == "/items/0/stage"
    head = {"Content-Type": "application/json", "Age": "3"}
    assert noted(listed(10), patch(), listed(30, headers=head))[-1] is None
    assert noted(get(10), patch(), get(30, headers=head))[-1] is not None, "its own path must be dropped"


def test_the_memory_of_an_episode_is_bounded() -> None:
    suspect = Suspect(run())
    for n in range(3000):
        suspect.note(get(10 * n, target=f"/deals/{n}", body={"id": str(n)}))
    assert len(suspect._rows) == 1000
