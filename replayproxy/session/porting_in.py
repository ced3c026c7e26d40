"""`import`: an archive, a HAR or a flow file into a store. What kind of file it is, its content says."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from replayproxy.errors import StoreTrouble, UnknownAddress, WrongUsage
from replayproxy.proxy.flowfile import looks_like_flows
from replayproxy.session.porting import STDIO
from replayproxy.session.porting_flow import take_flows
from replayproxy.session.porting_har import har_files, looks_like_json, take_hars
from replayproxy.session.secrecy import Kept
from replayproxy.session.taking import Asked, Imported
from replayproxy.storage import Reader, open_store
from replayproxy.storage.archive import is_archive, open_archive
from replayproxy.storage.intake import Intake
from replayproxy.storage.unpacking import unpack

_HEAD = 4096


def import_file(asked: Asked, store: Path) -> Imported:
    """All of the file is in the store when it returns, or nothing of it.

    A file that is none of the kinds, and a name that is taken, are WrongUsage; one that is cut or damaged is
    StoreTrouble.
    """
    if asked.path != STDIO and asked.path.is_dir():
        return take_hars(asked, har_files(asked.path), store)
    with _local(asked.path) as (path, name):
        head = _head(path, name)
        if is_archive(head):
            return _archive(asked, path, store)
        if looks_like_json(head):
            return take_hars(asked, [(path, name)], store)
        if looks_like_flows(head):
            return take_flows(asked, path, name, store)
        raise WrongUsage(f"{name} is no archive, no HAR and no flow file of mitmproxy")


def _archive(asked: Asked, path: Path, store: Path) -> Imported:
    if asked.envs:
        raise WrongUsage("an archive brings its environments with it", hint="leave --env out")
    with open_archive(path) as archive, open_store(store, create=True) as target:
        intake = Intake(target)
        told = unpack(archive, intake, name=asked.run, append=asked.append)
        intake.publish()
        kept = sum(Kept.of(run).kept for run in Reader(archive).runs())
    return Imported(
        notes=+Counter({"runs with their secrets as they were sent": kept}),
        form="archive", runs=list(told.runs), episodes=told.count["episodes"], exchanges=told.count["exchanges"],
        snapshots=told.count["snapshots"], left=told.left,
    )  # fmt: skip


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
