"""`replayproxy check`: judges a recording and says with its exit code whether it may be trained on."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click

from replayproxy.cli.check_junit import junit_xml
from replayproxy.cli.check_md import markdown
from replayproxy.cli.check_text import NEXT, text
from replayproxy.cli.common import config_option, count, echo_json, json_option, open_reader, safe, share, stores_option
from replayproxy.cli.hints import runnable
from replayproxy.core.rules import parse_rules
from replayproxy.errors import WrongUsage, worst
from replayproxy.session.baseline import Baseline, old_baseline, read_baseline, renewed, write_baseline
from replayproxy.session.check import Checked, Progress, check, fail_on, required
from replayproxy.session.check_document import Demands, merged
from replayproxy.session.config import Config, discover
from replayproxy.session.files import replaceable, replaced
from replayproxy.session.silences import silences

PROPOSED = (NEXT, f"{'':8}replayproxy ")
"""How lines with proposed commands begin."""


@click.command(short_help="Judge a recording: findings, verdicts, failure rate.")
@click.argument("addresses", nargs=-1, required=True, metavar="ADDRESS..")
@click.option("--fail-on", "grades", default=None, metavar="GRADE,..|none",
              help="Grades that make it fail. Default: proven,confirmed.")  # fmt: skip
@click.option("--max-failure-rate", "budget", type=share, default=None, metavar="SHARE",
              help="Share of episodes that may be poisoned or lost. Default: 0.05.")  # fmt: skip
@click.option("--require", "kinds", default=None, metavar="KIND,..",
              help="Kinds that must have been looked for in every episode.")  # fmt: skip
@click.option("--reference", default=None, metavar="ADDRESS",
              help="The right start state: of a run, an episode or a snapshot.")  # fmt: skip
@click.option("--baseline", type=click.Path(path_type=Path), default=None, metavar="FILE",
              help="Faults that are known: told, but no failure.")  # fmt: skip
@click.option("--write-baseline", "renew", type=click.Path(path_type=Path), default=None, metavar="FILE",
              help="Write what was found as the baseline; reasons in FILE are kept.")  # fmt: skip
@click.option("--junit", type=click.Path(path_type=Path), default=None, metavar="PATH",
              help="Also as JUnit XML: one test case for each episode.")  # fmt: skip
@click.option("--md", type=click.Path(path_type=Path), default=None, metavar="PATH",
              help="Also as Markdown, for the summary of a CI job.")  # fmt: skip
@click.option("--groups", is_flag=True, help="List the groups that lose siblings to poisoned episodes.")
@stores_option
@config_option
@json_option
def command(
    addresses: tuple[str, ...], grades: str | None, budget: float | None, kinds: str | None, reference: str | None,
    baseline: Path | None, renew: Path | None, junit: Path | None, md: Path | None, groups: bool,
    stores: tuple[Path, ...], config: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Judge runs, or episodes of a run: stale reads, state bleed, dirty resets, nondeterminism, races, lost updates.

    ADDRESS is RUN or RUN/EPISODE; the other episodes of the run are evidence. Exit code 1: a finding of a failing
    grade, or a failure rate above the budget; 3: something could not be judged. What [silence] of the config or the
    baseline knows is told apart.
    """
    found = discover(config, Path.cwd(), os.environ)
    if found.path is not None:
        click.echo(f"replayproxy: config {safe(str(found.path))}", err=True)
    demands = Demands(
        fail_on=fail_on(str(found.value("fail-on", grades, "proven,confirmed"))),
        max_failure_rate=_share(found.value("max-failure-rate", budget, 0.05)),
        require=required(found.value("require", kinds)),
        reference=found.value("reference", reference),
    )
    known = _path(found, "baseline", baseline)
    for option, given in (("junit", junit), ("md", md), ("write-baseline", renew)):
        if (path := _path(found, option, given)) is not None:
            replaceable(path)
    old = old_baseline(_path(found, "write-baseline", renew))
    with open_reader(stores) as opened:
        parts = check(
            opened, addresses, demands, rules=parse_rules(found.rules), now=time.time_ns(), today=_today(),
            progress=_progress(), eventual={env: found.eventual(env) for env in found.env},
            claims={env: found.claims(env) for env in found.env},
            silences=silences(found.silence), baseline=read_baseline(known) if known else None,
        )  # fmt: skip
        named = [opened.find(address) for address in addresses]
    told = [part.to_json() for part in parts]
    unsaved = {part.judgement.run: part.saved for part in parts}
    _files(found, parts, told, old, renew, junit, md)
    if as_json:
        echo_json(merged(told))
        for run, why in unsaved.items():
            if why:
                click.echo(f"replayproxy: the check of {safe(run)} was not saved: {safe(why)}", err=True)
    else:
        archives = {one.resolved.run.name: one.archive for one in named}
        for line in text(told, unsaved, groups=groups):
            click.echo(runnable(line, stores, archives) if line.startswith(PROPOSED) else line)
    return worst(*(part.exit for part in parts))


def _path(found: Config, option: str, given: Path | None) -> Path | None:
    named = found.value(option, given)
    return None if named is None else Path(str(named))


def _files(
    found: Config, parts: Sequence[Checked], told: Sequence[Mapping[str, Any]], old: Baseline, renew: Path | None,
    junit: Path | None, md: Path | None,
) -> None:  # fmt: skip
    """What the caller wants on disk beside the report."""
    if (path := _path(found, "junit", junit)) is not None:
        replaced(path, junit_xml(told, parts[0].demands.fail_on))
    if (path := _path(found, "md", md)) is not None:
        replaced(path, markdown(told).encode())
    if (path := _path(found, "write-baseline", renew)) is not None:
        new = renewed(old, (f for part in parts for f in part.judgement.findings), _today().isoformat())
        write_baseline(path, new)
        gone = len(set(old) - set(new))
        left = f", {gone} no longer found" if gone else ""
        click.echo(f"replayproxy: wrote {count(len(new), 'known fault')} to {safe(str(path))}{left}", err=True)


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
