"""`replayproxy rm`: marks runs and episodes as removed."""

from __future__ import annotations

from pathlib import Path

import click

from replayproxy.cli.common import echo_json, json_option, one_store, safe, store_option
from replayproxy.core.values import EpisodeState
from replayproxy.errors import StoreTrouble, WrongUsage
from replayproxy.storage import Resolved, Store, open_store


@click.command(short_help="Mark runs or episodes as removed.")
@click.argument("addresses", nargs=-1, required=True, metavar="ADDRESS..")
@store_option
@json_option
def command(addresses: tuple[str, ...], stores: tuple[Path, ...], as_json: bool) -> int:
    """Mark runs or episodes as removed: they are no longer listed, and their names are free again.

    Nothing is removed when one of the addresses is wrong, or is of a run or an episode that is being recorded (exit 4).
    `replayproxy gc` frees the space.
    """
    with open_store(one_store(stores)) as store:
        reader = store.reader()
        marked = [_removable(reader.resolve(address)) for address in addresses]
        for one in marked:
            _refuse_the_living(store, one)
        writer = store.writer(exclusive=False)
        try:
            for one in marked:
                writer.remove(one.run.key, one.episode.key if one.episode else None)
        finally:
            writer.close()
    if as_json:
        echo_json({"removed": [one.text for one in marked]})
    else:
        for one in marked:
            click.echo(f"removed {safe(one.text)}")
    return 0


def _removable(named: Resolved) -> Resolved:
    if named.finding is not None or named.seq is not None or named.snapshot is not None:
        raise WrongUsage(f"{named.text} cannot be removed alone", hint="name a run or an episode")
    return named


def _refuse_the_living(store: Store, named: Resolved) -> None:
    """Its recorder would go on, and end well with a recording that nobody finds."""
    open_yet = named.episode.state is EpisodeState.OPEN if named.episode else store.is_written(named.run.key)
    if open_yet:
        raise StoreTrouble(f"{named.text} is being written", hint="wait until its recorder has ended, or stop it")
