"""`replayproxy blame`: who last wrote this value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from replayproxy.cli.common import beside, columns, echo_json, json_option, open_reader, safe, stores_option
from replayproxy.cli.hints import runnable
from replayproxy.cli.moments import clock
from replayproxy.cli.shorten import cut, short
from replayproxy.cli.show_finding import asked_about
from replayproxy.detect.finding import plain
from replayproxy.errors import Exit, WrongUsage
from replayproxy.session.blame import Blamed, Step, blame
from replayproxy.session.look import Found

VERDICTS = {
    "written": "written by {by}", "perhaps": "perhaps written by {by}", "start": "the start state had it: {by}",
    "reset": "set up by the reset {by}", "unknown": "UNKNOWN: {why}",
}  # fmt: skip


@click.command(short_help="Who last wrote this value, across episodes.")
@click.argument("address")
@click.argument("pointer", required=False)
@stores_option
@json_option
def command(address: str, pointer: str | None, stores: tuple[Path, ...], as_json: bool) -> int:
    """Who last wrote what the answer of ADDRESS (RUN/EPISODE#SEQ) shows at POINTER (/items/3/id); or, for RUN/EPISODE,
    what its state held at the end at /TABLE/KEY/COLUMN. A finding alone means its last exchange and its pointer.

    Episodes of the same instance are followed back, by snapshots where there are any, else by what writes said. Exit
    code 0: an exchange, a reset or the start state is named; 3: unknown.
    """
    with open_reader(stores) as opened:
        found = opened.find(address)
        if found.resolved.finding is not None:
            found, pointer = _of_finding(opened, found, pointer)
        if pointer is None:
            raise WrongUsage("which value?", hint="blame RUN/EPISODE#SEQ POINTER, such as /items/3/id")
        told = blame(found, pointer)
    if as_json:
        echo_json(told.to_json())
    else:
        for line in blame_text(told):
            click.echo(
                runnable(line, stores, {found.resolved.run.name: found.archive}) if line.startswith("next ") else line
            )
    return int(Exit.UNJUDGED) if told.verdict == "unknown" else 0


def _of_finding(opened: Any, found: Found, pointer: str | None) -> tuple[Found, str | None]:
    asked = asked_about(found.resolved.finding or {})
    if asked is None:
        raise WrongUsage(f"{found.resolved.text} is about no value in an answer", hint="blame RUN/EPISODE#SEQ POINTER")
    return opened.find(found.address(asked[0])), pointer or asked[1]


WIDTH = 100


def blame_text(told: Blamed) -> Iterator[str]:
    """The verdict, then every write that was found, the newest first."""
    of = f"  ({safe(told.cell)})" if told.cell else ""
    yield VERDICTS[told.verdict].format(by=safe(told.by), why=safe(told.why))
    lead = f"  {safe(told.address)} {safe(told.pointer)}{of} is "
    yield lead + short(plain(told.value), max(24, WIDTH - len(lead)))
    rows = [_row(step, step.address == told.by and bool(step.matches)) for step in told.steps]
    left = [f"  {line}" for line in columns([row[:-1] for row in rows])] if rows else []
    yield from beside(left, [row[-1] for row in rows], WIDTH) if rows else ()
    if told.verdict == "perhaps" and told.why:
        yield f"  note  {safe(told.why)}"
    shown = told.by or next((step.address for step in told.steps if step.address), told.address)
    yield f"next  replayproxy show '{safe(shown)}'"


def _row(step: Step, chosen: bool) -> tuple[str, ...]:
    mark = "->" if chosen else "  "
    when = clock(step.wall) if step.wall else ""
    asked = cut(f"{safe(step.method)} {safe(step.target)}".strip(), 28) or step.what
    status = "" if step.status is None else str(step.status)
    left = {True: "this value", False: f"another: {safe(cut(step.value, 24))}", None: ""}[step.matches]
    return mark, safe(step.address) or "(nobody)", asked, status, when, left, safe(step.told)
