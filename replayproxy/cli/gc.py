"""`replayproxy gc`: deletes what `rm` marked, and makes the store smaller."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from replayproxy.cli.common import count, echo_json, json_option, one_store, safe, store_option
from replayproxy.errors import Exit, UnknownAddress
from replayproxy.storage.gc import Freed, collect
from replayproxy.storage.layout import DATA_FILE


@click.command(short_help="Free the space of what was removed.")
@store_option
@json_option
def command(stores: tuple[Path, ...], as_json: bool) -> int:
    """Delete what `rm` has marked and the bodies and states that nothing leads to any more, and write the store anew
    without them.

    Refused while somebody writes to the store, and when it is damaged. It may be killed at any instant: nothing that
    is listed is lost, and the next gc goes on. Exit code 4: deleted, but there is no room for the smaller file, or to
    take every trace of it out.
    """
    path = one_store(stores)
    if not (path / DATA_FILE).exists():
        raise UnknownAddress(f"there is no store at {path}", hint="--store DIR")
    freed = collect(path, tell=_progress)
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        echo_json({"deleted": +freed.count, "before": freed.before, "after": freed.after, "short": freed.short or None})
    else:
        click.echo("\n".join(_text(path, freed)))
    return int(Exit.STORE if freed.short else Exit.OK)


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{what} ..", nl=False, err=True)


def _text(path: Path, freed: Freed) -> list[str]:
    words = ("run", "episode", "exchange", "snapshot", "event", "check", "blob")
    told = ", ".join(count(freed.count[f"{word}s"], word) for word in words if freed.count[f"{word}s"])
    lines = [f"{safe(str(path))}: deleted {told or 'nothing'}"]
    if freed.after != freed.before:
        lines.append(f"{freed.before:,} -> {freed.after:,} bytes")
    else:
        lines.append(f"{freed.after:,} bytes, as before")
    if freed.used:
        lines.append(freed.used)
    if freed.large:
        lines.append(f"the freed space is used by the next recording, but the file stays large: {freed.large}")
    if freed.remains:
        lines.append("text of what was deleted may still be in the file: free space, and gc again")
    return lines
