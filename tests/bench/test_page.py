"""The page of figures: nothing on it that was not measured, and a target missed is called missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.bench.page import ROWS, write
from tests.bench.rounds import median, ratio

MACHINE = {
    "group": "machine", "name": "machine", "cpu": "a core", "cores": 2, "python": "3", "mitmproxy": "12",
    "aiohttp": "3", "lmdb": "3", "counting_loop_s": 0.5,
}  # fmt: skip


def row(name: str, number: int, rate: float, group: str = "record small") -> dict[str, Any]:
    return {"group": group, "name": name, "round": number, "rate": rate}


def test_a_ratio_is_taken_round_by_round() -> None:
    rows = [
        row("a", 1, 30),
        row("b", 1, 10),
        row("a", 2, 10),
        row("b", 2, 10),
        row("a", 3, 20),
        row("b", 3, 10),
        row("a", 4, 9),
    ]
    found = ratio(rows, "record small", "a", "b", "rate")
    assert found is not None
    assert (found.median, found.low, found.high, found.rounds) == (2, 1, 3, 3)
    assert median(rows, "record small", "a", "rate") == 15
    assert ratio(rows, "record small", "a", "c", "rate") is None


def test_the_page_says_met_missed_and_not_measured(tmp_path: Path) -> None:
    rows = [MACHINE, row("replayproxy", 1, 200), row("mitmdump -q", 1, 100), row("mitmdump -w", 1, 150)]
    rows.append({"group": "replay", "name": "WireMock", "absent": "java is not there"})
    write(rows, tmp_path)
    page = (tmp_path / "performance.md").read_text()
    assert "| recording small JSON: throughput over `mitmdump -q` | at least 1.5 | 2.00 [2.00, 2.00] | met |" in page
    assert "| the same over `mitmdump -w` | at least 2.4 | 1.33 [1.33, 1.33] | MISSED |" in page
    assert "| replay over talkback | at least 1 | not measured |  |" in page
    assert "java is not there" in page
    assert "Missed, and why:" in page
    assert "- the same over `mitmdump -w`: it is about what the bare proxy carries" in page
    assert "- recording small JSON" not in page, "it is met"
    assert len((tmp_path / ROWS).read_text().splitlines()) == len(rows)
    plot = ElementTree.parse(tmp_path / "performance.svg")
    assert "200" in {text.text for text in plot.iter("{http://www.w3.org/2000/svg}text")}
