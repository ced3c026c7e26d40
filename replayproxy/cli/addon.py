"""`replayproxy addon`: the path of an add-on, for a mitmproxy of one's own."""

from __future__ import annotations

import click

from replayproxy.errors import WrongUsage
from replayproxy.state.loader import bundled


@click.command(short_help="Print the path of an add-on, for mitmdump -s.")
@click.argument("name")
def command(name: str) -> None:
    """Print the path of the add-on NAME.

    mitmdump -s $(replayproxy addon record) --mode reverse:http://127.0.0.1:9000
    """
    folder = bundled("addons")
    known = sorted(path.stem for path in folder.glob("*.py"))
    if name not in known:
        raise WrongUsage(f"there is no add-on {name!r}", hint=f"there is {', '.join(known) or 'none'}")
    click.echo(folder / f"{name}.py")
