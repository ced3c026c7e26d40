"""The baseline: faults that are known, by their fingerprints, so that CI fails on new ones only.

    {"replayproxy-baseline": 1, "findings": [{"fingerprint": "stale-read-..", "kind", "grade", "title", "run",
      "seen": n, "added": "2026-11-30", "reason": "", "until": null}]}

A known fault that is now better proved than it was is new. People may edit `reason` and `until`; writing keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from replayproxy.detect.finding import STRENGTH, Finding, Grade
from replayproxy.detect.silence import SOON_DAYS
from replayproxy.errors import WrongUsage
from replayproxy.session.files import is_special, replaced
from replayproxy.session.silences import last_day

BASELINE_FORMAT = 1
_MARK = "replayproxy-baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One fault of the baseline. `grade`: how far it was proved when it was written down; `seen`: how often."""

    fingerprint: str
    kind: str
    grade: Grade
    title: str = ""
    run: str = ""
    seen: int = 1
    added: str = ""
    reason: str = ""
    until: date | None = None

    def covers(self, finding: Finding, today: date | None) -> bool:
        strong = STRENGTH[finding.grade] < STRENGTH[self.grade]
        return self.applies(today) and finding.fingerprint == self.fingerprint and not strong

    def applies(self, today: date | None) -> bool:
        return self.until is None or today is None or today <= self.until

    def ends_soon(self, today: date | None) -> bool:
        return self.until is not None and today is not None and 0 <= (self.until - today).days < SOON_DAYS

    def to_json(self) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint, "kind": self.kind, "grade": self.grade.value, "title": self.title,
            "run": self.run, "seen": self.seen, "added": self.added, "reason": self.reason,
            "until": None if self.until is None else self.until.isoformat(),
        }  # fmt: skip


type Baseline = Mapping[str, Known]
"""By fingerprint."""


def read_baseline(path: Path) -> Baseline:
    """Raises WrongUsage where it is not there or is none."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise WrongUsage(
            f"the baseline {path} cannot be read: {(error.strerror or str(error)).lower()}",
            hint="check RUN --write-baseline FILE makes one",
        ) from error
    except (ValueError, RecursionError) as error:
        raise WrongUsage(f"the baseline {path} is no JSON: {error}") from error
    number = document.get(_MARK) if isinstance(document, dict) else None
    if isinstance(number, bool) or not isinstance(number, int):
        raise WrongUsage(f"{path} is no baseline of replayproxy", hint="check RUN --write-baseline FILE makes one")
    if number != BASELINE_FORMAT:
        raise WrongUsage(
            f"the baseline {path} has format {number}, this version knows {BASELINE_FORMAT}", hint="upgrade replayproxy"
        )
    entries = document.get("findings")
    if not isinstance(entries, list):
        raise WrongUsage(f"the baseline {path} holds no list of findings")
    found = [_known(entry, f"the baseline {path}, entry {number}") for number, entry in enumerate(entries, 1)]
    return {one.fingerprint: one for one in found}


def old_baseline(path: Path | None) -> Baseline:
    """What a baseline that is to be written anew holds already; nothing where there is none yet, or no file."""
    if path is None or is_special(path) or not path.exists():
        return {}
    return read_baseline(path)


def _known(entry: Any, where: str) -> Known:
    if not isinstance(entry, dict) or not isinstance(entry.get("fingerprint"), str):
        raise WrongUsage(f"{where}: it has no fingerprint")
    if entry.get("grade") not in list(Grade):
        raise WrongUsage(f"{where}: grade is {entry.get('grade')!r}", hint=f"one of {', '.join(Grade)}")
    texts = {name: str(entry.get(name) or "") for name in ("kind", "title", "run", "added", "reason")}
    seen = entry.get("seen", 1)
    return Known(
        fingerprint=entry["fingerprint"], grade=Grade(entry["grade"]), until=last_day(entry.get("until"), where),
        seen=seen if isinstance(seen, int) else 1, **texts,
    )  # fmt: skip


def renewed(old: Baseline, findings: Iterable[Finding], day: str) -> dict[str, Known]:
    """The baseline of these findings. Of a fault that was in the old one the day and what people wrote are kept."""
    found: dict[str, Known] = {}
    for finding in findings:
        before = found.get(finding.fingerprint)
        if before is not None:
            stronger = min(before.grade, finding.grade, key=STRENGTH.__getitem__)
            found[finding.fingerprint] = replace(before, seen=before.seen + 1, grade=stronger)
            continue
        kept = old.get(finding.fingerprint)
        found[finding.fingerprint] = Known(
            fingerprint=finding.fingerprint, kind=finding.kind.value, grade=finding.grade, title=finding.title,
            run=finding.run, added=kept.added if kept else day, reason=kept.reason if kept else "",
            until=kept.until if kept else None,
        )  # fmt: skip
    return found


def write_baseline(path: Path, known: Baseline) -> None:
    """Whole or not at all; the same findings give the same bytes. Raises WrongUsage, StoreTrouble."""
    ordered = sorted(known.values(), key=lambda one: (one.kind, one.fingerprint))
    document = {_MARK: BASELINE_FORMAT, "findings": [one.to_json() for one in ordered]}
    text = json.dumps(document, indent=2, ensure_ascii=True)
    replaced(path, f"{text}\n".encode())
