"""`replayproxy import`: an archive, a HAR or a flow file into the store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from replayproxy.cli.common import config_option, count, echo_json, json_option, one_store, safe, store_option
from replayproxy.cli.hints import runnable
from replayproxy.session.config import discover

if TYPE_CHECKING:
    from replayproxy.session.taking import Imported


@click.command(short_help="Take in an archive, a HAR or a flow file.")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--run", metavar="NAME", help="The run's name here. Default: the archive's own, else the file's.")
@click.option("--append", is_flag=True, help="Into the run of that name, where there is one.")
@click.option("--env", "envs", multiple=True, metavar="NAME=URL", help="Names an environment. Default: after its host.")
@click.option("--keep-secrets", is_flag=True, help="Store credentials as they are in the file.")
@config_option
@store_option
@json_option
def command(
    path: Path, run: str | None, append: bool, envs: tuple[str, ...], keep_secrets: bool, config: Path | None,
    stores: tuple[Path, ...], as_json: bool,
) -> int:  # fmt: skip
    """Take the recordings of a file into the store: all of them, or none. Its content says what kind of file it is; `-`
    is stdin, and a directory stands for the HAR files in it. Secrets in a HAR or flow file become tokens, as in a
    recording; an archive's records stay as they are.
    """
    from replayproxy.session.porting_in import import_file  # loads mitmproxy, which `--help` need not pay for
    from replayproxy.session.taking import Asked, parse_envs

    found = discover(config, Path.cwd(), os.environ)
    asked = Asked(
        path=path, run=run, append=append, envs=parse_envs(envs), keep_secrets=keep_secrets, secrets=found.secrets
    )
    done = import_file(asked, one_store(stores))
    if as_json:
        echo_json(done.to_json())
    _say(done, stores, err=as_json)
    return 0


def _say(done: Imported, stores: Sequence[Path], *, err: bool) -> None:
    parts = [count(done.episodes, "episode"), count(done.exchanges, "exchange")]
    if done.snapshots:
        parts.append(count(done.snapshots, "snapshot"))
    names = ", ".join(map(safe, done.runs)) or "no run"
    click.echo(f"imported {names} ({done.form}): {', '.join(parts)}", err=err)
    for words, lead in ((done.notes, "note"), (done.left, "not imported")):
        for word, times in sorted(words.items()):
            click.echo(f"{lead}: {times:,} x {safe(word)}", err=True)
    if done.runs:
        click.echo(runnable(f"next: replayproxy ls {safe(done.runs[0])}", stores), err=err)
