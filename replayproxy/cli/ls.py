"""`replayproxy ls`: the runs of a store, or the episodes of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from replayproxy.cli.common import columns, count, echo_json, json_option, open_reader, safe, store_option
from replayproxy.cli.hints import runnable
from replayproxy.cli.moments import ago, duration, moment
from replayproxy.core.values import Episode, Run
from replayproxy.errors import WrongUsage
from replayproxy.session.listing import Listing, RunLine, listing, run_line
from replayproxy.session.look import Stores
from replayproxy.storage import Reader

VERDICTS = ("clean", "suspect", "poisoned", "unknown")


@click.command(short_help="List runs, or the episodes of a run.")
@click.argument("run", required=False)
@click.option("--where", hidden=True)
@click.option("--sort", hidden=True)
@click.option("--by", hidden=True)
@store_option
@json_option
def command(run: str | None, stores: tuple[Path, ...], as_json: bool, **later: str | None) -> int:
    """List the runs of the store; with RUN, the episodes of that run.

    A verdict is that of the last check of the run, `unknown` before there was one.
    """
    if asked := next((name for name, value in later.items() if value is not None), None):
        raise WrongUsage(f"--{asked} comes with a later version", hint="--json has everything")
    with open_reader(stores) as opened:
        runs = list(opened.runs()) if run is None else _archived(opened, run)
        if run is None or runs is not None:
            lines = [run_line(reader, one) for reader, one in runs or ()]
            if as_json:
                echo_json({"runs": [line.to_json() for line in lines]})
            else:
                *shown, last = runs_text(lines)
                click.echo("\n".join([*shown, runnable(last, stores)]))
            return 0
        found = _one(opened, run)
        if as_json:
            echo_json(found.to_json())
        else:
            *shown, last = run_text(found, run if opened.archive(run) else "")
            click.echo("\n".join([*shown, runnable(last, stores)]))
        return 0


def _archived(opened: Stores, text: str) -> list[tuple[Reader, Run]] | None:
    """The runs of an archive that is named alone and does not hold exactly one; None for anything else."""
    inside = opened.archive(text)
    if inside is None or inside[1]:
        return None
    runs = [(inside[0], run) for run in inside[0].runs()]
    return None if len(runs) == 1 else runs


def _one(opened: Stores, run: str) -> Listing:
    found = opened.find(run)
    if found.resolved.episode is not None or found.resolved.finding is not None:
        raise click.UsageError(f"ls takes a run; to look at {run}: replayproxy show {run}")
    return listing(found.reader, found.resolved.run)


def runs_text(lines: list[RunLine]) -> list[str]:
    """The table of runs."""
    if not lines:
        return ["no runs        next: replayproxy record --env NAME=URL -- COMMAND"]
    rows = [("RUN", "EPISODES", "EXCHANGES", "STATE", "VERDICTS", "OPENED")]
    for line in lines:
        total = sum(line.states.values())
        rows.append(
            (
                safe(line.run.name),
                f"{total:,}",
                f"{line.exchanges:,}",
                _states(line.states) + (f", {line.unattributed:,} unattributed" if line.unattributed else ""),
                "  ".join(f"{name} {line.verdicts[name]:,}" for name in VERDICTS if line.verdicts.get(name)) or "-",
                f"{moment(line.run.opened_wall)} ({ago(line.run.opened_wall)})",
            )
        )
    return [*columns(rows, right=(1, 2)), f"{count(len(lines), 'run')}        next: replayproxy ls RUN"]


def _states(states: Any) -> str:
    if not states:
        return "empty"
    return next(iter(states)) if len(states) == 1 else ", ".join(f"{n:,} {state}" for state, n in states.items())


def run_text(found: Listing, address: str = "") -> list[str]:
    """The table of a run's episodes, the totals first. `address`: of the run, where its name is not enough."""
    address = address or found.run.name
    told = Counter(line.verdict for line in found.episodes)
    head = f"{safe(found.run.name)}   {count(len(found.episodes), 'episode')}   "
    head += "  ".join(f"{name} {told[name]:,}" for name in VERDICTS)
    if found.unattributed:
        head += f"   UNATTRIBUTED {count(found.unattributed, 'exchange')}"
    aliased = any(line.episode.aliases for line in found.episodes)
    rows = [("EPISODE", "TASK", "SEED", "ATT", "EXCH", "REWARD", "TOOK", "STATE", "VERDICT", *_ALIAS[:aliased], "WHY")]
    for line in found.episodes:
        e = line.episode
        rows.append(
            (
                safe(e.name), safe(e.task or "-"), _number(e.seed), _number(e.attempt), f"{line.exchanges:,}",
                "-" if e.reward is None else f"{e.reward:.2f}", duration(line.took_ns), e.state.value,
                line.verdict, *(_alias(e),)[:aliased], safe(line.why),
            )
        )  # fmt: skip
    following = f"replayproxy show {safe(address)}/EPISODE" if found.checked else f"replayproxy check {safe(address)}"
    table = columns(rows, right=(2, 3, 4, 5, 6)) if found.episodes else []
    return [head, *table, f"{count(len(found.episodes), 'episode')}        next: {following}"]


_ALIAS = ("ALIAS",)


def _alias(episode: Episode) -> str:
    """The first of an episode's ids, and how many more there are."""
    if not episode.aliases:
        return "-"
    first, more = episode.aliases[0][1], len(episode.aliases) - 1
    shown = first if len(first) <= 24 else first[:23] + "…"
    return safe(shown) + (f" +{more}" if more else "")


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
