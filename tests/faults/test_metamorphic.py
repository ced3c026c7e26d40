"""What must not change a verdict does not, and what carries the fault carries the finding.

Recordings of the slice are changed in memory and judged again; the detectors are pure, so that nothing else differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from replayproxy.core.values import Exchange
from replayproxy.detect.judge import Judgement
from tests.faults import again
from tests.faults.claims import place_of
from tests.faults.matrix import Plan
from tests.faults.rig import Recorded
from tests.faults.run_cell import run
from tests.faults.truth import units

pytestmark = pytest.mark.e2e

PLANS = {
    "answers": Plan(env="crm", row="a", fault="rng", p=0.05, episodes=10, script="look"),
    "stale": Plan(env="crm", row="b", fault="ttl", seconds=10.0, lanes=2, episodes=3),
    "bleed": Plan(env="crm", row="c", fault="table", episodes=5, named=True, script="create"),
    "race": Plan(env="crm", row="d", fault="gap", seconds=0.05, lanes=4, episodes=3, script="contend"),
    "clean": Plan(env="crm", row="clean", fault="none", lanes=2, episodes=4, control=True),
}


@cache
def recorded(name: str) -> Recorded:
    return run(PLANS[name])


def told(judgement: Judgement) -> tuple[dict[str, str], list[tuple[object, ...]]]:
    """Verdicts, and of each finding what does not hang on names, values and times."""
    findings = [
        (f.kind.value, f.sub, f.grade.value, f.episode, sorted((w.role, *place_of(w.address)) for w in f.exchanges))
        for f in judgement.findings
    ]
    return {name: word.value for name, word in judgement.words.items()}, sorted(findings)


def without_marks(given: Recorded) -> Recorded:
    def bare(exchange: Exchange) -> Exchange:
        fields = tuple(pair for pair in exchange.request.fields if pair[0].lower() != b"x-call")
        return replace(exchange, request=replace(exchange.request, fields=fields))

    return again.each_exchange(bare)(given)


CHANGES: dict[str, Callable[[Recorded], Recorded]] = {
    "everything takes ten times as long": again.stretched,
    "all ids are called something else": again.renamed,
    "lanes change their names": again.permuted,
    "requests carry no mark of the ledger": without_marks,
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("change", CHANGES)
def test_no_verdict_and_no_finding_changes_when(change: str, name: str) -> None:
    given = recorded(name)
    before = told(again.judged_again(given))
    assert told(given.judgement) == before, "judged in memory as in the store"
    assert told(again.judged_again(CHANGES[change](given))) == before


@pytest.mark.parametrize("name", ["stale", "bleed", "answers"])
def test_without_the_exchanges_that_showed_a_fault_its_finding_is_gone_and_no_other_comes(name: str) -> None:
    given = recorded(name)
    shown = sorted({place for unit in units(given) for place in unit.shown})
    assert shown
    reads = {place for f in given.judgement.findings for place in map(place_of, (w.address for w in f.exchanges))}
    assert reads & set(shown)
    left = again.judged_again(again.leaving_out(given, shown))
    assert [f.title for f in left.findings if f.kind.value != "dirty-reset"] == []
