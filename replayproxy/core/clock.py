"""Whether two instants are the clock's doing: the same moment of each run, seen from the run's own exchanges.

An exchange ran from `start` to `end` of wall time. A value that the environment took from its clock while answering
has an offset to that interval (0, or an expiry's hour, or a time zone); the two runs explain each other when one
offset fits both. A value that was stored before belongs to an earlier pair of exchanges. A clock that stands still,
drifts, or was taken from the other run fits neither, and stays a difference.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal

from replayproxy.core.renaming import snake
from replayproxy.core.times import DAY, SECOND, Instant
from replayproxy.core.values import Exchange

SLACK = SECOND // 20
"""How far an instant may lie outside its exchange, beyond what its text leaves open."""

BEFORE = 60 * SECOND
"""A reset writes its own time into the data: instants up to this long before an episode began fit each other."""

_LOOK_BACK = 16  # intervals of side-by-side lanes overlap: the one that fits is among the last few that had begun
_OFFSETS = 8

type Span = tuple[int, int]


def span_of(exchange: Exchange) -> Span:
    """The wall time in which the exchange ran."""
    times = exchange.times
    ended = times.head
    for instant in (times.up_end, times.first, times.c_out):
        if instant is not None and instant > ended:
            ended = instant
    return times.wall, times.wall + ended - times.head


class Clock:
    """The time lines of two runs, exchange by exchange: `spans[i]` are the intervals of the i-th pair."""

    def __init__(self, spans: Sequence[tuple[Span, Span]]) -> None:
        self._spans = sorted(spans)
        self._starts = [a[0] for a, _ in self._spans]
        self._offsets: list[int] = [0]
        self._known: set[tuple[int, int]] = set()
        self._began: Span | None = None
        if self._spans:
            self._began = (self._starts[0], min(b[0] for _, b in self._spans))

    def explains(self, x: Instant, y: Instant, a: Span, b: Span) -> bool:
        """Whether `x`, seen in A at `a`, and `y`, seen in B at `b`, are one moment."""
        if x.form.rstrip(".") != y.form.rstrip("."):  # 3 and 3.5 seconds are one form
            return False
        if x.grain == DAY:
            return _day_fits(x, y, a, b)
        if (x.at, y.at) in self._known:
            return True
        if not (self._now(x, y, a, b) or self._stored(x, y) or self._before(x, y)):
            return False
        self._known.add((x.at, y.at))
        return True

    def _now(self, x: Instant, y: Instant, a: Span, b: Span) -> bool:
        if not _one_offset(x, y, a, b):
            return False
        offset = x.at - a[1]
        if len(self._offsets) < _OFFSETS and all(abs(offset - known) > 2 * SECOND for known in self._offsets):
            self._offsets.append(offset)
        return True

    def _stored(self, x: Instant, y: Instant) -> bool:
        """Some earlier pair of exchanges, under an offset that this episode has shown, minted both."""
        for offset in self._offsets:
            x_from, x_to = x.at - offset - SLACK, x.at - offset + x.grain + SLACK
            y_from, y_to = y.at - offset - SLACK, y.at - offset + y.grain + SLACK
            last = bisect_right(self._starts, x_to)
            for a, b in self._spans[max(0, last - _LOOK_BACK) : last]:
                if x_from <= a[1] and b[0] <= y_to and y_from <= b[1]:  # a[0] <= x_to: so `last` was found
                    return True
        return False

    def _before(self, x: Instant, y: Instant) -> bool:
        if self._began is None:
            return False
        return all(
            began - BEFORE <= value.at <= began + SLACK for value, began in zip((x, y), self._began, strict=True)
        )


def _one_offset(x: Instant, y: Instant, a: Span, b: Span) -> bool:
    """Whether one constant c exists with x = t + c for a t in `a`, and y = u + c for a u in `b`."""
    low_a, high_a = x.at - a[1] - SLACK, x.at + x.grain - a[0] + SLACK
    low_b, high_b = y.at - b[1], y.at + y.grain - b[0]
    return low_a <= high_b and low_b <= high_a


def _day_fits(x: Instant, y: Instant, a: Span, b: Span) -> bool:
    """A date keeps its distance in whole days from the day of its exchange; hours say nothing about a date."""
    days_a = {x.at // DAY - edge // DAY for edge in a}
    days_b = {y.at // DAY - edge // DAY for edge in b}
    return bool(days_a & days_b)


_ELAPSED = (
    "elapsed", "took", "latency", "response_time", "processing_time", "query_time", "execution_time", "duration_ms",
)  # fmt: skip
_UNITS = (
    ("_ns", 1), ("_us", 10**3), ("_ms", 10**6), ("_millis", 10**6), ("_s", SECOND), ("_sec", SECOND),
    ("_seconds", SECOND),
)  # fmt: skip


def is_elapsed(member: str, value: int | Decimal, span: Span) -> bool:
    """Whether a number is how long its own exchange took: named so, and not longer than was measured outside."""
    name = snake(member)
    if not any(name == word or name.startswith(word + "_") or name.endswith("_" + word) for word in _ELAPSED):
        return False
    unit = next((size for suffix, size in _UNITS if name.endswith(suffix)), 10**6 if isinstance(value, int) else SECOND)
    return 0 <= value * unit <= span[1] - span[0] + SLACK // 10
