"""`export`: chosen runs and episodes into files that others read, and what those files cannot hold."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from replayproxy.core.names import encode_name
from replayproxy.core.values import UNATTRIBUTED, Episode, EpisodeState, Run
from replayproxy.errors import StoreTrouble, UnknownAddress, WrongUsage
from replayproxy.session.look import Stores
from replayproxy.session.secrecy import Kept
from replayproxy.storage import Reader
from replayproxy.storage.archive import ArchiveWriter
from replayproxy.storage.packing import Packer

STDIO = Path("-")
_FILE_NAME = 150


@dataclass(slots=True, kw_only=True)
class Chosen:
    """One run, and what of it was named. `whole`: the run itself was."""

    reader: Reader
    run: Run
    episodes: list[Episode] = field(default_factory=list)
    whole: bool = False


@dataclass(slots=True, kw_only=True)
class Exported:
    """What was written, and what had no place in it: words -> how often."""

    form: str
    paths: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    episodes: int = 0
    exchanges: int = 0
    not_carried: Counter[str] = field(default_factory=Counter)
    secrets_kept: bool = False
    incomplete: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.form,
            "paths": self.paths,
            "runs": self.runs,
            "episodes": self.episodes,
            "exchanges": self.exchanges,
            "secrets_kept": self.secrets_kept,
            "incomplete": self.incomplete,
            "not_carried": [{"what": what, "count": count} for what, count in sorted(self.not_carried.items())],
        }


def note_run(one: Chosen, done: Exported) -> None:
    """What of a run itself a file of exchanges has no place for."""
    _note_state(one, done)
    wired = any(wiring.reset or wiring.reads for wiring in one.run.envs.values()) or "rules" in one.run.config
    done.not_carried["wiring of runs: resets, declared reads, rules"] += wired
    done.not_carried["saved checks"] += one.whole and one.reader.check(one.run) is not None
    done.not_carried = +done.not_carried


def _note_state(one: Chosen, done: Exported) -> None:
    done.secrets_kept |= holds_secrets(one)
    done.incomplete += [
        f"{one.run.name}/{episode.name}"
        for episode in one.episodes
        if episode.name != UNATTRIBUTED and episode.state is EpisodeState.INCOMPLETE
    ]


def holds_secrets(one: Chosen) -> bool:
    """Whether credentials stand in it as they were sent."""
    return Kept.of(one.run).kept and any(map(one.reader.count, one.episodes))


def choose(stores: Stores, addresses: Sequence[str]) -> list[Chosen]:
    """The runs that the addresses name, each once, with the episodes that are meant. Raises UnknownAddress."""
    found: dict[tuple[int, int], Chosen] = {}
    for text in addresses:
        one = stores.find(text)
        at = one.resolved
        if at.finding is not None or at.seq is not None or at.snapshot is not None:
            raise WrongUsage(f"{text} cannot be exported alone", hint="name RUN or RUN/EPISODE")
        chosen = found.setdefault((id(one.reader), at.run.key), Chosen(reader=one.reader, run=at.run))
        if at.episode is None:
            chosen.whole = True
        elif at.episode.name not in {episode.name for episode in chosen.episodes}:
            chosen.episodes.append(at.episode)
    for chosen in found.values():
        if chosen.whole:
            chosen.episodes = chosen.reader.episodes(chosen.run) + bucket(chosen.reader, chosen.run)
    return list(found.values())


def bucket(reader: Reader, run: Run) -> list[Episode]:
    """The bucket of traffic without an episode, where there is one."""
    try:
        return [reader.episode(run, UNATTRIBUTED)]
    except UnknownAddress:
        return []


def export_archive(chosen: Sequence[Chosen], out: Path | None) -> Exported:
    """Everything of what was chosen, in one file."""
    done = Exported(form="archive", runs=[one.run.name for one in chosen])
    names = Counter(done.runs)
    if twice := next((name for name, times in names.items() if times > 1), None):
        raise WrongUsage(f"two runs named {twice!r} do not go into one archive", hint="export them one by one")
    path = out or Path(default_name(chosen, ".replay"))
    with written(path) as file:
        archive = ArchiveWriter(file)
        packer = Packer(archive)
        for one in chosen:
            packer.run(one.reader, one.run, one.episodes, whole=one.whole)
            _note_left(one, done)
        archive.end()
    done.paths.append(str(path))
    done.episodes, done.exchanges = packer.count["episodes"], packer.count["exchanges"]
    return done


def _note_left(one: Chosen, done: Exported) -> None:
    _note_state(one, done)
    if not one.whole and one.reader.check(one.run) is not None:
        done.not_carried["saved checks (they speak of whole runs)"] += 1
    for episode in one.episodes:
        if episode.state is EpisodeState.OPEN:
            done.not_carried["what is recorded from now on into episodes that are still open"] += 1


def default_name(chosen: Sequence[Chosen], ending: str) -> str:
    """The file's name when nobody says: that of the episode, or of the run."""
    if len(chosen) != 1:
        raise WrongUsage(f"{len(chosen)} runs need a name for their file", hint="--out PATH")
    one = chosen[0]
    sole = one.episodes[0].name if not one.whole and len(one.episodes) == 1 else None
    return file_name(sole or one.run.name) + ending


def file_name(name: str) -> str:
    """A recorded name as the name of a file, on any system: nothing in it is special, and it is never too long."""
    plain = encode_name(name).replace("~", "%7E")
    if plain.startswith((".", "-")):
        plain = f"%{ord(plain[0]):02X}{plain[1:]}"
    if len(plain) <= _FILE_NAME:
        return plain
    return f"{plain[:_FILE_NAME]}~{blake2b(name.encode(), digest_size=6).hexdigest()}"


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file that is there whole, for its owner only, or not at all; `-` is stdout. One that exists is never replaced.

    Raises WrongUsage where it cannot be made, StoreTrouble when the disk is full.
    """
    if path == STDIO:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists() or path.is_symlink():
        raise WrongUsage(f"{path} exists already", hint="another --out, or remove it")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", dir=path.absolute().parent)
    except OSError as error:
        raise WrongUsage(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error
    try:
        with os.fdopen(handle, "wb", buffering=1024 * 1024) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).rename(path)
    except OSError as error:
        raise StoreTrouble(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error
    finally:
        Path(name).unlink(missing_ok=True)
