"""One cell of the matrix: recorded, judged, scored; and, where the matrix wants it, judged with less evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.faults.again import ABLATIONS, judged_again
from tests.faults.matrix import Plan
from tests.faults.run_cell import run
from tests.faults.score import Score, scored
from tests.faults.truth import units


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`unnamed`: without the named reference, where there is one. `ablated`: by what was taken away."""

    score: Score
    unnamed: Score | None = None
    ablated: Mapping[str, Score] = field(default_factory=dict)


def outcome(plan: Plan) -> Outcome:
    recorded = run(plan)
    truth = units(recorded)
    ablated = {}
    if plan.ablate:
        for name, change in ABLATIONS.items():
            ablated[name] = scored(recorded, judged_again(change(recorded)), truth)
    return Outcome(
        score=scored(recorded, truth=truth),
        unnamed=None if recorded.unnamed is None else scored(recorded, recorded.unnamed, truth), ablated=ablated,
    )  # fmt: skip
