"""`replayproxy explain RUN/EPISODE < request.http`: what a replay would answer to one request."""

from __future__ import annotations

import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

import click

from replayproxy.cli.common import config_option, echo_json, json_option, open_reader, safe, stores_option
from replayproxy.cli.hints import runnable
from replayproxy.cli.replay_text import loosely, miss_lines
from replayproxy.core.rules import parse_rules
from replayproxy.session.config import discover


@click.command(short_help="What would a replay answer to this request?")
@click.argument("address")
@click.option("--env", metavar="NAME", help="The environment that is asked, where the run has several.")
@click.option("--lane", metavar="LANE", help="The lane of the request. Default: its mark, else main.")
@config_option
@stores_option
@json_option
def command(
    address: str, env: str | None, lane: str | None, config: Path | None, stores: tuple[Path, ...], as_json: bool
) -> int:
    """Read one HTTP/1.1 request from standard input and say which recorded exchange of RUN/EPISODE would answer it, by
    which grade, bindings and rules; or which three come nearest, and where each first differs.

    Lines may end in LF alone, and Content-Length may be left out. The episode is taken as at its start: nothing has
    been answered yet. Exit code: 0 it would be served, 1 it would be a miss, 2 it cannot be read, 3 the episode is
    incomplete.
    """
    # `--help` need not pay for what a replay imports.
    from replayproxy.session.explain import Question, explain
    from replayproxy.session.rawrequest import read_request

    found = discover(config, Path.cwd(), os.environ)
    request = read_request(sys.stdin.buffer.read())
    question = Question(
        request=request, env=env, lane=lane, rules=parse_rules(found.rules),
        today=date.today(),  # noqa: DTZ011 - a day, as the user wrote it
    )  # fmt: skip
    with open_reader(stores) as opened:
        one = opened.find(address)
        document, code = explain(one.reader, one.resolved, question)
    if as_json:
        echo_json(document)
    else:
        *lines, last = text(document)
        last = runnable(last, stores, {one.resolved.run.name: one.archive})
        click.echo("\n".join(safe(line) for line in [*lines, last]))
    return code


def text(document: dict[str, Any]) -> list[str]:
    """Verdict first, the next command last."""
    if not document["served"]:
        lines = miss_lines(document)
        near = document["nearest"]
        shown = near[0]["exchange"] if near else f"{document['run']}/{document['episode']}"
        return [*lines, f"exit 1     look: replayproxy show {shown}"]
    answer = document["status"] or document["outcome"]
    lead = f"SERVED  {document['exchange']}  {document['grade']}   {answer}   {document['request']}"
    look = f"exit 0     look: replayproxy show {document['exchange']}"
    return [f"{lead}   lane {document['lane']}", *loosely(document), look]
