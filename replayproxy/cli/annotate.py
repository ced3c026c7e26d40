"""`replayproxy annotate`: what is known of rollouts afterwards, said of their episodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from replayproxy.cli.common import config_option, count, echo_json, json_option, open_reader, safe, share, stores_option
from replayproxy.cli.hints import runnable
from replayproxy.core.annotation import said, value_of
from replayproxy.errors import WrongUsage
from replayproxy.session.annotate import Annotated, annotate, settings
from replayproxy.session.config import discover
from replayproxy.session.rollouts import opened
from replayproxy.session.rollouts_join import Join, pairs
from replayproxy.session.rollouts_read import rollouts_of
from replayproxy.session.rollouts_shapes import choose

SHOWN = 10


@click.command(short_help="Say rewards and more of episodes, from a file of rollouts.")
@click.argument("run", metavar="RUN")
@click.argument("rollouts", metavar="FILE.jsonl", type=click.Path(path_type=Path))
@click.option("--on", "on", multiple=True, metavar="FIELD=FIELD",
              help="A field of the line, and the field of episodes that it equals (repeatable), as for "
                   "mask.")  # fmt: skip
@click.option("--set", "sets", multiple=True, metavar="MEMBER=FIELD",
              help="What is said of the episode, and the field of the line with its value (repeatable): "
                   "reward=reward.total, meta.step=step. Members: reward, outcome, task, seed, attempt, group, "
                   "meta.NAME. Default: reward=reward.")  # fmt: skip
@click.option("--max-unmatched", type=share, default=None, metavar="SHARE",
              help="More lines than this are not of one sealed episode: exit 3, nothing is written. "
                   "Default: 0.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Tell what would be changed, and change nothing.")
@stores_option
@config_option
@json_option
def command(
    run: str, rollouts: Path, on: tuple[str, ...], sets: tuple[str, ...], max_unmatched: float | None, dry_run: bool,
    stores: tuple[Path, ...], config: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Say of episodes what is known of them afterwards: rewards, outcomes, tasks, members of meta.

    The lines of FILE (JSON lines or Parquet) are joined to the sealed episodes of RUN. All is written or nothing. What
    the recording was told is kept beside it.
    """
    given = discover(config, Path.cwd(), os.environ)
    if given.path is not None:
        click.echo(f"replayproxy: config {safe(str(given.path))}", err=True)
    joined, wanted = pairs(given.values("on", on)), settings(sets)
    opened(rollouts).close()
    limit = given.value("max-unmatched", max_unmatched, 0.0)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit <= 1:
        raise WrongUsage(f"max-unmatched is {limit!r}", hint="a share from 0 to 1")
    with open_reader(stores) as looked:
        named = looked.find(run)
        if named.resolved.episode is not None or named.resolved.finding is not None:
            raise WrongUsage(f"{run} is no run", hint="annotate takes a run")
        episodes = named.reader.episodes(named.resolved.run)
        if not joined:
            chosen = choose((document for _, document in rollouts_of(rollouts)), episodes, by_reward=False)
            joined, wanted = chosen.on, settings(sets, chosen.shape.reward)
            told = f"joined by {chosen}: {rollouts} looks like {chosen.shape.name}"
            click.echo(f"replayproxy: {safe(told)}", err=True)
        done = annotate(
            named, Join(joined, episodes), wanted, rollouts, max_unmatched=limit, dry_run=dry_run, now=time.time_ns()
        )
    if as_json:
        echo_json(document(done))
    else:
        for line in text(done):
            click.echo(runnable(line, stores) if line.startswith("next ") else line)
    return done.exit


def document(done: Annotated) -> dict[str, Any]:
    """The document of `annotate`."""
    found = done.gathered
    return {
        "run": done.run, "rollouts": str(done.source), "on": [str(pair) for pair in done.join.on],
        "set": [str(one) for one in done.sets], "lines": found.lines, "matched": found.matched,
        "unmatched": found.unmatched, "ambiguous": found.ambiguous, "not_sealed": found.not_sealed,
        "max_unmatched": done.max_unmatched, "without": dict(found.without), "lacking": dict(found.lacking),
        "first_unmatched": found.first_unmatched, "conflicting": found.conflicting, "conflicts": found.conflicts,
        "members": dict(done.members), "episodes": len(found.values), "changed": len(done.changed),
        "dry_run": done.dry_run, "written": done.written, "why": done.why, "exit": done.exit,
    }  # fmt: skip


def text(done: Annotated) -> Iterator[str]:
    """The report for people."""
    found, run = done.gathered, safe(done.run)
    said_of = ", ".join(f"{safe(name)} of {number:,}" for name, number in done.members.items()) or "nothing"
    what = "NOTHING WRITTEN   " if done.why else "nothing written, for this is a dry run   " if done.dry_run else ""
    same = len(found.values) - len(done.changed)
    yield f"{run}: {what}{count(len(done.changed), 'episode')} changed, {same:,} said so already   {said_of}"
    yield from (f"because {safe(why)}" for why in done.why)
    yield (
        f"joined  {safe(str(done.join))}: {found.matched:,} of {count(found.lines, found.unit)},"
        f" {found.unmatched:,} of no episode, {found.ambiguous:,} of several, {found.not_sealed:,} of one not sealed"
        f" (limit {done.max_unmatched:.0%})"
    )
    if found.first_unmatched:
        lacking = "".join(f"; {number:,} have no {safe(name)}" for name, number in found.lacking.most_common())
        yield f"not of one  {found.unit}s {', '.join(f'{n:,}' for n in found.first_unmatched)}{lacking}"
    for one in found.conflicts:
        first, second = one["lines"]
        yield (
            f"conflict  {safe(one['episode'])} {safe(one['member'])}: {found.unit} {first:,} says"
            f" {safe(str(one['values'][0]))}, {found.unit} {second:,} {safe(str(one['values'][1]))}"
        )
    for before, after in done.changed[:SHOWN]:
        yield f"  {safe(after.name)}: {', '.join(_change(before, after, one.member) for one in done.sets)}"
    if len(done.changed) > SHOWN:
        yield f"  and {len(done.changed) - SHOWN:,} more"
    yield f"next    replayproxy ls {run}   replayproxy check {run}"


def _change(before: Any, after: Any, member: str) -> str:
    old, new = value_of(before, member), value_of(after, member)
    recorded = said(after, member)
    told = "" if recorded == old else f" (recorded: {_shown(recorded)})"
    return f"{safe(member)} {_shown(old)} -> {_shown(new)}{told}"


def _shown(value: Any) -> str:
    return "-" if value is None else safe(str(value))
