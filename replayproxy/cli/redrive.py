"""`replayproxy redrive`: the recorded requests go to a live environment whose start state is the recorded one."""

from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime
from pathlib import Path

import click

from replayproxy.cli.common import config_option, echo_json, json_option, one_store, safe, store_option
from replayproxy.cli.hints import runnable
from replayproxy.cli.redrive_text import text
from replayproxy.errors import WrongUsage
from replayproxy.serve.sending import parse_pace
from replayproxy.session.ablation import parse_knobs
from replayproxy.session.config import discover
from replayproxy.session.redrive import Ask, run_redrive
from replayproxy.session.redrive_report import document, exit_code
from replayproxy.session.redrive_targets import Words
from replayproxy.session.wiring import seconds
from replayproxy.storage import open_store


@click.command(short_help="Send the recorded requests to a live environment.")
@click.argument("addresses", nargs=-1, required=True, metavar="ADDRESS..")
@click.option("--env", "env", multiple=True, metavar="NAME=URL", help="Where an environment of the episode is now.")
@click.option("--snapshot", "snapshot", multiple=True, metavar="NAME=SPEC", help="Reads, and restores, its state.")
@click.option("--reset", "reset", multiple=True, metavar='NAME="METHOD URL [BODY]"',
              help="Restores its state, also where the snapshot could.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=None, metavar="N", help="N times, restored before each.")
@click.option("--ablate", default=None, metavar="clock,seed,lanes,pacing",
              help="What makes the repetitions differ: hold one fast after the other.")  # fmt: skip
@click.option("-x", "stop_first", is_flag=True, help="Stop at the first difference.")
@click.option("--save", default=None, metavar="RUN", help="Keep the live answers as a run of their own.")
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
    addresses: tuple[str, ...], env: tuple[str, ...], snapshot: tuple[str, ...], reset: tuple[str, ...],
    repeat: int | None, ablate: str | None, stop_first: bool, save: str | None, disposable: tuple[str, ...],
    pace: str | None, credential: tuple[str, ...], answer_limit: str, stores: tuple[Path, ...], config: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Send the recorded requests of episodes to a live environment, and compare answers and states.

    The recorded start state is restored first, by the snapshot's provider or by a reset, and read back: if it is
    not the recorded one, nothing is sent. What is overwritten is kept before, as snapshot before-restore.
    """
    found = discover(config, Path.cwd(), os.environ)
    if found.path is not None:
        _say(f"config {found.path}")
    ask = Ask(
        addresses=addresses,
        words=Words(env=env, snapshot=snapshot, reset=reset, disposable=found.values("disposable", disposable),
                    credential=credential, config=found),
        repeat=count(found.value("repeat", repeat, 1)),
        stop_first=stop_first,
        ablate=parse_knobs(found.value("ablate", ablate)),
        save=found.value("save", save),
        pace=parse_pace(str(found.value("pace", pace, "instant"))).speed or None,
        limit=seconds(answer_limit, "--answer-limit"),
        today=today(),
    )  # fmt: skip
    with open_store(one_store(stores)) as store:
        results = run_redrive(store, ask, _say)
    if as_json:
        echo_json(document(results))
    else:
        lines = text(results, ask)
        click.echo("\n".join([*lines[:-2], *(runnable(line, stores) for line in lines[-2:])]))
    return exit_code(results)


def _say(line: str) -> None:
    click.echo(f"replayproxy: {safe(line)}", err=True)


def count(value: object) -> int:
    """A number of repetitions. Raises WrongUsage."""
    if not isinstance(value, int) or value < 1:
        raise WrongUsage(f"repeat is {value!r}", hint="a whole number from 1 on")
    return value


def today() -> date:
    """The day that rules are measured by."""
    return datetime.fromtimestamp(time.time(), tz=UTC).date()
