"""docs/performance.md, from the rows: each target, what was seen, and a plot. Nothing on it is typed in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.plot import bars
from tests.bench.rounds import Ratio, Row, median, ratio

ROWS = "performance-rows.jsonl"
PLOT = "performance.svg"


@dataclass(frozen=True, slots=True)
class Target:
    """`least` or `most`: what the figure is held against. `figure` gives None where nothing was measured. `cause`: what
    is known of why it is missed, where it is."""

    what: str
    figure: Callable[[list[Row]], Ratio | float | None]
    least: float | None = None
    most: float | None = None
    unit: str = ""
    cause: str = ""

    def met(self, figure: Ratio | float) -> bool:
        value = figure.median if isinstance(figure, Ratio) else figure
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def bound(self) -> str:
        return f"at least {self.least:g}{self.unit}" if self.least is not None else f"at most {self.most:g}{self.unit}"


def _rates(group: str, ours: str, other: str, figure: str = "rate") -> Callable[[list[Row]], Ratio | None]:
    return lambda rows: ratio(rows, group, ours, other, figure)


def _medians(group: str, ours: str, other: str, figure: str) -> Callable[[list[Row]], float | None]:
    """Of figures that were not taken in turns."""

    def of(rows: list[Row]) -> float | None:
        mine, theirs = median(rows, group, ours, figure), median(rows, group, other, figure)
        return mine / theirs if mine is not None and theirs else None

    return of


def _largest(group: str, word: str, figure: str) -> Callable[[list[Row]], float | None]:
    """The figure at the largest size of its kind."""

    def of(rows: list[Row]) -> float | None:
        names = sorted({row["name"] for row in rows if row["group"] == group and word in row["name"]}, key=_size)
        return median(rows, group, names[-1], figure) if names else None

    return of


def _grows(group: str, word: str, figure: str) -> Callable[[list[Row]], float | None]:
    """The figure at the largest size over that at the smallest."""

    def of(rows: list[Row]) -> float | None:
        names = sorted({row["name"] for row in rows if row["group"] == group and word in row["name"]}, key=_size)
        return _medians(group, names[-1], names[0], figure)(rows) if len(names) > 1 else None

    return of


def _size(name: str) -> int:
    return int(name.rpartition(" ")[2].replace(",", ""))


R, REPLAY = "replayproxy", "replay"
TARGETS = (
    Target("recording small JSON: throughput over `mitmdump -q`", _rates("record small", R, "mitmdump -q"), least=1.5),
    Target(
        "the same over `mitmdump -w`", _rates("record small", R, "mitmdump -w"), least=2.4,
        cause="it is about what the bare proxy carries, which records nothing (see *record small*)",
    ),
    Target(
        "CPU per request over the same bare proxy", _rates("record small", R, "bare", "cpu_s_per_1000"), most=1.2,
        cause="what is done for an exchange is spread over some forty steps, of which none stands out",
    ),
    Target("with snapshots over without, 1,000 rows", _rates("snapshots 1,000 rows", "with", "without"), least=0.7),
    Target("with snapshots over without, 10,000 rows", _rates("snapshots 10,000 rows", "with", "without"), least=0.4),
    Target(
        "p99 of another episode meanwhile, 10,000 rows",
        _rates("snapshots 10,000 rows", "with, other episode", "without, other episode", "p99_ms"), most=1.5,
        cause="the load keeps the recorder's one core busy: what a snapshot takes of it slows all episodes alike",
    ),
    Target("replay over `mitmdump --server-replay`", _rates(REPLAY, R, "mitmdump --server-replay"), least=25),
    Target("replay over a constant answer of aiohttp", _medians(REPLAY, R, "aiohttp constant", "rate"), least=0.8),
    Target(
        "replay over WireMock", _medians(REPLAY, R, "WireMock", "rate"), least=5,
        cause="it is warm and serves one stub; an answer of a replay costs what a constant answer of aiohttp costs",
    ),
    Target("replay over mountebank", _medians(REPLAY, R, "mountebank", "rate"), least=5),
    Target(
        "replay over talkback", _medians(REPLAY, R, "talkback", "rate"), least=1,
        cause="Node's server gives one answer faster than a Python one can",
    ),
    Target("memory of replay, largest recording over smallest", _grows("memory", "replay", "private_mib"), most=1.3),
    Target("memory of record, largest recording over smallest", _grows("memory", "record", "private_mib"), most=1.3),
    Target("store size over the flow file", _medians("size", "store", "flow file", "bytes_each"), most=1 / 8),
    Target("two workers over one", _rates("workers", "2", "1"), least=1.6),
    Target("diff of two runs: pairs a second", _largest("diff", "", "pairs_per_s"), least=10_000),
    Target("diff: time for ten times the work", _grows("diff", "", "seconds"), most=12),
    Target("diff: most memory", _largest("diff", "", "peak_mib"), most=400, unit=" MiB"),
    Target(
        "`check` of 100,000 exchanges", lambda rows: median(rows, "check", "100,000", "seconds"), most=60, unit=" s"
    ),
    Target("`check`: CPU for twice the work", _grows("check", "", "cpu_s"), most=2.3),
    Target("`check`: most memory", _largest("check", "", "peak_mib"), most=500, unit=" MiB"),
    Target("`ls` of the largest store", _largest("opening", "ls", "seconds"), most=0.3, unit=" s"),
    Target("`show` of one exchange of the largest store", _largest("opening", "show", "seconds"), most=0.3, unit=" s"),
    Target("`replayproxy --help`", lambda rows: median(rows, "starting", "--help", "seconds"), most=0.25, unit=" s"),
)  # fmt: skip


def write(rows: list[Row], folder: Path) -> None:
    (folder / ROWS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / PLOT).write_text(bars("Requests a second, small JSON", _for_the_plot(rows)))
    (folder / "performance.md").write_text("\n".join(_page(rows)) + "\n")


def _for_the_plot(rows: list[Row]) -> list[tuple[str, float]]:
    found = []
    for group in ("record small", REPLAY):
        for name in dict.fromkeys(row["name"] for row in rows if row["group"] == group):
            rate = median(rows, group, name, "rate")
            if rate is not None:
                found.append((f"{group.split()[0]}: {name}", rate))
    return found


def _page(rows: list[Row]) -> list[str]:
    machine = rows[0]
    return [
        "# Performance",
        "",
        "Made by `make bench` (some 20 minutes; `python -m tests.bench --help` measures a group alone). Programs take",
        "turns in one sitting and a figure is the median of the ratios of its rounds, with the extremes in brackets;",
        f"the raw rows are in [{ROWS}]({ROWS}). Program and load have a core each.",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, mitmproxy",
        f"{machine['mitmproxy']}, aiohttp {machine['aiohttp']}, lmdb {machine['lmdb']}.",
        f"Adding up five million squares took this Python {machine['counting_loop_s']} s.",
        "",
        "| what | target | measured |  |",
        "| --- | --- | --- | --- |",
        *(_line(target, target.figure(rows)) for target in TARGETS),
        "",
        *_missed(rows),
        f"![requests a second]({PLOT})",
        "",
        "## Figures",
        "",
        "Medians of the rounds.",
        "",
        *_figures(rows),
        "",
        "## What this does not show",
        "",
        "- Absolute figures of another machine: compare ratios.",
        "- That large answers are as cheap to record as small ones. They are not (*record large*, 64 KiB): every text",
        "  is searched for secrets before it is stored, which `--keep-secrets` leaves out.",
        "- Replay's first request of an episode reads it from the store and is left out of the ratios; what it",
        "  costs is the row *first request of an episode*.",
        "- The other programs serve one stub; ours and mitmdump look each answer up among all that was recorded.",
    ]


def _line(target: Target, figure: Ratio | float | None) -> str:
    if figure is None:
        return f"| {target.what} | {target.bound()} | not measured |  |"
    told = f"{figure.median:.2f} [{figure.low:.2f}, {figure.high:.2f}]" if isinstance(figure, Ratio) else _told(figure)
    return f"| {target.what} | {target.bound()} | {told}{target.unit} | {'met' if target.met(figure) else 'MISSED'} |"


def _missed(rows: list[Row]) -> list[str]:
    found = [(target, target.figure(rows)) for target in TARGETS]
    missed = [target for target, figure in found if figure is not None and not target.met(figure)]
    causes = [f"- {target.what}: {target.cause or 'the cause is not known'}." for target in missed]
    return ["Missed, and why:", "", *causes, ""] if causes else []


def _told(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


_COLUMNS = (
    "rate", "cpu_s_per_1000", "p50_ms", "p99_ms", "errors", "not_2xx", "seconds", "cpu_s", "peak_mib", "private_mib",
    "pairs_per_s", "ms_per_episode", "bytes_each",
)  # fmt: skip


def _figures(rows: list[Row]) -> list[str]:
    found: list[str] = []
    for group in dict.fromkeys(row["group"] for row in rows[1:]):
        names = list(dict.fromkeys(row["name"] for row in rows if row["group"] == group))
        columns = [c for c in _COLUMNS if any(c in row for row in rows if row["group"] == group)]
        found += ["", f"### {group}", "", *_table(rows, group, names, columns)]
    return found[1:]


def _table(rows: list[Row], group: str, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    lines = [f"| | rounds | {' | '.join(columns)} |", f"| --- | --- |{' --- |' * len(columns)}"]
    for name in names:
        mine = [row for row in rows if row["group"] == group and row["name"] == name]
        if "absent" in mine[0]:
            lines.append(f"| {name} | 0 | {mine[0]['absent']} |{' |' * (len(columns) - 1)}")
            continue
        cells = [median(rows, group, name, column) for column in columns]
        lines.append(f"| {name} | {len(mine)} | {' | '.join('' if c is None else f'{c:,.4g}' for c in cells)} |")
    return lines
