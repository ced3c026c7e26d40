"""A hit names the right exchange and the right cell; anything less is none."""

from __future__ import annotations

import json

from replayproxy.detect.finding import Blame, Finding, Grade, Kind, witness
from replayproxy.testing import exchange
from tests.faults import page
from tests.faults.__main__ import measuring
from tests.faults.claims import claim_of, pointed
from tests.faults.truth import Unit

READ = exchange("GET", "/deals", status=200, body={"items": [{"id": "D-1", "stage": "lead"}, {"id": "D-2"}]})


def finding(seq: int = 3, pointer: str = "/items/0/stage", episode: str = "e") -> Finding:
    from dataclasses import replace

    read = witness("r", episode, replace(READ, seq=seq), "read", pointer=pointer)
    return Finding(
        kind=Kind.STALE_READ, sub="RYW", grade=Grade.PROVEN, blame=Blame.ENVIRONMENT, blame_reason="", run="r",
        episode=episode, lane="main", pointer=pointer, values=(None, None), exchanges=(read,), snapshots=(),
        assumptions=(), ruled_out=(), reproduce="", title="", cannot_say="",
    )  # fmt: skip


def met(told: Finding) -> bool:
    unit = Unit(
        episode="e", kinds=frozenset({Kind.STALE_READ}), shown={("e", 3)}, cells={("D-1", "stage"), ("D-1", "amount")}
    )
    return unit.met_by(claim_of(told, {("e", 3): READ, ("e", 4): READ}))


def test_the_right_exchange_and_cell_are_a_hit() -> None:
    assert met(finding())


def test_another_exchange_row_column_or_episode_is_none() -> None:
    assert not met(finding(seq=4))
    assert not met(finding(pointer="/items/1/stage"))
    assert not met(finding(pointer="/items/0/owner"))
    assert not met(finding(episode="f"))


def test_a_pointer_stands_for_the_last_row_on_its_way() -> None:
    assert pointed(READ, "/items/1/id") == ("D-2", "id")
    assert pointed(READ, "/items/0") == ("D-1", "")
    one = exchange("GET", "/deals/D-7", status=200, body=json.dumps({"stage": "won"}))
    assert pointed(one, "/stage") == ("D-7", "stage")


def test_an_outcome_is_kept_by_what_measures_it_and_not_by_what_tells_it() -> None:
    files = {str(path.relative_to(page.ROOT)) for path in measuring()}
    assert {"replayproxy/detect/judge.py", "tests/faults/truth.py", "tests/faults/matrix.py"} <= files
    assert not {"tests/faults/words.py", "tests/faults/page.py", "tests/faults/test_score.py"} & files
