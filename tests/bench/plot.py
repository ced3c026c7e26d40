"""A bar chart as SVG, on a logarithmic scale: the programs lie two orders of magnitude apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

_WIDTH, _LEFT, _BAR = 720, 260, 22


def bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """One bar for each (name, value > 0). Text is selectable, and the colours hold on dark and on light pages."""
    height = 44 + len(values) * (_BAR + 8)
    top = max((value for _, value in values), default=1.0)
    scale = (_WIDTH - _LEFT - 90) / max(1.0, math.log10(top))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"',
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="22" font-weight="bold">{escape(title)} (logarithmic)</text>',
    ]
    for number, (name, value) in enumerate(values):
        y = 40 + number * (_BAR + 8)
        width = max(1.0, math.log10(max(value, 1.0)) * scale)
        colour = "#2b6cb0" if name.endswith("replayproxy") else "#a0aec0"
        lines += [
            f'<text x="{_LEFT - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>',
            f'<text x="{_LEFT + width + 6:.1f}" y="{y + 16}">{value:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"
