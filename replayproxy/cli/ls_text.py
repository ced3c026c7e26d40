"""The tables of `ls` for people: the runs, the episodes of one, and its sums by a field."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from replayproxy.cli.common import columns, count, safe
from replayproxy.cli.moments import ago, duration, moment
from replayproxy.core.values import Episode
from replayproxy.session.listing import EpisodeLine, Listing, RunLine
from replayproxy.session.listing_groups import Group

VERDICTS = ("clean", "suspect", "poisoned", "unknown")
WIDTH = 100
WHY_LEAST = 30
"""Columns of the reason, however wide the others are."""
MOST_VALUES = 3
"""Values of a member of meta that the head names one by one."""


def runs_text(lines: list[RunLine]) -> list[str]:
    """The table of runs; of several stores, with the one to name for each."""
    if not lines:
        return ["no runs        next: replayproxy record --env NAME=URL -- COMMAND"]
    several = len({line.store for line in lines}) > 1
    rows = [("RUN", "EPISODES", "EXCHANGES", "STATE", "VERDICTS", "OPENED", *(("STORE",) if several else ()))]
    for line in lines:
        total = sum(line.states.values())
        rows.append(
            (
                safe(line.run.name),
                f"{total:,}",
                f"{line.exchanges:,}",
                _states(line.states) + (f", {line.unattributed:,} unattributed" if line.unattributed else ""),
                _verdicts(line.verdicts) or "-",
                f"{moment(line.run.opened_wall)} ({ago(line.run.opened_wall)})",
                *((shlex.quote(safe(line.store)),) if several else ()),
            )
        )
    which = "--store STORE RUN" if several else "RUN"
    return [*columns(rows, right=(1, 2)), f"{count(len(lines), 'run')}        next: replayproxy ls {which}"]


def _states(states: Any) -> str:
    if not states:
        return "empty"
    return next(iter(states)) if len(states) == 1 else ", ".join(f"{n:,} {state}" for state, n in states.items())


def _verdicts(told: Mapping[str, int]) -> str:
    return "  ".join(f"{name} {told[name]:,}" for name in VERDICTS if told.get(name))


def run_text(found: Listing, address: str = "") -> list[str]:
    """The table of a run's episodes, its totals first. `address`: of the run, where its name is not enough."""
    alias = ("ALIAS",) if any(line.episode.aliases for line in found.listed) else ()
    head = ("EPISODE", "TASK", "SEED", "ATT", "EXCH", "WRITES", "REWARD", "TOOK", "STATE", "VERDICT", *alias)
    table: list[str] = []
    if found.listed:
        left = columns(
            [head, *(_row(line, bool(alias), found.checked) for line in found.listed)], right=(2, 3, 4, 5, 6, 7)
        )
        width = max(map(len, left))
        room = max(WHY_LEAST, WIDTH - width - 2)
        why = ["WHY", *(_short(line.why, room) for line in found.listed)]
        table = [f"{line:<{width}}  {reason}".rstrip() for line, reason in zip(left, why, strict=True)]
    return [*_head(found), *table, _last(found, address or found.run.name)]


def _head(found: Listing) -> list[str]:
    told = Counter(line.verdict for line in found.episodes)
    head = f"{safe(found.run.name)}   {count(len(found.episodes), 'episode')}   "
    head += "  ".join(f"{name} {told[name]:,}" for name in VERDICTS) if found.checked else "not checked yet"
    more = _circumstances(found.episodes)
    if found.unattributed:
        more.append(f"UNATTRIBUTED {count(found.unattributed, 'exchange')}")
    if annotated := sum(bool(line.episode.annotated) for line in found.episodes):
        more.append(f"annotated {annotated:,}")
    together = "   ".join([head, *more])
    return [together] if len(together) <= WIDTH else [head, "  " + "   ".join(more)]


def _circumstances(lines: Iterable[EpisodeLine]) -> list[str]:
    """What of the meta the episodes share, and between which numbers the rest lies: `env_commit a07d step 380-420`."""
    values: dict[str, dict[str, Any]] = {}
    for line in lines:
        for name, value in line.episode.meta.items():
            values.setdefault(name, {})[str(value)] = value
    told = []
    for name, of in sorted(values.items()):
        numbers = [value for value in of.values() if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(of) == 1:
            told.append(f"{safe(name)} {_short(next(iter(of)))}")
        elif len(numbers) == len(of):
            told.append(f"{safe(name)} {min(numbers)}-{max(numbers)}")
        elif len(of) <= MOST_VALUES:
            told.append(f"{safe(name)} {', '.join(map(_short, of))}")
    return told[:4]


def _short(text: str, width: int = 24) -> str:
    shown = safe(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def _row(line: EpisodeLine, aliased: bool, checked: bool) -> tuple[str, ...]:
    """`unknown` is a verdict: before a check there is none."""
    e = line.episode
    return (
        safe(e.name), safe(e.task or "-"), _number(e.seed), _number(e.attempt), f"{line.exchanges:,}",
        "-" if line.writes is None else f"{line.writes:,}", "-" if e.reward is None else f"{e.reward:.2f}",
        duration(line.took_ns), e.state.value, line.verdict if checked else "-", *(_alias(e),)[:aliased],
    )  # fmt: skip


def _alias(episode: Episode) -> str:
    """The first of an episode's ids, and how many more there are."""
    if not episode.aliases:
        return "-"
    more = len(episode.aliases) - 1
    return _short(episode.aliases[0][1]) + (f" +{more}" if more else "")


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _last(found: Listing, address: str) -> str:
    total = count(len(found.episodes), "episode")
    shown = total if found.shown is None else f"{len(found.shown):,} of {total}"
    when = "" if found.checked_wall is None else f", checked {moment(found.checked_wall)[:-3]}"
    when += f" (detectors {found.detectors})" if when and found.detectors is not None else ""
    following = f"replayproxy show {safe(address)}/EPISODE" if found.checked else f"replayproxy check {safe(address)}"
    return f"{shown}{when}   next: {following}"


def groups_text(found: Listing, groups: Sequence[Group], by: str, address: str = "") -> list[str]:
    """The table of sums by a field. SHARE: of the poisoned, with its interval; UNPOISONED: the reward without them."""
    head = (
        by.upper(),
        "EPISODES",
        *(name.upper() for name in VERDICTS),
        "POISONED %",
        "95 %",
        "REWARD",
        "WITHOUT",
    )
    rows: list[tuple[str, ...]] = [head]
    for group in groups:
        low, high = group.interval
        rows.append((
            "-" if group.value is None else _short(str(group.value), 40), f"{group.episodes:,}",
            *(f"{group.verdicts[name]:,}" if group.verdicts[name] else "-" for name in VERDICTS),
            f"{group.poisoned * 100:.1f}", f"{low * 100:.1f}-{high * 100:.1f}", _mean(group.reward),
            _mean(group.clean_reward),
        ))  # fmt: skip
    return [
        *_head(found), *(columns(rows, right=range(1, len(head))) if groups else []),
        _last(found, address or found.run.name),
    ]  # fmt: skip


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
