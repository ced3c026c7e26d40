"""`replayproxy show`: a run, an episode, an exchange, a snapshot or a finding."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from replayproxy.cli.bodies import curl, wire
from replayproxy.cli.common import echo_json, json_option, open_reader, safe, stores_option
from replayproxy.cli.finding_share import curl_lines, markdown_lines, told_and_seen
from replayproxy.cli.finding_state import finding_state_lines
from replayproxy.cli.hints import runnable
from replayproxy.cli.show_episode import change_lines, episode_json, episode_text
from replayproxy.cli.show_exchange import exchange_json, exchange_text
from replayproxy.cli.show_finding import finding_text
from replayproxy.cli.show_run import run_json, run_lines
from replayproxy.cli.show_state import state_json, state_text
from replayproxy.cli.show_talk import talk_lines
from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.values import Episode, Run
from replayproxy.errors import WrongUsage
from replayproxy.session.finding_states import state_diffs
from replayproxy.session.handing_on import finding_of
from replayproxy.session.look import Found
from replayproxy.session.portrait import change, change_json, portrait, successive
from replayproxy.storage import Reader


@click.command(short_help="Show an episode, an exchange, a snapshot or a finding.")
@click.argument("address")
@click.option(
    "--curl", "as_curl", is_flag=True, help="An exchange, or those of a finding, as commands that send it again."
)
@click.option("--state", is_flag=True, help="Every row that the snapshots show changed; of a finding: as a table.")
@click.option("--wire", "as_wire", is_flag=True, help="An exchange's bytes as they passed: request, then answer.")
@click.option("--body", type=click.Choice(["request", "answer"]), help="The bytes of one body of an exchange.")
@click.option("--md", is_flag=True, help="As Markdown, to paste into an issue.")
@stores_option
@json_option
def command(
    address: str, as_curl: bool, state: bool, as_wire: bool, body: str | None, md: bool,
    stores: tuple[Path, ...], as_json: bool,
) -> int:  # fmt: skip
    """Show what ADDRESS names: RUN, RUN/EPISODE, RUN/EPISODE#SEQ, RUN/EPISODE/sN, or a finding (F3)."""
    asked = [name for name, given in (("--curl", as_curl), ("--wire", as_wire), ("--body", body)) if given]
    with open_reader(stores) as opened:
        found = _meant(opened.find(address))
        if asked and found.resolved.seq is None and not (as_curl and found.resolved.finding and len(asked) == 1):
            raise WrongUsage(f"{asked[0]} needs an exchange", hint=f"replayproxy show 'RUN/EPISODE#1' {asked[0]}")
        if len(asked) + as_json > 1:
            raise WrongUsage(f"{' and '.join(asked + ['--json'] * as_json)} exclude each other")
        if body or as_wire:
            _raw(_bytes(found, body))
        elif as_json:
            echo_json(_document(found, state=state))
        elif md and found.resolved.finding is not None:
            told, _ = told_and_seen(found)
            for line in markdown_lines(address, told, _hinted(found, _text(found, state=state), stores), _curl(found)):
                click.echo(line)
        else:
            _lines(_curl(found) if as_curl else _hinted(found, _text(found, state=state), stores), md, address)
    return 0


def _lines(lines: Iterable[str], md: bool, address: str) -> None:
    if md:
        click.echo(f"### `{safe(address)}`\n\n````text")
    for line in lines:
        click.echo(line)
    if md:
        click.echo("````")


def _hinted(found: Found, lines: Iterator[str], stores: tuple[Path, ...]) -> Iterator[str]:
    """With the proposed commands as they can be run; what was recorded is left as it is."""
    archives = {found.resolved.run.name: found.archive}
    for line in lines:
        yield line if found.resolved.seq else runnable(line, stores, archives)


def _raw(pieces: Iterator[bytes]) -> None:
    """Bytes as they are, except onto a terminal."""
    if sys.stdout.isatty():
        click.echo(safe(b"".join(pieces), lines=True))
        return
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _episode(found: Found) -> tuple[Reader, Run, Episode]:
    assert found.resolved.episode is not None
    return found.reader, found.resolved.run, found.resolved.episode


def _text(found: Found, *, state: bool) -> Iterator[str]:
    named = found.resolved
    if named.finding is not None:
        told, seen = told_and_seen(found)
        yield from finding_state_lines(found.reader, told) if state else finding_text(named.text, told, seen)
    elif named.episode is None:
        yield from run_lines(found.reader, named.run)
    elif named.snapshot is not None:
        yield from state_text(*_episode(found), named.snapshot)
    elif named.seq is not None and state:
        changes = list(_changes(found, named.seq))
        for one in changes:
            yield from change_lines(one)
        if not changes:
            yield f"{safe(named.text)}: no snapshot follows it"
    elif named.seq is not None:
        exchange = found.reader.exchange(named.episode, named.seq, bodies=VIEW_LIMIT)
        yield from exchange_text(named.run, named.episode, exchange)
        yield from talk_lines(found.reader, exchange)
    else:
        yield from episode_text(portrait(*_episode(found)), all_changes=state)


def _meant(found: Found) -> Found:
    """An archive that was made for one finding shows that finding when it is named alone."""
    at = found.resolved
    if not found.archive or at.text != found.archive:
        return found
    finding = finding_of(found.reader, at.run)
    return found if finding is None else replace(found, resolved=replace(at, finding=finding))


def _changes(found: Found, seq: int | None) -> Iterator[Any]:
    reader, _, episode = _episode(found)
    for before, after in successive(reader.snapshots(episode)):
        if seq is None or after.after_seq == seq:
            yield change(reader, before, after)


def _document(found: Found, *, state: bool) -> dict[str, Any]:
    named = found.resolved
    if named.finding is not None:
        told, _ = told_and_seen(found)
        states = {"states": [one.to_json() for one in state_diffs(found.reader, told)]} if state else {}
        return told | states
    if named.episode is None:
        return run_json(found.reader, named.run)
    if named.snapshot is not None:
        return state_json(*_episode(found), named.snapshot)
    if named.seq is not None:
        document = exchange_json(*_episode(found), found.reader.exchange(named.episode, named.seq))
    else:
        document = episode_json(portrait(*_episode(found)))
    if state:
        document["states"] = [change_json(one) for one in _changes(found, named.seq)]
    return document


def _curl(found: Found) -> Iterator[str]:
    if found.resolved.finding is not None:
        yield from curl_lines(found.reader, told_and_seen(found)[1])
        return
    reader, run, episode = _episode(found)
    exchange = reader.exchange(episode, found.resolved.seq or 0)
    wiring = run.envs.get(exchange.env)
    yield curl(reader, exchange, exchange.upstream or (wiring.upstream if wiring else ""))


def _bytes(found: Found, body: str | None) -> Iterator[bytes]:
    reader, _, episode = _episode(found)
    exchange = reader.exchange(episode, found.resolved.seq or 0)
    if body is None:
        yield from wire(reader, exchange)
        return
    answer = exchange.response.body if exchange.response else None
    wanted = exchange.request.body if body == "request" else answer
    if wanted is not None:
        yield from reader.pieces(wanted)
