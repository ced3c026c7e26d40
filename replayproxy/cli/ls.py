"""`replayproxy ls`: the runs of a store, or the episodes of a run."""

from __future__ import annotations

from pathlib import Path

import click

from replayproxy.cli.common import echo_json, json_option, open_reader, stores_option
from replayproxy.cli.hints import runnable
from replayproxy.cli.ls_text import groups_text, run_text, runs_text
from replayproxy.core.values import Run
from replayproxy.errors import WrongUsage
from replayproxy.session.listing import Listing, run_line
from replayproxy.session.listing_groups import chosen, grouped
from replayproxy.session.look import Found, Stores
from replayproxy.storage import Reader


@click.command(short_help="List runs, or the episodes of a run.")
@click.argument("run", required=False)
@click.option("--where", default=None, metavar="FILTER",
              help='Only these, such as "verdict=poisoned reward<0.2 meta.step=400 why~stale".')  # fmt: skip
@click.option("--sort", default=None, metavar="FIELD", help="By a field; -FIELD: the greatest first.")
@click.option("--by", default=None, metavar="FIELD", help="Sums by task, instance, hour, meta.step or another field.")
@stores_option
@json_option
def command(
    run: str | None, where: str | None, sort: str | None, by: str | None, stores: tuple[Path, ...], as_json: bool
) -> int:
    """List the runs of the store; with RUN, the episodes of that run.

    A verdict is that of the last check of the run, `unknown` before there was one. FILTER is FIELD OP VALUE, several
    of which must all hold: = != < <= > >= and ~ (holds a text); commas are alternatives, `reward=` is not known.
    """
    with open_reader(stores) as opened:
        runs = list(opened.runs()) if run is None else _archived(opened, run)
        if run is None or runs is not None:
            if asked := next((name for name, text in (("where", where), ("sort", sort), ("by", by)) if text), None):
                raise WrongUsage(f"--{asked} is about episodes: name a run", hint=f"replayproxy ls RUN --{asked} ..")
            lines = [run_line(reader, one, opened.place(reader)) for reader, one in runs or ()]
            if as_json:
                echo_json({"runs": [line.to_json() for line in lines]})
            else:
                _print(runs_text(lines), stores)
            return 0
        one = _one(opened, run)
        found = chosen(one.reader, one.resolved.run, where=where, sort=sort, by=by)
        _tell(found, run if opened.archive(run) else "", by, stores, as_json=as_json)
    return 0


def _tell(found: Listing, address: str, by: str | None, stores: tuple[Path, ...], *, as_json: bool) -> None:
    groups = None if by is None else grouped(found.listed, by)
    if as_json:
        sums = {} if groups is None else {"by": by, "groups": [group.to_json() for group in groups]}
        echo_json(found.to_json() | sums)
    elif groups is not None:
        _print(groups_text(found, groups, by or "", address), stores)
    else:
        _print(run_text(found, address), stores)


def _print(lines: list[str], stores: tuple[Path, ...]) -> None:
    *shown, last = lines
    click.echo("\n".join([*shown, runnable(last, stores)]))


def _archived(opened: Stores, text: str) -> list[tuple[Reader, Run]] | None:
    """The runs of an archive that is named alone and does not hold exactly one; None for anything else."""
    inside = opened.archive(text)
    if inside is None or inside[1]:
        return None
    runs = [(inside[0], run) for run in inside[0].runs()]
    return None if len(runs) == 1 else runs


def _one(opened: Stores, run: str) -> Found:
    found = opened.find(run)
    if found.resolved.episode is not None or found.resolved.finding is not None:
        raise click.UsageError(f"ls takes a run; to look at {run}: replayproxy show {run}")
    return found
