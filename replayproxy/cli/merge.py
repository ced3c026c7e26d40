"""`replayproxy merge`: the runs of other stores into one."""

from __future__ import annotations

from pathlib import Path

import click

from replayproxy.cli.common import count, echo_json, json_option, safe
from replayproxy.storage import open_store
from replayproxy.storage.merging import Merged, merging


@click.command(short_help="Take the runs of other stores into one.")
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR..")
@click.option("--into", required=True, type=click.Path(path_type=Path), metavar="DIR",
              help="The store that takes them; made where there is none.")  # fmt: skip
@json_option
def command(directories: tuple[Path, ...], into: Path, as_json: bool) -> int:
    """Take every run of the stores DIR into one store: all of them, or none. The stores are only read.

    A run whose name another run has there is called NAME@NODE, after the machine that recorded it. What is there
    already is left out: a merge can be done again, and takes what is new.
    """
    sources = [open_store(path) for path in directories]
    try:
        with merging(into) as merger:
            for source in sources:
                merger.take(source)
            merged = merger.publish()
    finally:
        for source in sources:
            source.close()
    if as_json:
        echo_json({"runs": merged.runs, "renamed": merged.renamed, "taken": +merged.count, "left": +merged.left})
    else:
        click.echo("\n".join(_text(into, merged)))
    return 0


def _text(into: Path, merged: Merged) -> list[str]:
    words = ("run", "episode", "exchange", "snapshot")
    told = ", ".join(count(merged.count[f"{word}s"], word) for word in words if merged.count[f"{word}s"])
    lines = [f"{safe(str(into))}: took {told or 'nothing new'}"]
    lines += [
        f"{safe(old)} is called {safe(new)} here: another run has its name" for new, old in merged.renamed.items()
    ]
    lines += [f"left out: {number:,} x {safe(what)}" for what, number in sorted(merged.left.items())]
    return [*lines, f"next: replayproxy ls --store {safe(str(into))}"]
