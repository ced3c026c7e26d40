"""`replayproxy fsck`, also `verify`: reads every record of a store."""

from __future__ import annotations

from pathlib import Path

import click

from replayproxy.cli.common import columns, count, echo_json, json_option, safe, store_option, store_paths
from replayproxy.errors import Exit
from replayproxy.storage.verify import Report, verify


@click.command(short_help="Verify every record of the store.")
@store_option
@json_option
def command(stores: tuple[Path, ...], as_json: bool) -> int:
    """Read every record of the store and list what is damaged; exit 4 when anything is.

    An incomplete episode is no damage. Nothing is changed.
    """
    reports = [(path, verify(path)) for path in store_paths(stores)]
    damaged = [damage for _, report in reports for damage in report.damaged]
    if as_json:
        read = {path: report.read for path, report in reports}
        echo_json({"damaged": damaged, "read": {str(path): found for path, found in read.items()}})
    else:
        for path, report in reports:
            click.echo("\n".join(text(path, report)))
    return int(Exit.STORE if damaged else Exit.OK)


def text(path: Path, report: Report) -> list[str]:
    """The verdict, then every damage."""
    found = ", ".join(f"{number:,} {name}" for name, number in report.read.items() if not name.endswith("-names"))
    if not report.damaged:
        return [f"{path}: whole   read {found or 'nothing'}"]
    rows = [("KIND", "WHERE", "WHAT")]
    rows += [
        (d["kind"], safe(d["address"]), safe(d["why"]) + ("   (removed: gc frees it)" if "removed" in d else ""))
        for d in report.damaged
    ]
    return [f"{path}: DAMAGED   {count(len(report.damaged), 'place')}   read {found or 'nothing'}", *columns(rows)]
