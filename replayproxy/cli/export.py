"""`replayproxy export`: recordings into files that others read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from replayproxy.cli.common import count, echo_json, json_option, open_reader, safe, store_option
from replayproxy.errors import WrongUsage
from replayproxy.session.porting import STDIO, Chosen, Exported, choose, export_archive
from replayproxy.session.porting_har import export_har

FORMATS = ("archive", "flow", "har")


@click.command(short_help="Write recordings as HAR, flow file or archive.")
@click.argument("addresses", nargs=-1, required=True, metavar="ADDRESS..")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="See docs/porting.md.")
@click.option("--out", type=click.Path(path_type=Path), metavar="PATH", help="A new file; `-` is stdout.")
@store_option
@json_option
def command(addresses: tuple[str, ...], form: str, out: Path | None, stores: tuple[Path, ...], as_json: bool) -> int:
    """Write runs and episodes into files that others read. An archive holds everything; what another format cannot
    carry is listed, with how often it occurred.

    Without --out: the name of the episode or run, in the current directory. A file that exists is never replaced.
    """
    if as_json and out == STDIO:
        raise WrongUsage("--json and --out - both want stdout", hint="another --out")
    with open_reader(stores) as opened:
        done = _writer(form)(choose(opened, addresses), out)
    if as_json:
        echo_json(done.to_json())
    _say(done, err=as_json or out == STDIO)
    return 0


def _writer(form: str) -> Callable[[Sequence[Chosen], Path | None], Exported]:
    if form != "flow":
        return {"archive": export_archive, "har": export_har}[form]
    from replayproxy.session.porting_flow import export_flow  # loads mitmproxy, which `--help` need not pay for

    return export_flow


def _say(done: Exported, *, err: bool) -> None:
    what = f"{count(done.exchanges, 'exchange')} of {count(done.episodes, 'episode')}"
    where = safe(done.paths[0]) if len(done.paths) == 1 else f"{count(len(done.paths), 'file')} in {_folder(done)}"
    click.echo(f"wrote {where}: {what}", err=err)
    for word, times in sorted(done.not_carried.items()):
        click.echo(f"not carried: {times:,} x {safe(word)}", err=True)
    for address in done.incomplete:
        click.echo(f"note: {safe(address)} is incomplete: what is in it may not be all that was said", err=True)
    if done.secrets_kept:
        click.echo("note: a run was recorded with its secrets, and they are in what was written", err=True)


def _folder(done: Exported) -> str:
    return safe(str(Path(done.paths[0]).parent)) if done.paths else "nothing"
