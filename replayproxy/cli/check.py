"""`replayproxy check`: judges a recording and says with its exit code whether it may be trained on."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path

import click

from replayproxy.cli.check_text import text
from replayproxy.cli.common import config_option, echo_json, json_option, open_reader, safe, store_option
from replayproxy.cli.hints import runnable
from replayproxy.core.rules import parse_rules
from replayproxy.errors import WrongUsage, worst
from replayproxy.session.check import Progress, check, fail_on, required
from replayproxy.session.check_document import Demands, merged
from replayproxy.session.config import discover


@click.command(short_help="Judge a recording: findings, verdicts, failure rate.")
@click.argument("addresses", nargs=-1, required=True, metavar="ADDRESS..")
@click.option("--fail-on", "grades", default=None, metavar="GRADE,..|none",
              help="Grades that make it fail. Default: proven,confirmed.")  # fmt: skip
@click.option("--max-failure-rate", "budget", type=click.FloatRange(0, 1), default=None, metavar="SHARE",
              help="Share of episodes that may be poisoned or lost. Default: 0.05.")  # fmt: skip
@click.option("--require", "kinds", default=None, metavar="KIND,..",
              help="Kinds that must have been looked for in every episode.")  # fmt: skip
@click.option("--reference", default=None, metavar="ADDRESS",
              help="The right start state: of a run, an episode or a snapshot.")  # fmt: skip
@click.option("--baseline", hidden=True)
@click.option("--write-baseline", hidden=True)
@click.option("--junit", hidden=True)
@click.option("--md", hidden=True)
@store_option
@config_option
@json_option
def command(
    addresses: tuple[str, ...], grades: str | None, budget: float | None, kinds: str | None, reference: str | None,
    stores: tuple[Path, ...], config: Path | None, as_json: bool, **later: str | None,
) -> int:  # fmt: skip
    """Judge runs, or episodes of a run: stale reads, state bleed, dirty resets, nondeterminism.

    ADDRESS is RUN or RUN/EPISODE; the other episodes of the run are evidence. Exit code 1: a finding of a failing
    grade, or a failure rate above the budget; 3: something could not be judged.
    """
    if asked := next((name for name, value in later.items() if value is not None), None):
        raise WrongUsage(f"--{asked.replace('_', '-')} comes with a later version", hint="--json has everything")
    found = discover(config, Path.cwd(), os.environ)
    if found.path is not None:
        click.echo(f"replayproxy: config {safe(str(found.path))}", err=True)
    demands = Demands(
        fail_on=fail_on(str(found.value("fail-on", grades, "proven,confirmed"))),
        max_failure_rate=_share(found.value("max-failure-rate", budget, 0.05)),
        require=required(found.value("require", kinds)),
        reference=found.value("reference", reference),
    )
    with open_reader(stores) as opened:
        parts = check(
            opened, addresses, demands, rules=parse_rules(found.rules), now=time.time_ns(),
            today=_today(), progress=_progress(), eventual={env: found.eventual(env) for env in found.env},
        )  # fmt: skip
        named = [opened.find(address) for address in addresses]
    unsaved = {part.judgement.run: part.saved for part in parts}
    if as_json:
        echo_json(merged([part.to_json() for part in parts]))
        for run, why in unsaved.items():
            if why:
                click.echo(f"replayproxy: the check of {safe(run)} was not saved: {safe(why)}", err=True)
    else:
        archives = {one.resolved.run.name: one.archive for one in named}
        for line in text([part.to_json() for part in parts], unsaved):
            click.echo(runnable(line, stores, archives) if line.startswith("next ") else line)
    return worst(*(part.exit for part in parts))


def _today() -> date:
    return datetime.fromtimestamp(time.time(), tz=UTC).date()


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise WrongUsage(f"max-failure-rate is {value!r}", hint="a share from 0 to 1, such as 0.05")
    return float(value)


def _progress() -> Progress | None:
    """On a terminal, a line that counts the episodes read."""
    if not sys.stderr.isatty():
        return None

    def tell(done: int, of: int) -> None:
        end = "\r" if done < of else "\r\x1b[K"
        sys.stderr.write(f"\rjudging {done:,} of {of:,}{end}")
        sys.stderr.flush()

    return tell
