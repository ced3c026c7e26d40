"""HAR files out and in: one per episode."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from replayproxy import __version__
from replayproxy.core import har
from replayproxy.core.harread import read_entry
from replayproxy.core.harvalues import Members, NotHar
from replayproxy.core.shown import json_bytes
from replayproxy.core.values import UNATTRIBUTED, Body, Episode, Exchange, Run
from replayproxy.errors import DamagedRecord, UnknownAddress, WrongUsage
from replayproxy.session.porting import STDIO, Chosen, Exported, default_name, file_name, note_run, written
from replayproxy.session.taking import NOT_WHOLE, Asked, Imported, Taker, key_of, run_name
from replayproxy.storage import Reader, open_store

ENDING = ".har"
LARGEST = 512 * 1024 * 1024
"""Bytes of a HAR file that is read: it is one JSON document, and must be held whole."""

_FACTS = ("task", "seed", "attempt", "group", "reward", "outcome", "ended_by", "declared")


# Out


def export_har(chosen: Sequence[Chosen], out: Path | None) -> Exported:
    """A file for one episode, a directory of them for a run."""
    done = Exported(form="har", runs=[one.run.name for one in chosen])
    named = [(one, episode) for one in chosen for episode in one.episodes]
    wanted = [(one, episode) for one, episode in named if not (one.whole and episode.name == UNATTRIBUTED)]
    for one, episode in named:
        if (one, episode) not in wanted:
            done.not_carried["requests without an episode"] += one.reader.count(episode)
    if len(wanted) == 1 and not (chosen[0].whole and out is None):
        path = out or Path(default_name(chosen, ENDING))
        with written(path) as file:
            _file(file, *wanted[0], done)
        done.paths.append(str(path))
    else:
        _directory(out or Path(default_name(chosen, "-har")), wanted, done)
    done.episodes = len(wanted)
    for one in chosen:
        note_run(one, done)
    return done


def _directory(path: Path, wanted: Sequence[tuple[Chosen, Episode]], done: Exported) -> None:
    if path == STDIO:
        raise WrongUsage(f"{len(wanted)} HAR files do not go to stdout", hint="name one episode")
    if path.exists() or path.is_symlink():
        raise WrongUsage(f"{path} exists already", hint="another --out, or remove it")
    names: set[str] = set()
    with _made_whole(path) as folder:
        for one, episode in wanted:
            base = name = file_name(episode.name)
            number = 2
            while name.casefold() in names:  # file systems that know no case, and two runs' episodes of one name
                name, number = f"{base}~{number}", number + 1
            names.add(name.casefold())
            with written(folder / (name + ENDING)) as file:
                _file(file, one, episode, done)
            done.paths.append(str(path / (name + ENDING)))


@contextmanager
def _made_whole(path: Path) -> Iterator[Path]:
    """A directory that is there with all its files, or not at all."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name[:50]}.", dir=path.absolute().parent))
    except OSError as error:
        raise WrongUsage(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error
    try:
        yield folder
        folder.rename(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _file(file: BinaryIO, one: Chosen, episode: Episode, done: Exported) -> None:
    """Entry by entry: memory holds one exchange."""
    document = har.log([], _about(one.run, episode), __version__)["log"]
    entries = document.pop("entries")
    file.write(b'{"log":' + json_bytes(document)[:-1] + b',"entries":[')
    for exchange in one.reader.exchanges(episode):
        if entries is not None:
            entries = None
        else:
            file.write(b",\n")
        whole = loaded(one.reader, exchange)
        file.write(json_bytes(har.entry(whole, origin_of(one.run, exchange), done.not_carried)))
        done.exchanges += 1
    file.write(b"]}}\n")
    done.not_carried["snapshots"] += len(one.reader.snapshots(episode))
    done.not_carried["connection events and marks"] += len(one.reader.events(episode))
    done.not_carried["task, seed, reward and the like (only under _replayproxy)"] += any(
        getattr(episode, name) not in (None, True) for name in _FACTS if name != "ended_by"
    )
    for words in [words for words, count in done.not_carried.items() if not count]:
        del done.not_carried[words]


def _about(run: Run, episode: Episode) -> dict[str, Any]:
    facts = {name: value for name in _FACTS if (value := getattr(episode, name)) is not None}
    envs = {name: wiring.upstream for name, wiring in run.envs.items()} | dict(episode.envs)
    aliases = [list(pair) for pair in episode.aliases]
    return {
        "run": run.name, "episode": episode.name, **facts, "aliases": aliases, "meta": dict(episode.meta),
        "state": episode.state.value, "envs": envs, "secrets": run.config.get("secrets"),
        **({"annotated": dict(episode.annotated)} if episode.annotated else {}),
    }  # fmt: skip


def loaded(reader: Reader, exchange: Exchange) -> Exchange:
    """With everything that lies apart."""

    def whole(body: Body | None) -> Body | None:
        return body if body is None or body.inline is not None else replace(body, inline=reader.body(body))

    request, response, talk = exchange.request, exchange.response, exchange.websocket
    return replace(
        exchange,
        request=replace(request, body=whole(request.body)),
        response=response and replace(response, body=whole(response.body)),
        websocket=talk and replace(talk, messages=tuple(reader.messages(talk)), log=None),
    )


def origin_of(run: Run, exchange: Exchange) -> str:
    """Where the request went: scheme and authority."""
    wiring = run.envs.get(exchange.env)
    upstream = exchange.upstream or (wiring.upstream if wiring else "")
    scheme, separator, rest = upstream.partition("://")
    if not separator:
        return f"http://{exchange.env}.invalid"
    return f"{scheme}://{rest.partition('/')[0]}"


# In


def looks_like_json(head: bytes) -> bool:
    """Whether a file that begins so may be a JSON object."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"


def har_files(folder: Path) -> list[tuple[Path, str]]:
    """The HAR files of an exported run, by name."""
    files = sorted(path for path in folder.glob(f"*{ENDING}") if path.is_file())
    if not files:
        raise UnknownAddress(f"{folder} holds no {ENDING} file")
    return [(path, str(path)) for path in files]


def take_hars(asked: Asked, files: Sequence[tuple[Path, str]], store: Path) -> Imported:
    """Each file is an episode of one run. Raises WrongUsage for what is no HAR, DamagedRecord for JSON that is cut."""
    read = [(path, name, _parsed(path, name)) for path, name in files]
    told = Imported(form="har")
    with open_store(store, create=True) as target:
        first = _own(read[0][2])
        asked_path = asked.path if asked.path != STDIO else Path("stdin")
        own_run = first.text("run", "") if first else ""
        key = key_of(first.given.get("secrets")) if first else None
        taker = Taker(target, asked, run_name(asked, own_run or None, asked_path), told, key=key)
        for path, name, document in read:
            try:
                _take(taker, document, path if name != "stdin" else Path("stdin"))
            except NotHar as error:
                raise WrongUsage(f"{name} cannot be imported: {error}") from error
        taker.done()
    return told


def _parsed(path: Path, name: str) -> Members:
    size = path.stat().st_size
    if size > LARGEST:
        raise WrongUsage(f"{name} has {size:,} bytes; a HAR of at most {LARGEST:,} is read")
    try:
        document = orjson.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise DamagedRecord(f"{name} is no JSON, or it is cut: {error}", hint="export it again") from error
    try:
        log = Members(document, "the document").object("log", None)
        if log is None or not isinstance(log.given.get("entries"), list):
            raise WrongUsage(f"{name} is JSON and no HAR: it has no log.entries")
    except NotHar as error:
        raise WrongUsage(f"{name} is JSON and no HAR: {error}") from error
    return log


def _own(log: Members) -> Members | None:
    """What we put aside, where the file is ours and of a format that is known."""
    aside = log.given.get("_replayproxy")
    if not isinstance(aside, dict) or aside.get("format") != har.FORMAT:
        return None
    return Members(aside, "log._replayproxy")


def _take(taker: Taker, log: Members, path: Path) -> None:
    own = _own(log)
    stem = path.name.removesuffix(path.suffix)
    episode = Episode(key=0, run_key=0, name=stem)
    if own is not None:
        episode = _episode(own, stem)
        for env, origin in own.object("envs", {}).given.items():
            if isinstance(origin, str):
                scheme, separator, rest = origin.partition("://")
                if separator:
                    taker.knows(f"{scheme}://{rest.partition('/')[0]}", env)
    name = taker.episode(episode)
    listed = [
        read_entry(entry, number, taker.env_of, taker.told.notes, own=own is not None)
        for number, entry in enumerate(log.items("entries"), 1)
    ]
    for exchange in sorted(listed, key=lambda one: one.order):
        taker.exchange(name, exchange)


def _episode(own: Members, stem: str) -> Episode:
    kinds = {"task": str, "seed": int, "attempt": int, "group": str, "outcome": str, "ended_by": str}
    facts: dict[str, Any] = {
        name: own.need(name, kind) for name, kind in kinds.items() if own.given.get(name) is not None
    }
    if own.given.get("reward") is not None:
        facts["reward"] = own.number("reward", 0.0)
    aliases = tuple((str(rule), str(shown)) for rule, shown in _pairs(own))
    whole = own.text("state", "sealed") == "sealed"
    return Episode(
        key=0, run_key=0, name=own.text("episode", stem), meta=dict(own.object("meta", {}).given), aliases=aliases,
        declared=own.given.get("declared") is not False, faults=() if whole else (NOT_WHOLE,), **facts,
    )  # fmt: skip


def _pairs(own: Members) -> list[list[Any]]:
    listed = own.items("aliases")
    if any(not isinstance(pair, list) or len(pair) != 2 for pair in listed):
        raise NotHar("log._replayproxy.aliases are no pairs")
    return listed
