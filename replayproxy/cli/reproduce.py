"""`replayproxy reproduce`: a finding is shown again on a live environment, k of n times, or is not."""

from __future__ import annotations

import os
from pathlib import Path

import click

from replayproxy.cli.common import config_option, echo_json, json_option, one_store, safe, store_option
from replayproxy.cli.hints import runnable
from replayproxy.cli.redrive import count, today
from replayproxy.cli.reproduce_text import text
from replayproxy.errors import WrongUsage
from replayproxy.serve.sending import parse_pace
from replayproxy.session.config import discover
from replayproxy.session.redrive import Ask
from replayproxy.session.redrive_targets import Words
from replayproxy.session.reproduce import run_reproduce
from replayproxy.session.wiring import seconds
from replayproxy.storage import open_store


@click.command(short_help="Show a finding again on a live environment.")
@click.argument("finding", metavar="FINDING")
@click.option("--env", "env", multiple=True, metavar="NAME=URL", help="Where an environment of the episodes is now.")
@click.option("--snapshot", "snapshot", multiple=True, metavar="NAME=SPEC", help="Reads, and restores, its state.")
@click.option("--reset", "reset", multiple=True, metavar='NAME="METHOD URL [BODY]"',
              help="Its reset, which is sent between two episodes.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=None, metavar="N", help="N times each way (5).")
@click.option("--disposable", multiple=True, metavar="NAME",
              help="An environment that is not on this machine and may be overwritten.")  # fmt: skip
@click.option("--credential", multiple=True, metavar="NAME=VALUE",
              help="For a token of the recording: NAME is its header, cookie, parameter or member.")  # fmt: skip
@click.option("--pace", default=None, metavar="instant|recorded|2x", help="How long the agent's pauses are.")
@click.option("--answer-limit", default="60s", metavar="TIME",
              help="How long an answer may take beyond twice the recorded time.")  # fmt: skip
@store_option
@config_option
@json_option
def command(
    finding: str, env: tuple[str, ...], snapshot: tuple[str, ...], reset: tuple[str, ...], repeat: int | None,
    disposable: tuple[str, ...], credential: tuple[str, ...], pace: str | None, answer_limit: str,
    stores: tuple[Path, ...], config: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Show FINDING (F3 of the last check, or its id) again on a live environment, k of n times.

    A bleed or a dirty reset: the victim alone, then after the polluter, then after the smallest part of it that is
    enough. A stale read or nondeterminism: the episode again from its recorded start, up to the read. What came out is
    kept and shown with the finding; once it was shown again, the next check takes it for confirmed.

    Exit code 1: shown again; 0: not shown again; 3: it cannot be judged (no start known, restore not faithful). What
    is overwritten is kept before, as by redrive.
    """
    if finding.endswith(".replay") or ".replay/" in finding:
        file = finding.partition(".replay")[0] + ".replay"
        raise WrongUsage(
            f"{finding}: an archive is sent nowhere, and what comes out is kept in a store",
            hint=f"replayproxy import {file}, then replayproxy reproduce ID (replayproxy show {file} names it)",
        )
    found = discover(config, Path.cwd(), os.environ)
    if found.path is not None:
        _say(f"config {found.path}")
    ask = Ask(
        addresses=(),
        words=Words(env=env, snapshot=snapshot, reset=reset, disposable=found.values("disposable", disposable),
                    credential=credential, config=found),
        repeat=count(found.value("repeat", repeat, 5)),
        pace=parse_pace(str(found.value("pace", pace, "instant"))).speed or None,
        limit=seconds(answer_limit, "--answer-limit"),
        today=today(),
    )  # fmt: skip
    with open_store(one_store(stores)) as store:
        result = run_reproduce(store, finding, ask, _say)
    if as_json:
        echo_json(result.to_json())
    else:
        for line in text(finding, result):
            click.echo(runnable(line, stores) if line.startswith("  next") else line)
    return result.exit


def _say(line: str) -> None:
    click.echo(f"replayproxy: {safe(line)}", err=True)
