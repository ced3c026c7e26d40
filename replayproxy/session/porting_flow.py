"""mitmproxy's flow files out and in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from replayproxy.core.values import MAIN_LANE, UNATTRIBUTED, Episode, EpisodeState, Exchange, Outcome
from replayproxy.errors import DamagedRecord
from replayproxy.proxy.flowfile import FlowFile, Found, NotFlows, Skipped, read_flows
from replayproxy.session.porting import Chosen, Exported, default_name, note_run, written
from replayproxy.session.porting_har import loaded, origin_of
from replayproxy.session.taking import NOT_WHOLE, Asked, Imported, Taker, key_of, run_name
from replayproxy.storage import open_store

_ASIDE = " (only in our metadata)"


def export_flow(chosen: Sequence[Chosen], out: Path | None) -> Exported:
    """One file for all that was chosen; each flow's metadata says its run, episode and lane."""
    done = Exported(form="flow", runs=[one.run.name for one in chosen])
    path = out or Path(default_name(chosen, ".flow"))
    with written(path) as file:
        flows = FlowFile(file)
        for one in chosen:
            for episode in one.episodes:
                if one.whole and episode.name == UNATTRIBUTED:
                    done.not_carried["requests without an episode"] += one.reader.count(episode)
                    continue
                _episode(flows, one, episode, done)
            note_run(one, done)
    done.paths.append(str(path))
    return done


def _episode(flows: FlowFile, one: Chosen, episode: Episode, done: Exported) -> None:
    for exchange in one.reader.exchanges(episode):
        flows.add(
            loaded(one.reader, exchange), origin=origin_of(one.run, exchange), run=one.run.name, episode=episode.name,
            key=key_of(one.run.config.get("secrets")), whole=episode.state is EpisodeState.SEALED,
        )  # fmt: skip
        _count(exchange, done.not_carried)
        done.exchanges += 1
    done.episodes += 1
    facts = (episode.task, episode.seed, episode.attempt, episode.group, episode.reward, episode.outcome)
    done.not_carried["task, seed, reward and the like of episodes"] += bool(episode.meta) or facts.count(None) < 6
    done.not_carried["snapshots"] += len(one.reader.snapshots(episode))
    done.not_carried["connection events and marks"] += len(one.reader.events(episode))


def _count(exchange: Exchange, lost: Counter[str]) -> None:
    request, response = exchange.request, exchange.response
    bodies = [body for body in (request.body, response.body if response else None) if body is not None]
    lost["times and order of chunks" + _ASIDE] += any(body.chunks for body in bodies)
    lost["1xx answers" + _ASIDE] += bool(response and response.informational)
    lost["lanes" + _ASIDE] += exchange.lane != MAIN_LANE
    lost["outcomes other than answered" + _ASIDE] += exchange.outcome is not Outcome.ANSWERED
    lost["bodies that were not kept"] += (request.body is None) + (response is not None and response.body is None)


def take_flows(asked: Asked, path: Path, name: str, store: Path) -> Imported:
    """Episodes as the flows name them, else one that is named after the file."""
    told = Imported(form="flow")
    with path.open("rb") as file:
        found = _told(read_flows(file, path.stat().st_size), name)
        first = next(found, None)  # a file that is none is refused before a store is made
        flows = chain([first] if first is not None else [], found)
        here = asked.path if name != "stdin" else Path("stdin")
        own, key = (first.run, first.key) if isinstance(first, Found) else (None, None)
        with open_store(store, create=True) as target:
            taker = Taker(target, asked, run_name(asked, own, here), told, key=key)
            stem = here.name.removesuffix(here.suffix) or "flows"
            for one in flows:
                if isinstance(one, Skipped):
                    told.left[one.what] += 1
                    continue
                exchange = one.exchange
                if not exchange.env:
                    exchange = replace(exchange, env=taker.env_of(exchange.upstream))
                _note(exchange, told)
                faults = () if one.whole else (NOT_WHOLE,)
                episode = Episode(key=0, run_key=0, name=one.episode or stem, faults=faults)
                taker.exchange(taker.episode(episode), exchange)
            taker.done()
    return told


def _told(flows: Iterator[Found | Skipped], name: str) -> Iterator[Found | Skipped]:
    try:
        yield from flows
    except NotFlows as error:
        raise DamagedRecord(f"{name} cannot be imported: {error}", hint="write it again with mitmdump -w") from error


def _note(exchange: Exchange, told: Imported) -> None:
    response = exchange.response
    if exchange.request.body is None or (response is not None and response.body is None):
        told.notes["bodies that the file does not hold"] += 1
    if exchange.outcome is not Outcome.ANSWERED:
        told.notes[f"flows that did not end as they should ({exchange.outcome.value})"] += 1
