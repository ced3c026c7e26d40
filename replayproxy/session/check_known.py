"""What is known already: findings that the config silences, and faults that are in the baseline.

Silence says that a finding is a false alarm, and takes it out of the verdicts. The baseline says that a fault is known,
and takes it out of the exit code only: the episode stays poisoned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from replayproxy.detect.finding import Finding
from replayproxy.detect.judge import Judgement
from replayproxy.detect.silence import Silence, silence
from replayproxy.session.baseline import Baseline, Known


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquaintance:
    """What of one run is known. `silenced`: each finding with the entry that met it; `known`: by the finding's id."""

    silences: tuple[Silence, ...] = ()
    silenced: tuple[tuple[Finding, Silence], ...] = ()
    baseline: Baseline = field(default_factory=dict)
    known: Mapping[str, Known] = field(default_factory=dict)
    today: date | None = None

    def fresh(self, judgement: Judgement) -> Judgement:
        """The judgement without what the baseline knows."""
        if not self.known:
            return judgement
        return judgement.with_findings(f for f in judgement.findings if f.id not in self.known)

    def to_json(self, fallen: Callable[[Finding], bool], first: int) -> dict[str, Any]:
        """The members of the check's document. `fallen`: whether a finding is asked about; `first`: number of the first
        that is silenced."""
        met = {entry.what for _, entry in self.silenced}
        seen = {one.fingerprint for one in self.known.values()}
        return {
            "silenced": [
                {"number": f"F{number}", **finding.to_json(), "silence": _entry_json(entry)}
                for number, (finding, entry) in enumerate(self.silenced, first)
                if fallen(finding)
            ],
            "silences": {
                "unused": [e.what for e in self.silences if e.applies(self.today) and e.what not in met],
                "expired": [e.what for e in self.silences if not e.applies(self.today)],
                "ending": [e.what for e in self.silences if e.what in met and e.ends_soon(self.today)],
            },
            "baseline": {
                "entries": len(self.baseline),
                "known": len(self.known),
                "unseen": sorted(set(self.baseline) - seen),
                "expired": sorted(k.fingerprint for k in self.baseline.values() if not k.applies(self.today)),
                "ending": sorted({k.fingerprint for k in self.known.values() if k.ends_soon(self.today)}),
            },
        }  # fmt: skip

    def marks(self, finding: Finding) -> dict[str, Any]:
        """What is added to a finding that the baseline knows."""
        known = self.known.get(finding.id)
        if known is None:
            return {}
        return {"known": {"by": "baseline", "added": known.added, "reason": known.reason,
                          "until": None if known.until is None else known.until.isoformat()}}  # fmt: skip


def _entry_json(entry: Silence) -> dict[str, Any]:
    until = None if entry.until is None else entry.until.isoformat()
    return {"what": entry.what, "reason": entry.reason, "until": until}


def acquainted(
    judgement: Judgement, silences: Sequence[Silence], baseline: Baseline, today: date | None
) -> tuple[Judgement, Acquaintance]:
    """The judgement with what is silenced taken out, and what is known of the rest."""
    counted, silenced = silence(judgement.findings, silences, today)
    known = {
        finding.id: baseline[finding.fingerprint]
        for finding in counted
        if finding.fingerprint in baseline and baseline[finding.fingerprint].covers(finding, today)
    }
    about = Acquaintance(
        silences=tuple(silences), silenced=tuple(silenced), baseline=baseline, known=known, today=today
    )  # fmt: skip
    return (judgement.with_findings(counted) if silenced else judgement), about


NOTHING_KNOWN = Acquaintance()


def in_names(names: Collection[str]) -> Callable[[Finding], bool]:
    """Whether a finding falls on one of these episodes."""
    return lambda finding: finding.episode in names
