"""Findings that somebody has looked at and declared a false alarm, each with a reason and, if wanted, a last day.

Silence takes a finding out of the verdicts. It never hides it: what was silenced is counted and listed, an expired
entry no longer silences, and one that met nothing is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from replayproxy.core.templates import template_of
from replayproxy.detect.finding import Finding, Kind

SOON_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """`what`: a finding's id, its fingerprint, or `KIND METHOD TEMPLATE`, which any of its exchanges may meet.
    `until` is the last day on which it silences; None: it has no end."""

    what: str
    reason: str
    until: date | None = None

    def applies(self, today: date | None) -> bool:
        """Whether it has not expired. `today` None: nobody knows the day, so it has not."""
        return self.until is None or today is None or today <= self.until

    def ends_soon(self, today: date | None) -> bool:
        return self.until is not None and today is not None and 0 <= (self.until - today).days < SOON_DAYS

    def meets(self, finding: Finding) -> bool:
        return self.what in (finding.id, finding.fingerprint) or self.what in places(finding)


def places(finding: Finding) -> set[str]:
    """`stale-read GET /deals/{id}` for each of its exchanges."""
    return {f"{finding.kind} {w.method} {template_of(w.target.encode())}" for w in finding.exchanges if w.method}


def names_a_place(what: str) -> bool:
    """Whether it has the form `KIND METHOD TEMPLATE`."""
    kind, _, rest = what.partition(" ")
    method, _, path = rest.partition(" ")
    return kind in set(Kind) and method.isupper() and path.startswith("/")


def silence(
    findings: Iterable[Finding], silences: Sequence[Silence], today: date | None
) -> tuple[list[Finding], list[tuple[Finding, Silence]]]:
    """The findings that count, and those that are silenced, each with the first entry that meets it."""
    living = [one for one in silences if one.applies(today)]
    counted: list[Finding] = []
    silenced: list[tuple[Finding, Silence]] = []
    for finding in findings:
        by = next((one for one in living if one.meets(finding)), None)
        if by is None:
            counted.append(finding)
        else:
            silenced.append((finding, by))
    return counted, silenced
