from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.values import Outcome
from replayproxy.detect.finding import Blame, Finding, Grade, Kind
from replayproxy.detect.spans import Span
from replayproxy.detect.verdicts import Rate, Word, failed, rate, spread, verdict, wilson
from replayproxy.testing import exchange, trace


def finding(episode: str = "e", **more: Any) -> Finding:
    given: dict[str, Any] = {
        "kind": Kind.STALE_READ, "sub": "RYW", "grade": Grade.PROVEN, "blame": Blame.ENVIRONMENT, "blame_reason": "",
        "run": "r", "episode": episode, "lane": "main", "pointer": "/x", "values": (1, 2), "exchanges": (),
        "snapshots": (), "assumptions": (), "ruled_out": (), "reproduce": "", "title": "", "cannot_say": "",
    }  # fmt: skip
    return Finding(**given | more)


@pytest.mark.parametrize(
    ("grade", "blame", "word"),
    [
        (Grade.PROVEN, Blame.ENVIRONMENT, Word.POISONED),
        (Grade.CONFIRMED, Blame.ENVIRONMENT, Word.POISONED),
        (Grade.STATISTICAL, Blame.ENVIRONMENT, Word.SUSPECT),
        (Grade.SUSPECTED, Blame.ENVIRONMENT, Word.SUSPECT),
        (Grade.PROVEN, Blame.AGENT, Word.SUSPECT),
        (Grade.PROVEN, Blame.UNDECIDED, Word.SUSPECT),
    ],
)
def test_only_a_convincing_finding_that_the_environment_is_to_blame_for_poisons(
    grade: Grade, blame: Blame, word: Word
) -> None:
    assert verdict([finding(grade=grade, blame=blame)], spread=False, checked=["stale-read"]) is word


def test_without_a_finding_it_is_spread_then_checks_that_decide() -> None:
    assert verdict([], spread=True, checked=["stale-read"]) is Word.SUSPECT
    assert verdict([], spread=False, checked=["stale-read"]) is Word.CLEAN
    assert verdict([], spread=False, checked=[]) is Word.UNKNOWN


def span(name: str, opened: int, instance: str = "i") -> Span:
    return Span(name=name, opened=opened, ended=opened + 5, opened_wall=opened, instances={"app": instance})


def test_suspicion_stays_on_its_instance_and_ends_with_a_clean_start() -> None:
    spans = [span("a", 0), span("dirty", 10), span("next", 20), span("clean", 30), span("z", 40)]
    spans.append(span("elsewhere", 21, "j"))
    caught = spread(spans, [finding("dirty", kind=Kind.DIRTY_RESET)], {"clean"}, ["app"])
    assert caught == {"next": "dirty"}


def test_suspicion_spreads_neither_from_a_stale_read_nor_from_a_mere_suspicion() -> None:
    spans = [span("dirty", 10), span("next", 20)]
    assert spread(spans, [finding("dirty")], set(), ["app"]) == {}
    assert spread(spans, [finding("dirty", kind=Kind.STATE_BLEED, grade=Grade.SUSPECTED)], set(), ["app"]) == {}


def test_a_failure_that_came_through_later_is_recovered() -> None:
    def at(ms: float, status: int | None = 200, target: str = "/x", **more: Any):
        return exchange("GET", target, status=status, at_ms=ms, **more)

    def lost(*exchanges: Any) -> list[int]:
        return failed(trace(list(exchanges)).exchanges)

    assert lost(at(1, 503), at(2)) == []
    assert lost(at(1, 503), at(2, target="/y")) == [1]
    assert lost(at(1), at(2, 500)) == [2]
    for outcome in (Outcome.REFUSED, Outcome.CUT, Outcome.TIMED_OUT, Outcome.INVALID):
        assert lost(at(1, None, outcome=outcome)) == [1]
    assert lost(at(1, None, outcome=Outcome.CLIENT_GONE), at(2, 404)) == []
    assert lost(at(1, 502, outcome=Outcome.LOCAL), at(2, 503, is_probe=True)) == []


def test_the_rate_counts_an_episode_once() -> None:
    words = {"a": Word.POISONED, "b": Word.CLEAN, "c": Word.CLEAN, "d": Word.POISONED}
    told = rate(words, {"a": (1,), "b": (2,)}, ["a", "b", "c"])
    assert told == Rate(poisoned=1, lost=1, episodes=3)
    assert told.value == pytest.approx(2 / 3)
    assert Rate(poisoned=0, lost=0, episodes=0).value is None
    assert Rate(poisoned=0, lost=0, episodes=0).interval is None


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(0, 50, 0.0, 0.0713), (5, 50, 0.0435, 0.2136), (50, 50, 0.9287, 1.0), (1, 2, 0.0945, 0.9055)],
)
def test_the_interval_is_wilsons(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))
