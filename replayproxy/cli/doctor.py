"""`replayproxy doctor`: will this wiring record what the agent does?"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import click

from replayproxy.cli.common import config_option, echo_json, json_option, safe
from replayproxy.session.config import discover
from replayproxy.session.record_options import parse

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
@config_option
@json_option
def command(config: Path | None, as_json: bool, **flags: Any) -> int:
    """Reach each environment, send a canary through each listener, read each snapshot twice, and say what can be shown.

    Only GET of the environments' base URLs is sent. Nothing is kept.
    """
    found = discover(config, Path.cwd(), os.environ)
    if found.path:
        click.echo(f"replayproxy: config {safe(str(found.path))}", err=True)
    options = parse(
        {**NOT_ASKED, **flags}, found, store=Path("unused"), environ={}, wall=time.time_ns(),
        pick={"run": "xxxx", "token": ""}, has_command=True,
    )  # fmt: skip
    from replayproxy.session.doctor import diagnose

    diagnosis = asyncio.run(diagnose(options))
    if as_json:
        echo_json(diagnosis.document())
        return diagnosis.exit
    for check in diagnosis.checks:
        click.echo(f"{check.level:<4}  {safe(check.text)}")
    proofs = " · ".join(f"{kind} {how}" for kind, how in diagnosis.proves.items())
    click.echo(f"With this wiring{', once it is mended' if diagnosis.exit else ''}:  {proofs}")
    # Without an episode's name, traffic of a client that names none would be recorded and never replayed.
    words = [f"--{option} {safe(text)}" for option in ("env", "snapshot") for text in flags[option]]
    again = " ".join(["replayproxy record", *words, "--episode NAME -- COMMAND"])
    click.echo(f"next: {again}" if not diagnosis.exit else "next: mend what FAILs, then again")
    return diagnosis.exit
