"""What `check` tells of a run: its document, and why it exits as it does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from replayproxy.detect.judge import Judgement
from replayproxy.detect.verdicts import rate, wilson
from replayproxy.errors import worst
from replayproxy.session import check_story
from replayproxy.session.check_exit import Demands, exit_code, reasons
from replayproxy.session.check_known import NOTHING_KNOWN, Acquaintance, in_names

__all__ = ["DETECTORS", "Demands", "document", "exit_code", "merged", "reasons"]

DETECTORS = 1
"""The number of the set of detectors; it changes when an unchanged recording may be judged otherwise."""


def document(
    judgement: Judgement, demands: Demands, only: Collection[str] | None, about: Acquaintance = NOTHING_KNOWN
) -> dict[str, Any]:
    """The document of one run. A finding keeps the number that it has in the whole run; the silenced come last."""
    names = [name for name in judgement.words if only is None or name in only]
    counted = [name for name in judgement.counted if only is None or name in only]
    share = rate(judgement.words, judgement.lost, counted)
    interval = share.interval
    return {
        "run": judgement.run,
        "findings": [
            {"number": f"F{number}", **finding.to_json(), **about.marks(finding)}
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
        "began": check_story.began(judgement, names),
        "worst": check_story.worst(judgement, names),
        "rewards": check_story.rewards(judgement, names),
        "groups": check_story.groups(judgement, names),
        "snapshots": {"missing": judgement.missing, "torn": judgement.torn, "late": judgement.late},
        "exchanges": judgement.exchanges,
        "writes": {name: judgement.writes[name] for name in names},
        "unattributed": judgement.unattributed,
        "annotated": sum(bool(judgement.episodes[name].annotated) for name in names),
        "notes": list(judgement.notes),
        **about.to_json(in_names(names), len(judgement.findings) + 1),
        "why": reasons(judgement, demands, only, about),
        "detectors": DETECTORS,
        "exit": int(exit_code(judgement, demands, only, about)),
    }


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
