"""`replayproxy export`: recordings into files that others read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from replayproxy.cli.common import count, echo_json, json_option, open_reader, safe, stores_option
from replayproxy.cli.finding_share import curl_lines, readme_lines, told_and_seen
from replayproxy.cli.hints import runnable
from replayproxy.cli.show_finding import finding_text
from replayproxy.errors import WrongUsage
from replayproxy.session.handing_on import export_finding
from replayproxy.session.look import Found, Stores
from replayproxy.session.porting import STDIO, Chosen, Exported, choose, export_archive
from replayproxy.session.porting_har import export_har

FORMATS = ("archive", "flow", "har")


@click.command(short_help="Write recordings as HAR, flow file or archive.")
@click.argument("addresses", nargs=-1, required=True, metavar="ADDRESS..")
@click.option("--format", "form", type=click.Choice(FORMATS), default=None,
              help="Needed for runs and episodes; see docs/porting.md. A finding goes into an archive.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="PATH", help="A new file; `-` is stdout.")
@stores_option
@json_option
def command(
    addresses: tuple[str, ...], form: str | None, out: Path | None, stores: tuple[Path, ...], as_json: bool
) -> int:
    """Write runs and episodes into files that others read. An archive holds everything; what another format cannot
    carry is listed, with how often it occurred.

    A finding (F3) goes into an archive with the episodes that it names; beside it are written a .md to read and a .sh
    with its exchanges as curl. `replayproxy show F3.replay` opens it.

    Without --out: the name of the episode, run or finding, in the current directory. A file that exists is never
    replaced.
    """
    if as_json and out == STDIO:
        raise WrongUsage("--json and --out - both want stdout", hint="another --out")
    with open_reader(stores) as opened:
        finding = _finding(opened, addresses, form)
        if finding is not None:
            done = _hand_on(finding, out)
        elif form is None:
            raise WrongUsage("Missing option '--format'", hint=f"one of {', '.join(FORMATS)}; docs/porting.md")
        else:
            done = _writer(form)(choose(opened, addresses), out)
    if as_json:
        echo_json(done.to_json())
    _say(done, err=as_json or out == STDIO)
    return 0


def _finding(opened: Stores, addresses: Sequence[str], form: str | None) -> Found | None:
    """The one finding that is named; None: runs and episodes are."""
    if len(addresses) != 1:
        return None
    found = opened.find(addresses[0])
    if found.resolved.finding is None:
        return None
    if form not in (None, "archive"):
        raise WrongUsage(f"a finding does not go into a {form} file", hint="--format archive")
    return found


def _hand_on(found: Found, out: Path | None) -> Exported:
    name = (out or Path(f"{found.resolved.finding['number'] if found.resolved.finding else ''}.replay")).name
    told, seen = told_and_seen(found)
    script = "\n".join(["#!/bin/sh", f"# {safe(str(told.get('title') or ''))}", *curl_lines(found.reader, seen)]) + "\n"
    archives = {found.resolved.run.name: name}
    block = [runnable(line, (), archives) for line in finding_text(name, told, seen)]
    return export_finding(found, out, {".md": "\n".join(readme_lines(name, told, block)) + "\n", ".sh": script})


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
