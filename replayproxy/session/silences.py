"""`[silence]` of the config: which findings are false alarms, why, and until when.

[silence]
"stale-read GET /deals/{id}" = { reason = "the list is cached for 5 s on purpose", until = 2027-03-01 }
state-bleed-0123456789ab = { reason = "the audit table is never reset" }
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from replayproxy.detect.finding import Kind
from replayproxy.detect.silence import Silence, names_a_place
from replayproxy.errors import WrongUsage

_ID = re.compile(rf"(?:{'|'.join(Kind)})-[0-9a-f]{{10,}}\Z")
_FORMS = '"KIND METHOD /TEMPLATE", or the id or fingerprint of a finding (check --json)'


def silences(table: Mapping[str, Any]) -> tuple[Silence, ...]:
    """The entries of the table. Raises WrongUsage: each needs a reason, and a name that a finding can have."""
    return tuple(_entry(what, given) for what, given in table.items())


def _entry(what: str, given: Any) -> Silence:
    where = f"[silence] {what!r}"
    if not _ID.match(what) and not names_a_place(what):
        raise WrongUsage(f"{where} can name no finding", hint=_FORMS)
    if not isinstance(given, Mapping):
        raise WrongUsage(f"{where} is no table", hint='{ reason = "..", until = 2027-03-01 }')
    if unknown := sorted(set(given) - {"reason", "until"}):
        raise WrongUsage(f"{where}: unknown key {unknown[0]!r}", hint="reason and until")
    reason = given.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        raise WrongUsage(f"{where} gives no reason", hint='reason = "why this is a false alarm"')
    return Silence(what=what, reason=reason.strip(), until=last_day(given.get("until"), where))


def last_day(given: Any, where: str) -> date | None:
    """A day as TOML or JSON hold it. Raises WrongUsage."""
    if given is None:
        return None
    if isinstance(given, datetime):
        return given.date()
    if isinstance(given, date):
        return given
    try:
        return date.fromisoformat(given)
    except (TypeError, ValueError):
        raise WrongUsage(f"{where}: until is {given!r}", hint="a day, such as 2027-03-01") from None
