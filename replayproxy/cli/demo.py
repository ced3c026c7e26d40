"""`replayproxy demo`: the whole story on an embedded environment."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import click

from replayproxy.demo.ending import ending
from replayproxy.demo.environment import FAULTS
from replayproxy.demo.stage import Stage
from replayproxy.demo.story import Spoiled, Told, play
from replayproxy.errors import Exit, WrongUsage

MARK = "made-by-demo"


@click.command()
@click.option("--fault", "faults", multiple=True, type=click.Choice(FAULTS), help="Only this fault (repeatable).")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="The store (default: demo-store).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(faults: tuple[str, ...], keep: Path | None, as_json: bool) -> int:
    """The whole story on an embedded environment: record, replay, re-drive, diff, check.

    Exit 0 when exactly the seeded faults were found, else 1.
    """
    store = _fresh(keep or Path("demo-store"))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="replayproxy-demo-") as folder:
        stage = Stage(folder=Path(folder), store=store)
        try:
            told = play(stage, faults or FAULTS, lambda line: click.echo(f"  {line}", err=True))
        except Spoiled as spoiled:
            click.echo(f"demo: {spoiled}", err=True)
            return int(Exit.DIFFERENT)
        finally:
            stage.stop()
    took = time.monotonic() - began
    click.echo(_json(told, store, took) if as_json else "\n".join(ending(told, _shown(store), took)))
    return int(Exit.OK if told.as_seeded else Exit.DIFFERENT)


def _fresh(store: Path) -> Path:
    """A new folder, or one that an earlier demo made; nobody's folder is ever written over."""
    if (store / MARK).exists():
        shutil.rmtree(store)
    elif store.exists() and any(store.iterdir()):
        raise WrongUsage(f"{store} is there and was not made by the demo", hint="--keep DIR with a new folder")
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    (store / MARK).write_text("This store was made by `replayproxy demo`, which may replace it.\n")
    return store


def _shown(store: Path) -> str:
    return str(store) if store.is_absolute() else f"./{store}"


def _json(told: Told, store: Path, took: float) -> str:
    document = asdict(told) | {"as_seeded": told.as_seeded, "store": str(store), "seconds": round(took, 1)}
    return json.dumps(document)
