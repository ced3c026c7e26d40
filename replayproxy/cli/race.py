"""`replayproxy race`: which two requests of an episode may go wrong together, and whether they do."""

from __future__ import annotations

import os
from pathlib import Path

import click

from replayproxy.cli.common import config_option, echo_json, json_option, one_store, safe, store_option
from replayproxy.cli.hints import runnable
from replayproxy.cli.race_text import text
from replayproxy.errors import WrongUsage
from replayproxy.session.config import discover
from replayproxy.session.race import Ask, run_race
from replayproxy.session.race_report import document
from replayproxy.session.redrive_targets import Words
from replayproxy.session.wiring import seconds
from replayproxy.storage import open_store


@click.command(short_help="Release two requests together, and see what no order explains.")
@click.argument("address", metavar="RUN/EPISODE")
@click.option("--env", "env", multiple=True, metavar="NAME=URL", help="Where an environment of the episode is now.")
@click.option("--snapshot", "snapshot", multiple=True, metavar="NAME=SPEC", help="Reads, and restores, its state.")
@click.option("--reset", "reset", multiple=True, metavar='NAME="METHOD URL [BODY]"',
              help="Restores its state, also where the snapshot could.")  # fmt: skip
@click.option("--times", type=click.IntRange(1), default=20, show_default=True, metavar="N",
              help="How often each pair is released together.")  # fmt: skip
@click.option("--pairs", type=click.IntRange(1), default=5, show_default=True, metavar="N",
              help="How many of the predicted pairs are tried, the likeliest first.")  # fmt: skip
@click.option("--pair", "only", default=None, metavar="SEQ,SEQ",
              help="Only this pair; the same number twice: the request, sent twice.")  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="Print the predicted pairs; nothing is sent.")
@click.option("--disposable", multiple=True, metavar="NAME",
              help="An environment that is not on this machine and may be overwritten.")  # fmt: skip
@click.option("--credential", multiple=True, metavar="NAME=VALUE",
              help="For a token of the recording: NAME is its header, cookie, parameter or member.")  # fmt: skip
@click.option("--answer-limit", default="60s", metavar="TIME",
              help="How long an answer may take beyond twice the recorded time.")  # fmt: skip
@store_option
@config_option
@json_option
def command(
    address: str, env: tuple[str, ...], snapshot: tuple[str, ...], reset: tuple[str, ...], times: int, pairs: int,
    only: str | None, listing: bool, disposable: tuple[str, ...], credential: tuple[str, ...], answer_limit: str,
    stores: tuple[Path, ...], config: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Predict which two requests of a recorded episode may go wrong when they come together, and try them.

    For each pair the recorded start is restored, what came before is sent again, and the two are sent in both orders,
    then N times together: all but the last byte of each is out before the last bytes go. An outcome that neither order
    gives is a confirmed race. Exit 1: one was shown; 0: none was, which is no proof; 3: it cannot be judged.
    """
    found = discover(config, Path.cwd(), os.environ)
    if found.path is not None:
        _say(f"config {found.path}")
    ask = Ask(
        address=address,
        words=Words(env=env, snapshot=snapshot, reset=reset, disposable=found.values("disposable", disposable),
                    credential=credential, config=found),
        times=times, pairs=pairs, only=_pair(only), listing=listing, limit=seconds(answer_limit, "--answer-limit"),
    )  # fmt: skip
    with open_store(one_store(stores)) as store:
        done = run_race(store, ask, _say)
    if as_json:
        echo_json(document(done))
    else:
        lines = text(done)
        click.echo("\n".join([*lines[:-2], *(runnable(line, stores) for line in lines[-2:])]))
    return int(done.exit)


def _pair(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, comma, second = text.partition(",")
    if not comma or not first.strip().isdecimal() or not second.strip().isdecimal():
        raise WrongUsage(f"--pair {text}: it is two numbers of exchanges", hint="--pair 4,4 or --pair 4,7")
    return int(first), int(second)


def _say(line: str) -> None:
    click.echo(f"replayproxy: {safe(line)}", err=True)
