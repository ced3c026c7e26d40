"""`replayproxy client`: prints the one-file client."""

from __future__ import annotations

from importlib.resources import files

import click


@click.command(short_help="Print the one-file client.")
def command() -> None:
    """Print the one-file client: standard library only, Python 3.9 or later.

    replayproxy client > replayproxy_client.py
    """
    click.echo(files("replayproxy").joinpath("client.py").read_text(encoding="utf-8"), nl=False)
