"""A judgement is the same, whether siblings are compared beside it, after it, or partly."""

from __future__ import annotations

import pytest

from replayproxy.session import comparing
from replayproxy.session.check import check
from replayproxy.session.check_document import Demands
from replayproxy.session.look import Stores
from replayproxy.storage import Store
from tests.detect.bench import Bench, worker
from tests.detect.kept import keep


@pytest.mark.parametrize("faults", [(), ("random",)])
def test_two_processes_judge_as_one_does(
    store: Store, faults: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(seed=3)
    where = bench.deployment("i", *faults)
    bench.in_turn({"name": f"e{n}", "deployment": where, "agents": {"main": worker}} for n in range(8))
    bench.run()
    keep(store, bench)
    stores = Stores([store.reader()])
    asked: list[tuple[str, bool]] = []
    real = comparing.Comparing.pairwise

    def noted(self: comparing.Comparing, first: object, other: object) -> object:
        found = real(self, first, other)  # type: ignore[arg-type]
        asked.append((other.name, found is not None))  # type: ignore[attr-defined]
        return found

    monkeypatch.setattr(comparing.Comparing, "pairwise", noted)
    [alone] = check(stores, ["r"], Demands(), now=1)
    assert asked == []  # too few episodes for a process of their own
    monkeypatch.setattr(comparing, "WORTH", 1)
    monkeypatch.setattr(comparing, "cores", lambda: 2)
    [beside] = check(stores, ["r"], Demands(), now=1)
    assert len(asked) == 7
    assert any(found for _, found in asked)
    assert beside.to_json() == alone.to_json()
    assert bool(alone.judgement.findings) is bool(faults)


def test_a_process_that_cannot_compare_costs_time_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(seed=4)
    where = bench.deployment("i", "random")
    bench.in_turn({"name": f"e{n}", "deployment": where, "agents": {"main": worker}} for n in range(5))
    bench.run()
    keep(store, bench)
    stores = Stores([store.reader()])
    [alone] = check(stores, ["r"], Demands(), now=1)
    monkeypatch.setattr(comparing, "WORTH", 1)
    monkeypatch.setattr(comparing, "cores", lambda: 2)
    monkeypatch.setattr(comparing, "_compared", _broken)
    [beside] = check(stores, ["r"], Demands(), now=1)
    assert beside.to_json() == alone.to_json()


def _broken(first: str, other: str) -> None:
    raise OSError(f"{first} and {other} cannot be read here")
