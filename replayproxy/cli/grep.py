"""`replayproxy grep`: where a text stands in what was recorded."""

from __future__ import annotations

from pathlib import Path

import click

from replayproxy.cli.common import count, echo_json, json_option, open_reader, safe, stores_option
from replayproxy.cli.shorten import cut
from replayproxy.errors import Exit
from replayproxy.session.grep import PLACES, grep, pattern

SNIPPET = 100


@click.command(short_help="Where a text stands: requests, answers, states.")
@click.argument("address")
@click.argument("text")
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are one.")
@click.option("-E", "--regex", is_flag=True, help="TEXT is a regular expression (Python's).")
@click.option("--in", "places", multiple=True, type=click.Choice(PLACES), help="Only there; repeatable.")
@click.option("-m", "--max", "most", type=click.IntRange(min=1), default=None, metavar="N", help="Stop after N.")
@stores_option
@json_option
def command(
    address: str, text: str, ignore_case: bool, regex: bool, places: tuple[str, ...], most: int | None,
    stores: tuple[Path, ...], as_json: bool,
) -> int:  # fmt: skip
    """Look for TEXT in a run, an episode, an exchange or a snapshot: targets, header fields, bodies (decoded), messages
    and rows of states. A credential was replaced by its token, and is not found by itself.

    One line for each place: address, where, the text around. Of a series of snapshots only what changed is looked at
    again. Exit code 0: found; 1: not found.
    """
    wanted = pattern(text, ignore_case=ignore_case, regex=regex)
    listed = []
    skipped: list[str] = []
    number = 0
    with open_reader(stores) as opened:
        found = opened.find(address)
        for hit in grep(found, wanted, places or PLACES, skipped):
            number += 1
            if as_json:
                listed.append({**hit.to_json(), "address": found.address(hit.address)})
            else:
                where = f"{safe(found.address(hit.address))}  {safe(hit.where)}"
                click.echo(f"{where}  {cut(safe(hit.snippet), SNIPPET)}")
            if number == most:
                break
    if as_json:
        echo_json({"address": address, "text": text, "hits": listed, "more": number == most, "skipped": skipped})
    else:
        more = ", and perhaps more" if number == most else ""
        click.echo(
            f"{count(number, 'place')}{more}" if number else f"{safe(text)!r} is nowhere in {safe(address)}", err=True
        )
    for one in skipped:
        click.echo(f"replayproxy: too large to be looked into: {safe(one)} -> show --body", err=True)
    return 0 if number else int(Exit.DIFFERENT)
