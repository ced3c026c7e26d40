"""`import`: an archive, a HAR or a flow file into a store. What kind of file it is, its content says."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from replayproxy.errors import StoreTrouble, UnknownAddress, WrongUsage
from replayproxy.session.porting import STDIO
from replayproxy.storage import Store, open_store
from replayproxy.storage.archive import is_archive, open_archive
from replayproxy.storage.intake import Intake
from replayproxy.storage.unpacking import unpack

_HEAD = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the call says. `envs`: name -> origin, for files that know only addresses."""

    path: Path
    run: str | None = None
    append: bool = False


@dataclass(slots=True, kw_only=True)
class Imported:
    """What came in. `notes`: what was changed on the way, `left`: what was not taken; words -> how often."""

    form: str
    runs: list[str] = field(default_factory=list)
    episodes: int = 0
    exchanges: int = 0
    snapshots: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.form,
            "runs": self.runs,
            "episodes": self.episodes,
            "exchanges": self.exchanges,
            "snapshots": self.snapshots,
            "notes": _counted(self.notes),
            "not_imported": _counted(self.left),
        }


def _counted(words: Counter[str]) -> list[dict[str, Any]]:
    return [{"what": what, "count": count} for what, count in sorted(words.items())]


def import_file(asked: Asked, store: Path) -> Imported:
    """All of the file is in the store when it returns, or nothing of it.

    A file that is none of the kinds, and a name that is taken, are WrongUsage; one that is cut or damaged is
    StoreTrouble.
    """
    with _local(asked.path) as (path, name):
        if is_archive(_head(path, name)):
            return _archive(asked, path, store)
        raise WrongUsage(f"{name} is no archive, no HAR and no flow file of mitmproxy")


def _archive(asked: Asked, path: Path, store: Path) -> Imported:
    with open_archive(path) as archive, _made(store) as target:
        intake = Intake(target)
        told = unpack(archive, intake, name=asked.run, append=asked.append)
        intake.publish()
    return Imported(
        form="archive", runs=list(told.runs), episodes=told.count["episodes"], exchanges=told.count["exchanges"],
        snapshots=told.count["snapshots"], left=told.left,
    )  # fmt: skip


@contextmanager
def _made(path: Path) -> Iterator[Store]:
    with open_store(path, create=True) as store:
        yield store


@contextmanager
def _local(path: Path) -> Iterator[tuple[Path, str]]:
    """A file that can be read from any place, and how it is called: stdin is kept in a private file meanwhile."""
    if path != STDIO:
        yield path, str(path)
        return
    with tempfile.NamedTemporaryFile(prefix="replayproxy-") as kept:
        copied: BinaryIO = kept  # type: ignore[assignment]
        try:
            shutil.copyfileobj(sys.stdin.buffer, copied, 1024 * 1024)
            copied.flush()
        except OSError as error:
            raise StoreTrouble(f"stdin cannot be kept: {(error.strerror or str(error)).lower()}") from error
        yield Path(kept.name), "stdin"


def _head(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise UnknownAddress(f"{name} cannot be read: {(error.strerror or str(error)).lower()}") from error
