"""`replayproxy mask`: which rollouts the trainer should leave out, written into the file that it reads."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from replayproxy.cli.common import config_option, echo_json, json_option, open_reader, safe, share, stores_option
from replayproxy.cli.hints import runnable
from replayproxy.cli.mask_text import document, list_document, list_text, text
from replayproxy.core.rules import parse_rules
from replayproxy.errors import WrongUsage
from replayproxy.session.check import Progress
from replayproxy.session.config import Config, discover
from replayproxy.session.look import Found, Stores
from replayproxy.session.mask_file import mask_file, ready
from replayproxy.session.mask_list import mask_list
from replayproxy.session.mask_marks import Demands, How, words
from replayproxy.session.mask_verdicts import Terms, Verdicts, verdicts
from replayproxy.session.rollouts_join import Join, Pair, pairs
from replayproxy.session.rollouts_out import STDOUT
from replayproxy.session.rollouts_read import rollouts_of
from replayproxy.session.rollouts_shapes import choose
from replayproxy.session.silences import silences


@click.command(short_help="Mark, or drop, the rollouts of poisoned episodes.")
@click.argument("address", metavar="ADDRESS")
@click.argument("rollouts", required=False, type=click.Path(path_type=Path), metavar="[ROLLOUTS.jsonl]")
@click.option("--on", "on", multiple=True, metavar="FIELD=FIELD",
              help="A field of the line, and the field of episodes that it equals (repeatable): rollout_id=episode, "
                   "task.id=task, /info/n=meta.n. Of episodes: episode, task, seed, attempt, group, alias, "
                   "meta.NAME.")  # fmt: skip
@click.option("--verdicts", "masked", default=None, metavar="WORD,..", help="What is masked. Default: poisoned.")
@click.option("--lost", is_flag=True,
              help="Mask also what lost an exchange to a 5xx, a reset, a refusal or a timeout that was never made "
                   "good.")  # fmt: skip
@click.option("--how", type=click.Choice([one.value for one in How]), default=None,
              help="annotate (default): mask_sample and the reasons are added to every line, the rest of it stays "
                   "byte for byte; drop: masked lines are left out; list: nothing is written.")  # fmt: skip
@click.option("--max-masked", type=share, default=None, metavar="SHARE",
              help="More of the lines than this: exit 1, nothing is written. Default: 0.2.")  # fmt: skip
@click.option("--max-unmatched", type=share, default=None, metavar="SHARE",
              help="More lines than this are not of one episode: exit 3, nothing is written. Default: 0.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=None, metavar="PATH",
              help="Where it is written, whole or not at all; - is stdout. Default: NAME.masked.jsonl beside the "
                   "input.")  # fmt: skip
@click.option("--groups", is_flag=True, help="Name every group that loses rollouts, not only the first ten.")
@stores_option
@config_option
@json_option
def command(
    address: str, rollouts: Path | None, on: tuple[str, ...], masked: str | None, lost: bool, how: str | None,
    max_masked: float | None, max_unmatched: float | None, out: Path | None, groups: bool, stores: tuple[Path, ...],
    config: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Mark the rollouts of poisoned episodes, so that the trainer leaves them out.

    ADDRESS is RUN or RUN/EPISODE. Without a file: the episodes to mask. With it: each line is joined to its episode.
    The verdicts are those of the last check; a run that was not checked as it is now is judged first.
    """
    found = discover(config, Path.cwd(), os.environ)
    if found.path is not None:
        click.echo(f"replayproxy: config {safe(str(found.path))}", err=True)
    demands = _demands(found, masked, how, max_masked, max_unmatched, lost=lost)
    if rollouts is None and (on or out or how not in (None, How.LIST)):
        raise WrongUsage("--on, --out and --how need a file of rollouts", hint=f"replayproxy mask {address} FILE.jsonl")
    if as_json and out == STDOUT:
        raise WrongUsage("--json and --out - both want stdout", hint="--out FILE")
    join = pairs(found.values("on", on)) if rollouts is not None else ()
    if rollouts is not None:
        out = ready(rollouts, out)
    with open_reader(stores) as opened:
        named = opened.find(address)
        if rollouts is None:
            return _list(opened, named, found, demands, stores, groups=groups, as_json=as_json)
        join, reward = _joined(join, rollouts, opened, named)
        judged = _judged(opened, named, found)
        done = mask_file(
            judged, Join(join, judged.episodes), demands, rollouts, out, reward=reward,
            progress=_progress("masking"),
        )  # fmt: skip
    if as_json:
        echo_json(document(done))
    else:
        for line in text(done, all_groups=groups):
            shown = runnable(line, stores, {judged.run.name: named.archive})
            click.echo(shown if line.startswith("next ") else line, err=out == STDOUT)
    return done.exit


def _joined(on: tuple[Pair, ...], rollouts: Path, opened: Stores, named: Found) -> tuple[tuple[Pair, ...], str]:
    """How the lines are joined, and where their reward is: as said, else as the framework is known to name them."""
    if on:
        return on, "reward"
    documents = (document for _, document in rollouts_of(rollouts))
    chosen = choose(documents, named.reader.episodes(named.resolved.run))
    told = f"joined by {chosen}: {rollouts} looks like {chosen.shape.name}"
    click.echo(f"replayproxy: {safe(told)}", err=True)
    return chosen.on, chosen.shape.reward


def _demands(
    found: Config, masked: str | None, how: str | None, max_masked: float | None, max_unmatched: float | None, *,
    lost: bool,
) -> Demands:  # fmt: skip
    wanted = str(found.value("how", how, How.ANNOTATE))
    if wanted not in set(How):
        raise WrongUsage(f"how is {wanted!r}", hint=", ".join(How))
    return Demands(
        masked=words(str(found.value("verdicts", masked, "poisoned"))),
        lost=lost,
        how=How(wanted),
        max_masked=_share("max-masked", found.value("max-masked", max_masked, 0.2)),
        max_unmatched=_share("max-unmatched", found.value("max-unmatched", max_unmatched, 0.0)),
    )


def _share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise WrongUsage(f"{name} is {value!r}", hint="a share from 0 to 1, such as 0.2")
    return float(value)


def _judged(opened: Stores, named: Found, found: Config) -> Verdicts:
    if named.resolved.finding is not None or named.resolved.seq is not None or named.resolved.snapshot is not None:
        raise WrongUsage(f"{named.resolved.text} is no run and no episode", hint="mask takes RUN or RUN/EPISODE")
    now = time.time_ns()
    terms = Terms(
        rules=parse_rules(found.rules), silences=None if found.path is None else silences(found.silence),
        eventual={env: found.eventual(env) for env in found.env},
        claims={env: found.claims(env) for env in found.env},
        today=datetime.fromtimestamp(now / 1e9, tz=UTC).date(),
    )  # fmt: skip
    judged = verdicts(opened, named, terms, now=now, progress=_progress("judging"))
    if judged.judged:
        kept = f"; not saved: {judged.unsaved}" if judged.unsaved else ""
        told = f"run {judged.run.name} was judged first: {judged.judged}{kept}"
        click.echo(f"replayproxy: {safe(told)}", err=True)
    return judged


def _list(
    opened: Stores, named: Found, found: Config, demands: Demands, stores: tuple[Path, ...], *, groups: bool,
    as_json: bool,
) -> int:  # fmt: skip
    listed = mask_list(_judged(opened, named, found), demands)
    if as_json:
        echo_json(list_document(listed))
    else:
        for line in list_text(listed, all_groups=groups):
            shown = runnable(line, stores, {listed.judged.run.name: named.archive})
            click.echo(shown if line.startswith("next ") else line)
    return listed.exit


def _progress(verb: str) -> Progress | None:
    """On a terminal, a line that tells how far it is."""
    if not sys.stderr.isatty():
        return None

    def tell(done: int, of: int) -> None:
        end = "\r" if done < of else "\r\x1b[K"
        sys.stderr.write(f"\r{verb} {done / max(of, 1):.0%}{end}")
        sys.stderr.flush()

    return tell
