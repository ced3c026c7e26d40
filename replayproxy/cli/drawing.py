"""A small drawing of intervals: what came before what, and what overlapped. Order only, not to scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One interval. `begun` None: it is not known, and nothing is drawn; `done` None: it never ended."""

    label: str
    begun: int | None
    done: int | None


def draw(bars: Sequence[Bar], marker: int | None = None, width: int = WIDTH) -> list[str]:
    """One `[  == write |    ]` per interval. `marker`: an instant that is drawn through all of them as `|`."""
    known = [bar for bar in bars if bar.begun is not None]
    points = sorted({at for bar in known for at in (bar.begun, bar.done) if at is not None})
    if not points:
        return [f"[{'':{width}}]" for _ in bars]
    step = (width - 1) / max(1, len(points) - 1)
    column = {at: round(index * step) for index, at in enumerate(points)}
    through = None if marker is None else column.get(marker)
    return [f"[{_line(bar, column, through, width)}]" for bar in bars]


def _line(bar: Bar, column: dict[int, int], through: int | None, width: int) -> str:
    cells = [" "] * width
    if bar.begun is not None:
        first = column[bar.begun]
        last = width - 1 if bar.done is None else column[bar.done]
        cells[first : last + 1] = "=" * (last - first + 1)
        if bar.done is None:
            cells[-1] = ">"
        _label(cells, bar.label, first, last, through)
    if through is not None and cells[through] in " =":
        cells[through] = "|"
    return "".join(cells)


def _label(cells: list[str], label: str, first: int, last: int, through: int | None) -> None:
    """The label goes behind the interval or before it, wherever it fits whole and off the marker."""
    for text, at in ((f" {label}", last + 1), (f"{label} ", first - len(label) - 1)):
        taken = range(at, at + len(text))
        if (
            at >= 0
            and taken.stop <= len(cells)
            and (through is None or through not in taken or text[through - at] == " ")
        ):
            for index, char in zip(taken, text, strict=True):
                if char != " ":
                    cells[index] = char
            return
