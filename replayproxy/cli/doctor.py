"""`replayproxy doctor`: will this wiring record what the agent does?"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from pathlib import Path
from textwrap import wrap
from typing import Any

import click

from replayproxy.cli.common import columns, config_option, echo_json, json_option, safe
from replayproxy.session.config import discover
from replayproxy.session.record_options import parse

WIDTH = 100
INDENTED: dict[str, Any] = {"subsequent_indent": " " * 6, "break_long_words": False, "break_on_hyphens": False}

NOT_ASKED: dict[str, Any] = {
    "run": "doctor", "append": False, "episode": None, "meta": (), "idle": None, "undeclared": None,
    "url_style": None, "workers": None, "control": None, "advertise": (), "allow_upstream": (),
    "ready_file": None, "log_every": None, "upstream_timeout": None, "forward": None, "pass": (),
}  # fmt: skip
"""Flags of `record` that do not matter here."""


@click.command(short_help="Will this wiring record what the agent does?")
@click.option("--env", multiple=True, metavar="NAME=URL", help="As for record; repeatable.")
@click.option("--snapshot", multiple=True, metavar="NAME=SPEC", help="As for record; repeatable.")
@click.option("--snapshot-when", metavar="WORDS", help="As for record.")
@click.option("--snapshot-mode", metavar="MODE", help="As for record.")
@click.option("--reset", multiple=True, metavar='NAME="METHOD URL [BODY]"', help="As for record; it is not sent.")
@click.option("--listen", metavar="HOST", help="As for record.")
@click.option(
    "--clients", metavar="NAME[:STYLE],..", help="Only these clients, which then must be recorded; `none` tries none."
)
@click.option("--python", metavar="PATH", help="The agent's interpreter. Default: python3 on PATH, then our own.")
@config_option
@json_option
def command(config: Path | None, as_json: bool, clients: str | None, python: str | None, **flags: Any) -> int:
    """Reach each environment, send canaries, read each snapshot twice, and say what would be recorded and can be shown.

    To the environments only GET of their base URLs is sent. The canaries of all client styles that are found on this
    machine go to a stand-in; one that would pass by the recorder is a WARN, and a FAIL (3) when --clients names it.
    STYLE is append, resolve or port (by listener URL) or forward (by proxy variables). Nothing is kept.
    """
    found = discover(config, Path.cwd(), os.environ)
    if found.path:
        click.echo(f"replayproxy: config {safe(str(found.path))}", err=True)
    options = parse(
        {**NOT_ASKED, **flags}, found, store=Path("unused"), environ={}, wall=time.time_ns(),
        pick={"run": "xxxx", "token": ""}, has_command=True,
    )  # fmt: skip
    from replayproxy.session.canary import wanted
    from replayproxy.session.doctor import diagnose

    diagnosis = asyncio.run(diagnose(options, wanted(clients, python)))
    if as_json:
        echo_json(diagnosis.document())
        return diagnosis.exit
    for check in diagnosis.checks:
        for line in wrap(f"{check.level:<4}  {safe(check.text)}", WIDTH, **INDENTED):
            click.echo(line)
    mended = ", once it is mended" if diagnosis.exit else ""
    if diagnosis.unread:
        mended += f", but as if without what cannot be read ({safe(', '.join(diagnosis.unread))})"
    click.echo(f"With this wiring{mended}:")
    for line in columns([(f"      {kind}", how) for kind, how in diagnosis.proves.items()]):
        click.echo(line)
    # Without an episode's name, traffic of a client that names none would be recorded and never replayed.
    given = [(option, text) for option in ("env", "snapshot", "reset") for text in flags[option]]
    words = [f"--{option} {shlex.quote(safe(text))}" for option, text in given]
    again = " ".join(["replayproxy record", *words, "--episode NAME -- COMMAND"])
    click.echo(f"next: {again}" if not diagnosis.exit else "next: mend what FAILs, then again")
    return diagnosis.exit
