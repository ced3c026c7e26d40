"""`replayproxy record`: record what an agent says to its environments."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replayproxy.cli.common import config_option, echo_json, json_option, one_store, safe, settle, store_option
from replayproxy.errors import Exit, Problem
from replayproxy.session.config import Config, discover
from replayproxy.session.files import replaced
from replayproxy.session.record_options import ALPHABET, RecordOptions, parse, writable_path

if TYPE_CHECKING:
    from replayproxy.session.record import Recorded

CLEAR = "\r\x1b[K"


@click.command(
    short_help="Record what an agent says to its environments.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--env", multiple=True, metavar="NAME=URL", help="An environment; repeatable. NAME=dynamic: see the API.")
@click.option("--run", metavar="NAME", help="Name of the recording. Default: date, time and four letters.")
@click.option("--append", is_flag=True, help="Add to a run that exists.")
@click.option("--episode", metavar="NAME", help="Traffic that names no episode belongs to this one.")
@click.option("--meta", multiple=True, metavar="K=V", help="Kept with the run; repeatable.")
@click.option("--idle", metavar="TIME", help="An episode without traffic is sealed after this time. Default: 10m.")
@click.option("--undeclared", metavar="accept|refuse", help="What an id first seen in a request does.")
@click.option("--rules", multiple=True, metavar="NAME", help="A ready rule set that tells episodes apart; repeatable.")
@click.option("--snapshot", multiple=True, metavar="NAME=SPEC", help="State to be read; repeatable.")
@click.option("--snapshot-when", metavar="WORDS", help="start,write,end, a part of it, or never. Default: all three.")
@click.option("--snapshot-mode", metavar="MODE", help="hold[:LIMIT] or free. Default: hold:250ms.")
@click.option("--reset", multiple=True, metavar='NAME="METHOD URL [BODY]"', help="Kept as wiring; never sent here.")
@click.option("--url-style", metavar="path|port", help="How episodes opened by the API are told apart. Default: path.")
@click.option("--workers", type=int, metavar="N", help="Proxy processes behind the same addresses. Default: 1.")
@click.option("--listen", metavar="HOST", help="Where listeners without an address of their own listen.")
@click.option("--control", metavar="[HOST:]PORT", help="Where the control API listens. Default: a free loopback port.")
@click.option("--advertise", multiple=True, metavar="HOST|NAME=URL", help="What URLs, ready file and variables name.")
@click.option("--allow-upstream", multiple=True, metavar="HOST|CIDR", help="Upstreams that the API may name.")
@click.option("--upstream-connect", metavar="TIME", help="How long connecting may take. Default: 30s; 0s: no limit.")
@click.option("--upstream-timeout", metavar="TIME", help="How long until an answer has to begin. Default: no limit.")
@click.option("--upstream-idle", metavar="TIME", help="How long an answer may pause in its midst. Default: no limit.")
@click.option("--chaos", multiple=True, metavar="RULE", help="Inject faults, see docs/chaos.md; repeatable.")
@click.option("--chaos-seed", type=int, metavar="N", help="Which of the requests --chaos picks. Default: 0.")
@click.option("--forward", metavar="[HOST:]PORT", help="Also an HTTP(S) forward proxy. Port 0: a free one.")
@click.option("--forward-auth", is_flag=True, help="Who sends no proxy credentials gets a 407 (Chromium wants one).")
@click.option("--pass", "pass_", multiple=True, metavar="HOST", help="Forwarded unrecorded: HOST, *.HOST or HOST:PORT.")
@click.option("--judge", metavar="on|off", help="Judge each episode when it ends by the API. Default: on.")
@click.option("--fail-fast", is_flag=True, help="An episode that is poisoned already gets no further (status 471).")
@click.option("--probe", is_flag=True, help="Send a read that seems stale again, between two snapshots.")
@click.option("--when-full", metavar="hold|pass", help="What a store that cannot keep up costs. Default: hold.")
@click.option("--keep-secrets", is_flag=True, help="Store credentials as they are sent, to re-drive with them.")
@click.option("--ready-file", metavar="PATH", help="Written once everything accepts.")
@click.option("--summary", metavar="PATH", help="Written at the end, whatever it is.")
@click.option("--log-every", metavar="TIME", help="A line on stderr that often. Default: 60s; 0s: none.")
@config_option
@store_option
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ..]")
def command(
    command: tuple[str, ...], stores: tuple[Path, ...], config: Path | None, as_json: bool, **flags: Any
) -> int:
    """Record an agent's HTTP traffic with its environments, through one reverse listener for each, or through a
    forward proxy.

    With COMMAND it is run under recording and its exit code passed on; without, recording ends at SIGINT,
    SIGTERM or SIGHUP. COMMAND finds REPLAYPROXY_URL_<NAME>, REPLAYPROXY_CONTROL and REPLAYPROXY_RUN; {NAME} in it is
    the listener's URL.
    """
    found = discover(config, Path.cwd(), os.environ)
    summary = found.value("summary", flags.pop("summary"))
    summary = None if summary is None else writable_path(Path(summary), "--summary")
    try:
        options = _options(flags, found, stores, has_command=bool(command))
        recorded = _run(options, command, as_json)
    except Problem as problem:
        _summarise(summary, None, int(problem.exit), _nothing(flags), error=str(problem))
        raise
    if recorded is None:
        _summarise(summary, None, int(Exit.INTERRUPTED_TWICE), _nothing(flags), error="interrupted")
        raise click.Abort
    _summarise(summary, recorded.command_exit, recorded.exit, recorded.document)
    for line in recorded.lines:
        _say(line)
    if as_json:
        echo_json(recorded.document)
    return recorded.exit


def _options(flags: dict[str, Any], config: Config, stores: tuple[Path, ...], *, has_command: bool) -> RecordOptions:
    flags["pass"] = flags.pop("pass_")
    store = one_store(stores or tuple(Path(one) for one in _store_of(config)))
    pick = {"run": "".join(secrets.choice(ALPHABET) for _ in range(4)), "token": secrets.token_urlsafe(24)}
    return parse(
        flags, config, store=store, environ=os.environ, wall=time.time_ns(), pick=pick, has_command=has_command
    )


def _store_of(config: Config) -> tuple[str, ...]:
    """The file's store; the variable is stronger."""
    return () if os.environ.get("REPLAYPROXY_STORE") else config.values("store", ())


def _run(options: RecordOptions, command: tuple[str, ...], as_json: bool) -> Recorded | None:
    # mitmproxy takes over a second to import, which a refused call need not pay for.
    from replayproxy.session.record import Interrupted, record

    settle()
    # COMMAND's own output would be torn by a line that is kept up to date.
    progress = _progress if not command and sys.stderr.isatty() else None
    try:
        return asyncio.run(record(options, command, say=_say, progress=progress, stdout_to_stderr=as_json))
    except Interrupted:
        return None


def _say(line: str) -> None:
    click.echo(f"{CLEAR if sys.stderr.isatty() else ''}{safe(line)}", err=True)


def _progress(line: str) -> None:
    click.echo(f"{CLEAR}{line}", err=True, nl=False)


def _nothing(flags: Mapping[str, Any]) -> dict[str, Any]:
    from replayproxy.session.tally import Tally

    return Tally(run=flags.get("run") or "").document() | {"runs": []}


def _summarise(path: Path | None, command_exit: int | None, code: int, recording: Any, **more: Any) -> None:
    if path is not None:
        document = {"command_exit": command_exit, "exit": code, "recording": recording, **more}
        replaced(path, json.dumps(document).encode() + b"\n")
