"""Instants in texts and numbers: ISO 8601, HTTP dates, epoch seconds to nanoseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache

SECOND = 1_000_000_000
DAY = 86400 * SECOND
_EPOCH = date(1970, 1, 1).toordinal()
_NEAR = 10 * 366 * DAY

_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:([T ])(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(Z|[+-]\d\d:?\d\d)?)?\Z")
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(Z?)\Z")
_HTTP = re.compile(r"[A-Z][a-z]{2}, (\d\d)([ -])([A-Z][a-z]{2})[ -](\d{4}) (\d\d):(\d\d):(\d\d) GMT\Z")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment: `at` nanoseconds since the epoch (a local time is read as UTC), exact to `grain`, written in `form`."""

    at: int
    grain: int
    form: str


@lru_cache(maxsize=65536)
def parse_text(text: str) -> Instant | None:
    """The instant that a text is as a whole; None when it is none."""
    if match := _ISO.match(text):
        year, month, day, mark, hour, minute, second, fraction, zone = match.groups()
        if mark is None:
            return _instant(year, month, day, "0", "0", "0", 0, DAY, "date")
        form = f"iso{mark}{'' if zone is None else 'Z' if zone == 'Z' else '+'}"
        nanos = int((fraction or "0").ljust(9, "0"))
        grain = SECOND if fraction is None else 10 ** (9 - len(fraction))
        made = _instant(year, month, day, hour, minute, second or "0", nanos, grain if second else 60 * SECOND, form)
        return made and Instant(made.at - _zone(zone), made.grain, form)
    if match := _COMPACT.match(text):
        year, month, day, hour, minute, second, zone = match.groups()
        return _instant(year, month, day, hour, minute, second, 0, SECOND, f"compact{zone}")
    if match := _HTTP.match(text):
        day, dash, name, year, hour, minute, second = match.groups()
        month = str(_MONTHS.index(name) + 1) if name in _MONTHS else "0"
        return _instant(year, month, day, hour, minute, second, 0, SECOND, f"http{dash}")
    return None


def _instant(
    year: str, month: str, day: str, hour: str, minute: str, second: str, nanos: int, grain: int, form: str
) -> Instant | None:
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError:
        return None
    if int(hour) > 24 or int(minute) > 59 or int(second) > 60:
        return None
    return Instant(days * DAY + ((int(hour) * 60 + int(minute)) * 60 + int(second)) * SECOND + nanos, grain, form)


def _zone(zone: str | None) -> int:
    if zone in (None, "Z"):
        return 0
    assert zone is not None
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (minutes if zone[0] == "+" else -minutes) * 60 * SECOND


_UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))


def parse_number(value: int | Decimal | str, near: int) -> Instant | None:
    """The instant that a number is, when it lies within ten years of `near` as epoch s, ms, us or ns."""
    if isinstance(value, bool):
        return None
    try:
        number = Decimal(value)
    except ArithmeticError:
        return None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or number < 10**8 or number > 10**20 or exponent > 0:
        return None
    for name, unit in _UNITS:
        at = int(number * unit)
        if abs(at - near) <= _NEAR:
            grain = max(1, int(Decimal(unit).scaleb(exponent)))
            return Instant(at, grain, f"epoch-{name}{'.' if exponent else ''}")
    return None
