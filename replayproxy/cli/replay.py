"""`replayproxy replay`: the recording answers your agent."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replayproxy.cli.common import config_option, echo_json, json_option, open_reader, safe, settle, stores_option
from replayproxy.cli.hints import runnable
from replayproxy.cli.main import _report, _tell, interrupted
from replayproxy.cli.replay_text import PAST, miss_lines, receipt_lines, serving_lines
from replayproxy.core.misses import Document
from replayproxy.errors import Exit, Problem
from replayproxy.session import secrecy
from replayproxy.session.child import NotStarted
from replayproxy.session.config import Config, discover
from replayproxy.session.files import replaced

if TYPE_CHECKING:
    from replayproxy.serve.stage import Stage
    from replayproxy.session.replay import Replayed
    from replayproxy.session.replay_options import ReplayOptions


class _Told:
    """Tells a person on stderr what happens while it happens."""

    def __init__(self, options: ReplayOptions, as_json: bool) -> None:
        self._options, self._as_json = options, as_json

    def serving(self, stage: Stage, urls: dict[str, str], control: str) -> None:
        sole = stage.sole
        address = f"{stage.run.name}/{sole.name}" if sole else stage.run.name
        _say(serving_lines(address, sole.seal.exchanges if sole and sole.seal else None, urls, control))
        _say([f"  {line}" for line in secrecy.holding(stage.run)])
        if self._options.goes_past(stage.run):
            _say([f"  {PAST}"])

    def miss(self, document: Document) -> None:
        _say(miss_lines(document))

    def interrupted(self) -> None:
        _summarise(self._options, interrupted(self._as_json), "interrupted")


def _say(lines: list[str]) -> None:
    for line in lines:
        click.echo(safe(line), err=True)


@click.command(
    short_help="Let the recording answer your agent.",
    context_settings={"allow_interspersed_args": True, "ignore_unknown_options": False},
)
@click.argument("address")
@click.option("--pace", metavar="PACE", help="instant, recorded, or a factor: 2x is twice as fast. Default: instant.")
@click.option(
    "--order", metavar="ORDER", help="lane: the n-th of its request in its lane. strict: the next of its lane."
)
@click.option("--on-miss", metavar="WHAT", help="answer: a 470. stop: also end COMMAND at the first. Default: answer.")
@click.option("--env", multiple=True, metavar="NAME,..", help="NAME[,listen=[HOST:]PORT][,as=VAR] of the recording.")
@click.option("--listen", metavar="HOST", help="Where listeners without an address of their own listen.")
@click.option("--forward", metavar="[HOST:]PORT", help="Also an HTTP(S) forward proxy. Port 0: a free one.")
@click.option("--forward-auth", is_flag=True, help="Who sends no proxy credentials gets a 407 (Chromium wants one).")
@click.option("--pass", "pass_", multiple=True, metavar="HOST", help="Goes out all the same; see record --pass.")
@click.option("--control", metavar="[HOST:]PORT", help="Where the control API listens. Default: a free loopback port.")
@click.option("--advertise", multiple=True, metavar="HOST|NAME=URL", help="What URLs, ready file and variables name.")
@click.option("--ready-file", metavar="PATH", help="Written once everything accepts.")
@click.option("--summary", metavar="PATH", help="Written at the end, whatever it is.")
@config_option
@stores_option
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ..]")
def command(
    address: str,
    command: tuple[str, ...],
    stores: tuple[Path, ...],
    config: Path | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Answer an agent from a recording, with the environment off: nothing is sent to, looked up for, or connected to
    an environment.

    ADDRESS is RUN/EPISODE, which answers all traffic, or RUN, where each request is answered from its own episode.
    With COMMAND it is run and the replay ends with it; without, at SIGINT, SIGTERM or SIGHUP. Exit code 0:
    reproduced; 1: not; 3: nothing was asked for, or it cannot be known.
    """
    # aiohttp takes long to import, and `--help` need not pay for it.
    from replayproxy.session.replay_options import parse

    found = discover(config, Path.cwd(), os.environ)
    flags["pass"] = flags.pop("pass_")
    options = parse(flags, found, environ=os.environ)
    try:
        replayed, archive = _run(address, stores or _stores(found), options, command, as_json)
    except Problem as problem:
        _summarise(options, int(problem.exit), str(problem))
        raise
    except NotStarted as problem:
        _summarise(options, int(problem.code), str(problem))
        return _tell(str(problem), "command not started", problem.code, as_json)
    if options.summary is not None:
        replaced(options.summary, json.dumps(replayed.summary()).encode())
    *lines, last = receipt_lines(replayed.receipt, replayed.exit)
    _say([*lines, runnable(last, stores, {replayed.receipt["run"]: archive})])
    for fault in replayed.faults[:1]:
        click.echo(f"replayproxy: a fault of replayproxy or its store, report {_report(fault)}", err=True)
    if as_json:
        echo_json(replayed.receipt)
    return replayed.exit


def _stores(found: Config) -> tuple[Path, ...]:
    """The file's store; the variable is stronger."""
    return () if os.environ.get("REPLAYPROXY_STORE") else tuple(Path(one) for one in found.values("store", ()))


def _run(
    address: str, stores: tuple[Path, ...], options: ReplayOptions, command: tuple[str, ...], as_json: bool
) -> tuple[Replayed, str]:
    """And the archive that it was named in, if it was."""
    from replayproxy.session.closed import Guard
    from replayproxy.session.replay import replay

    settle()
    with open_reader(stores) as opened:
        one = opened.find(address)
        replayed = asyncio.run(
            replay(
                one.reader,
                one.resolved,
                options,
                command,
                tell=_Told(options, as_json),
                guard=Guard(),
                on_loaded=gc.freeze,  # to look for cycles in a thousand episodes took 200 ms, with nobody answered
                stdout_to_stderr=as_json,
            )
        )
        return replayed, one.archive


def _summarise(options: ReplayOptions, code: Exit | int, error: str) -> None:

    if options.summary is not None:
        document = {"command_exit": None, "exit": int(code), "receipt": None, "error": error}
        replaced(options.summary, json.dumps(document).encode())
