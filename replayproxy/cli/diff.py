"""`replayproxy diff A B`: what differs between two episodes, or two runs, and what explains the rest."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from replayproxy.cli.common import config_option, echo_json, json_option, open_reader, safe, stores_option
from replayproxy.cli.difftext import text
from replayproxy.cli.hints import runnable
from replayproxy.core.rules import parse_rules
from replayproxy.session.config import discover
from replayproxy.session.diff import Progress, diff


@click.command(short_help="Compare two episodes, or two runs.")
@click.argument("a")
@click.argument("b")
@click.option("-v", "--verbose", is_flag=True, help="Every root in full, and examples of what was explained.")
@config_option
@stores_option
@json_option
def command(a: str, b: str, verbose: bool, config: Path | None, stores: tuple[Path, ...], as_json: bool) -> int:
    """Compare two episodes (RUN/EPISODE), or the episodes of two runs, paired by task, seed and attempt, else by name.

    Differences that nothing explains are shown as roots, with what follows from them folded under them. Clocks, fresh
    ids, counters that name things, validators, floating point noise, the environment's own address and the rules of
    the config explain a difference; what was explained is counted, and nothing else is left out.

    Exit code: 0 same, 1 different, 3 when something cannot be judged.
    """
    found = discover(config, Path.cwd(), os.environ)
    rules = parse_rules(found.rules)
    if found.path is not None:
        click.echo(f"config   {safe(str(found.path))}", err=True)
    today = datetime.fromtimestamp(time.time(), tz=UTC).date()
    with open_reader(stores) as opened:
        result = diff(opened, a, b, rules=rules, today=today, progress=_progress())
    if as_json:
        echo_json(result.to_json())
    else:
        *lines, last = text(result, verbose)
        click.echo("\n".join([*lines, runnable(last, stores)]))
    return result.exit


def _progress() -> Progress | None:
    """Tells on a terminal how far a comparison of runs has come."""
    if not sys.stderr.isatty():
        return None

    def tell(number: int, total: int) -> None:
        if total > 1:
            end = "\r\x1b[K" if number == total else ""
            click.echo(f"\rcomparing pair {number} of {total}{end}", err=True, nl=False)

    return tell
