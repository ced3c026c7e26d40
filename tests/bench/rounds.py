"""Paired measuring: the programs take turns in one sitting, so that what the machine does meets them all."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.contenders import Contender, Running
from tests.bench.load import Load
from tests.bench.machine import cpu_seconds

type Row = dict[str, Any]
"""One measurement: `group`, `name`, `round` and figures. What is printed and kept as it was seen."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How one program's figure stands to another's, round by round. `low` and `high`: the extremes of the rounds."""

    median: float
    low: float
    high: float
    rounds: int


def turns(
    group: str, programs: Mapping[str, tuple[Contender, str]], load: Callable[[str, Running], Load], folder: Path,
    rounds: int,
) -> Iterator[Row]:  # fmt: skip
    """Starts all programs, then loads one after another, `rounds` times. The first turn of each only warms it up.

    A program whose tools are not there is told as a row with `absent`.
    """
    with ExitStack() as open_:
        running: dict[str, Running] = {}
        for name, (contender, given) in programs.items():
            home = folder / f"{group}-{name}".replace(" ", "-")
            home.mkdir(parents=True, exist_ok=True)
            try:
                running[name] = open_.enter_context(contender(home, given))
            except LookupError as missing:
                yield {"group": group, "name": name, "absent": str(missing)}
        for number in range(rounds + 1):
            for name, one in running.items():
                used = cpu_seconds(one.pid)
                seen = load(name, one)
                cpu = (cpu_seconds(one.pid) - used) / max(1, seen.requests) * 1000
                if number:
                    yield {
                        "group": group,
                        "name": name,
                        "round": number,
                        "cpu_s_per_1000": round(cpu, 4),
                        **seen.to_json(),
                    }


def ratio(rows: list[Row], group: str, ours: str, other: str, figure: str) -> Ratio | None:
    """Of the rounds in which both were measured. None: there is none."""
    by_round: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["group"] == group and row["name"] in (ours, other) and figure in row:
            by_round.setdefault(row["round"], {})[row["name"]] = row[figure]
    found = [both[ours] / both[other] for both in by_round.values() if len(both) == 2 and both[other]]
    if not found:
        return None
    return Ratio(statistics.median(found), min(found), max(found), len(found))


def median(rows: list[Row], group: str, name: str, figure: str) -> float | None:
    found = [row[figure] for row in rows if row["group"] == group and row["name"] == name and figure in row]
    return statistics.median(found) if found else None
