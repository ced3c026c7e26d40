"""What `check` tells of a run: its document, and why it exits as it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from replayproxy.detect.finding import CONVINCING, Grade, Kind
from replayproxy.detect.judge import Judgement
from replayproxy.detect.verdicts import Word, rate, wilson
from replayproxy.errors import Exit, worst

DETECTORS = 1
"""The number of the set of detectors; it changes when an unchanged recording may be judged otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What the caller takes for a failure."""

    fail_on: frozenset[Grade] = frozenset({Grade.PROVEN, Grade.CONFIRMED})
    max_failure_rate: float = 0.05
    require: tuple[Kind, ...] = ()
    reference: str | None = None


def document(judgement: Judgement, demands: Demands, only: Collection[str] | None) -> dict[str, Any]:
    """The document of one run. A finding keeps the number that it has in the whole run."""
    names = [name for name in judgement.words if only is None or name in only]
    counted = [name for name in judgement.counted if only is None or name in only]
    share = rate(judgement.words, judgement.lost, counted)
    interval = share.interval
    return {
        "run": judgement.run,
        "findings": [
            {"number": f"F{number}", **finding.to_json()}
            for number, finding in enumerate(judgement.findings, 1)
            if only is None or finding.episode in only
        ],
        "verdicts": {name: judgement.words[name].value for name in names},
        "coverage": {name: judgement.coverage[name].to_json() for name in names},
        "failure_rate": share.value,
        "interval": None if interval is None else list(interval),
        "failures": {"poisoned": share.poisoned, "lost": share.lost, "of": share.episodes},
        "max_failure_rate": demands.max_failure_rate,
        "suspected_from": {name: source for name, source in judgement.caught.items() if name in names},
        "lost_exchanges": {name: list(seqs) for name, seqs in judgement.lost.items() if name in names},
        "incomplete": [name for name in judgement.incomplete if name in names],
        "open": [name for name in judgement.open_yet if name in names],
        "references": [dict(one) for one in judgement.references],
        "began": _began(judgement, names),
        "worst": _worst(judgement, names),
        "rewards": _rewards(judgement, names),
        "snapshots": {"missing": judgement.missing, "torn": judgement.torn, "late": judgement.late},
        "exchanges": judgement.exchanges,
        "unattributed": judgement.unattributed,
        "notes": list(judgement.notes),
        "why": reasons(judgement, demands, only),
        "detectors": DETECTORS,
        "exit": int(exit_code(judgement, demands, only)),
    }


def _began(judgement: Judgement, names: Collection[str]) -> dict[str, Any] | None:
    """The first episode on which a convincing finding falls: since when something is wrong."""
    fallen = {f.episode for f in judgement.findings if f.grade in CONVINCING and f.episode in names}
    first = min((judgement.episodes[name] for name in fallen), key=lambda e: e.opened_wall, default=None)
    if first is None:
        return None
    return {
        "episode": first.name, "wall": first.opened_wall, "meta": dict(first.meta), "instance": dict(first.instance),
    }  # fmt: skip


def _worst(judgement: Judgement, names: Collection[str]) -> dict[str, Any] | None:
    """The exchange behind findings on most episodes, if there is one behind several."""
    behind: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for number, finding in enumerate(judgement.findings, 1):
        # Only a write is behind anything; what a nondeterministic answer is compared with is its witness.
        if finding.exchanges and finding.exchanges[0].role == "write" and finding.episode in names:
            behind.setdefault((finding.kind.value, finding.exchanges[0].address), []).append((number, finding.episode))
    ranked = sorted(behind.items(), key=lambda item: -len({episode for _, episode in item[1]}))
    if not ranked or len({episode for _, episode in ranked[0][1]}) < 2:
        return None
    (kind, address), found = ranked[0]
    return {"number": f"F{found[0][0]}", "kind": kind, "exchange": address, "episodes": len({e for _, e in found})}


def _rewards(judgement: Judgement, names: Collection[str]) -> list[dict[str, Any]]:
    """Per task with a poisoned episode: the mean reward with the poisoned ones and without them."""
    tasks: dict[str | None, list[tuple[float, bool]]] = {}
    for name in names:
        episode = judgement.episodes[name]
        if episode.reward is not None:
            poisoned = judgement.words[name] is Word.POISONED
            tasks.setdefault(episode.task, []).append((episode.reward, poisoned))
    told = []
    for task, all_of in sorted(tasks.items(), key=lambda item: str(item[0])):
        clean = [reward for reward, poisoned in all_of if not poisoned]
        if len(clean) < len(all_of):
            told.append({
                "task": task, "with": fmean(reward for reward, _ in all_of),
                "without": fmean(clean) if clean else None, "poisoned": len(all_of) - len(clean), "of": len(all_of),
            })  # fmt: skip
    return told


def exit_code(judgement: Judgement, demands: Demands, only: Collection[str] | None) -> int:
    """0 as hoped, 1 a failing finding or rate, 3 not all could be judged; 3 is the stronger."""
    return worst(*(code for code, _ in _reasons(judgement, demands, only)))


def reasons(judgement: Judgement, demands: Demands, only: Collection[str] | None) -> list[str]:
    """Why the exit code is not 0."""
    return [why for _, why in _reasons(judgement, demands, only)]


def _reasons(judgement: Judgement, demands: Demands, only: Collection[str] | None) -> list[tuple[int, str]]:
    names = [name for name in judgement.words if only is None or name in only]
    counted = [name for name in judgement.counted if name in names]
    found: list[tuple[int, str]] = []
    grades = Counter(f.grade for f in judgement.findings if f.episode in names and f.grade in demands.fail_on)
    if grades:
        told = ", ".join(f"{grades[grade]} {grade}" for grade in Grade if grades[grade])
        found.append((Exit.DIFFERENT, f"{told} {'finding' if sum(grades.values()) == 1 else 'findings'}"))
    share = rate(judgement.words, judgement.lost, counted)
    if share.value is not None and share.value > demands.max_failure_rate:
        found.append((Exit.DIFFERENT, f"failure rate {share.value:.1%} is above {demands.max_failure_rate:.1%}"))
    if not counted:
        found.append((Exit.UNJUDGED, "no sealed episode with an exchange"))
    elif all(judgement.words[name] is Word.UNKNOWN for name in names):
        found.append((Exit.UNJUDGED, "no check could run"))
    for what, which in (("incomplete", judgement.incomplete), ("still open", judgement.open_yet)):
        number = sum(name in names for name in which)
        if number:
            found.append((Exit.UNJUDGED, f"{number} {'episode is' if number == 1 else 'episodes are'} {what}"))
    for kind in demands.require:
        lacking = [name for name in counted if kind.value not in judgement.coverage[name].checked]
        if lacking:
            found.append((Exit.UNJUDGED, f"{kind} was not looked for in {len(lacking)} of {len(counted)} episodes"))
    if not found and only is None and (strays := judgement.unattributed):
        # It hides nothing that was found; but a run part of whose traffic is nobody's does not pass.
        found.append((Exit.UNJUDGED, f"{strays:,} {'exchange is' if strays == 1 else 'exchanges are'} unattributed"))
    return found


def merged(told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The document of several runs: one per run under `runs`, and all of them together, episodes by address."""
    if len(told) == 1:
        return told[0]
    poisoned, lost, of = (sum(one["failures"][key] for one in told) for key in ("poisoned", "lost", "of"))
    share = (poisoned + lost) / of if of else None
    return {
        "run": None,
        "runs": told,
        "findings": [finding for one in told for finding in one["findings"]],
        "verdicts": {f"{one['run']}/{name}": word for one in told for name, word in one["verdicts"].items()},
        "coverage": {f"{one['run']}/{name}": seen for one in told for name, seen in one["coverage"].items()},
        "failure_rate": share,
        "interval": _interval(poisoned + lost, of),
        "failures": {"poisoned": poisoned, "lost": lost, "of": of},
        "exit": worst(*(one["exit"] for one in told)),
    }


def _interval(hits: int, of: int) -> list[float] | None:
    return list(wilson(hits, of)) if of else None
