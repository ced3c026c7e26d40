"""With which code `check` exits, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from replayproxy.core.shown import count
from replayproxy.detect.finding import CONVINCING, Grade, Kind
from replayproxy.detect.judge import Judgement
from replayproxy.detect.verdicts import Word, rate
from replayproxy.errors import Exit, worst
from replayproxy.session.check_known import NOTHING_KNOWN, Acquaintance


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What the caller takes for a failure."""

    fail_on: frozenset[Grade] = CONVINCING
    max_failure_rate: float = 0.05
    require: tuple[Kind, ...] = ()
    reference: str | None = None


def exit_code(
    judgement: Judgement, demands: Demands, only: Collection[str] | None, about: Acquaintance = NOTHING_KNOWN
) -> int:
    """0 as hoped, 1 a failing finding or rate, 3 not all could be judged; 3 is the stronger."""
    return worst(*(code for code, _ in _reasons(judgement, demands, only, about)))


def reasons(
    judgement: Judgement, demands: Demands, only: Collection[str] | None, about: Acquaintance = NOTHING_KNOWN
) -> list[str]:
    """Why the exit code is not 0."""
    return [why for _, why in _reasons(judgement, demands, only, about)]


def _reasons(
    judgement: Judgement, demands: Demands, only: Collection[str] | None, about: Acquaintance
) -> list[tuple[int, str]]:
    names = [name for name in judgement.words if only is None or name in only]
    counted = [name for name in judgement.counted if name in names]
    found = [
        *_failing(about.fresh(judgement), demands, names, counted, bool(about.known)),
        *_unjudged(judgement, demands, names, counted),
    ]
    if not found and only is None and (strays := judgement.unattributed):
        # It hides nothing that was found; but a run part of whose traffic is nobody's does not pass.
        found.append((Exit.UNJUDGED, f"{strays:,} {'exchange is' if strays == 1 else 'exchanges are'} unattributed"))
    return found


def _failing(
    fresh: Judgement, demands: Demands, names: Collection[str], counted: Collection[str], some_known: bool
) -> list[tuple[int, str]]:
    """`fresh`: without what the baseline knows, in findings and in the rate."""
    found: list[tuple[int, str]] = []
    grades = Counter(f.grade for f in fresh.findings if f.episode in names and f.grade in demands.fail_on)
    if grades:
        told = ", ".join(f"{grades[grade]} {grade}" for grade in Grade if grades[grade])
        found.append((Exit.DIFFERENT, f"{told} {'finding' if sum(grades.values()) == 1 else 'findings'}"))
    share = rate(fresh.words, fresh.lost, counted)
    if share.value is not None and share.value > demands.max_failure_rate:
        without = " without what the baseline knows" if some_known else ""
        found.append(
            (Exit.DIFFERENT, f"failure rate{without} {share.value:.1%} is above {demands.max_failure_rate:.1%}")
        )
    return found


def _unjudged(
    judgement: Judgement, demands: Demands, names: Collection[str], counted: Collection[str]
) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    if not counted:
        found.append((Exit.UNJUDGED, "no sealed episode with an exchange"))
    elif all(judgement.words[name] is Word.UNKNOWN for name in names) or not any(
        judgement.coverage[name].checked for name in counted
    ):
        found.append((Exit.UNJUDGED, "no check could run"))
    for what, which in (("incomplete", judgement.incomplete), ("still open", judgement.open_yet)):
        number = sum(name in names for name in which)
        if number:
            found.append((Exit.UNJUDGED, f"{number} {'episode is' if number == 1 else 'episodes are'} {what}"))
    for kind in demands.require:
        lacking = [name for name in counted if kind.value not in judgement.coverage[name].checked]
        if lacking:
            found.append(
                (Exit.UNJUDGED, f"{kind} was not looked for in {len(lacking)} of {count(len(counted), 'episode')}")
            )
    return found
