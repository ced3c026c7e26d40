"""An archive with right checksums whose maker meant harm: refused in one line, whatever is in it."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from replayproxy.core.canonical import body_of, digest
from replayproxy.core.values import Body, Episode, Run, Seal, Snapshot
from replayproxy.errors import DamagedRecord, WrongUsage
from replayproxy.storage import Reader, cold, open_store
from replayproxy.storage import archive as module
from replayproxy.storage.archive import MAGIC, Archive, ArchiveWriter, open_archive
from replayproxy.storage.codec import encode_exchange
from replayproxy.storage.frame import checksum, framed, seal_blob, seal_record
from replayproxy.storage.intake import Intake
from replayproxy.storage.layout import episode_key, exchange_key, snapshot_key, u64
from replayproxy.storage.packing import NOBODY
from replayproxy.storage.unpacking import unpack
from replayproxy.testing import episode, exchange, run, snapshot

type Frame = tuple[bytes, bytes, bytes]


def a_run(made: Run | None = None) -> Frame:
    return b"R", u64(1), cold.encode(made or run("r", key=1))


def an_episode(made: Episode | None = None, key: bytes = episode_key(1, 1)) -> Frame:
    return b"E", key, cold.encode_episode(made or episode("e", key=1, run_key=1), NOBODY)


def an_exchange(**more: Any) -> Frame:
    one = replace(exchange(), **more)
    return b"X", exchange_key(1, exchange().order), encode_exchange(one)


def a_snapshot(shot: Snapshot) -> Frame:
    return b"S", snapshot_key(1, 0), cold.encode(shot)


def bomb(size: int) -> bytes:
    """A record whose few bytes become many."""
    return packed(bytes(size), level=19)


def packed(content: bytes, level: int = 3, dictionary: int = 0) -> bytes:
    squeezed = zstandard.ZstdCompressor(level=level).compress(content)
    return framed(0, dictionary, checksum(0, content), squeezed)


def nested(depth: int) -> bytes:
    text = b'{"key":1,"name":"x","opened_wall":0,"meta":{"a":' + b"[" * depth + b"]" * depth + b"}}"
    return packed(len(text).to_bytes(4, "big") + text)


APART = Body(size=9, digest=b"x" * 32, inline=None, pieces=(b"y" * 32,))
LOOSE_END = digest(b"no node of a tree")

HOSTILE: dict[str, tuple[list[Frame], str]] = {
    "a bomb": ([a_run(), an_episode(), (b"X", exchange_key(1, (0, 0)), bomb(300_000_000))], "at most 268,435,456"),
    "a bomb for a run": ([(b"R", u64(1), bomb(300_000_000))], "at most 268,435,456"),
    "a bomb for a blob": ([a_run(), (b"B", digest(b""), b"\x01" + bomb(300_000_000)[26:])], "at most 268,435,456"),
    "a name of another type": ([a_run(replace(run(key=1), name=5))], "name is of the wrong type"),  # type: ignore[arg-type]
    "a name that is a path": ([a_run(run("../../etc/x", key=1))], None),  # type: ignore[dict-item]
    "wirings that are none": (
        [a_run(), an_episode(), (b"R", u64(2), seal_record({"key": 2, "name": "x", "opened_wall": 0, "envs": [1]}))],
        "shape is wrong",
    ),
    "nested too deeply": ([(b"R", u64(1), nested(5000))], "cannot be decoded"),
    "an episode of no run": ([a_run(), an_episode(episode("e", key=1, run_key=9), episode_key(9, 1))], "run is not"),
    "a dictionary": (
        [a_run(), an_episode(), (b"X", exchange_key(1, (0, 0)), packed(b"", dictionary=1))], "not kept|is missing"
    ),
    "an exchange of no episode": ([a_run(), an_exchange()], "it has records, and is not there itself"),
    "another's key": ([a_run(), an_episode(), (b"X", exchange_key(1, (7, 7)), an_exchange()[2])], "key of another"),
    "a record under a run's key": ([(b"R", u64(2), a_run()[2])], "key of another record"),
    "a field that is no pair": (
        [a_run(), an_episode(), (b"X", exchange_key(1, (0, 0)), seal_record([0, 0, "app", "main"]))],
        "shape is wrong",
    ),
    "a time that is text": ([a_run(), an_episode(), an_exchange(held_ns="x")], "held_ns is of the wrong type"),
    "pieces that are not there": (
        [a_run(), an_episode(), an_exchange(request=replace(exchange().request, body=APART))],
        "1 of 1 pieces",
    ),
    "a state that is not there": ([a_run(), an_episode(), a_snapshot(snapshot(0, b"z" * 32))], "nodes of its state"),
    "a state that is none": (
        [a_run(), an_episode(), (b"B", LOOSE_END, seal_blob(b"no node of a tree")), a_snapshot(snapshot(0, LOOSE_END))],
        "nodes of its state",
    ),
    "a blob under another's address": ([a_run(), (b"B", b"q" * 32, seal_blob(b"x"))], "content does not fit"),
    "a seal that lies": (
        [a_run(), an_episode(replace(episode("e", key=1, run_key=1), state="sealed",  # type: ignore[arg-type]
                                     seal=Seal(exchanges=5, snapshots=0, chain=b"")))],
        "sealed with 5 exchanges",
    ),
    "a check that is no object": ([a_run(), (b"C", u64(1), seal_record([1]))], "no object"),
    "the same run twice": ([a_run(), a_run()], "repeats an earlier one"),
    "two runs of one name": ([a_run(), (b"R", u64(2), cold.encode(run("r", key=2)))], "in it twice"),
    "an unknown frame": ([(b"Q", b"", b"")], "no frame begins"),
    "a key of another length": ([(b"X", b"short", b"")], "no frame begins"),
}  # fmt: skip


def made(path: Path, frames: list[Frame]) -> Path:
    with path.open("wb") as out:
        archive = ArchiveWriter(out)
        for frame in frames:
            _put(archive, *frame)
        archive.end()
    return path


def _put(archive: ArchiveWriter, kind: bytes, key: bytes, value: bytes) -> None:
    """Past the writer's own scruples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RECORD_MOST", 1 << 40)
        patch.setitem(module.KINDS, b"Q", "runs")
        archive.put(kind, key, value)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_in_it_is_looked_at_before_it_is_believed(tmp_path: Path, name: str) -> None:
    frames, why = HOSTILE[name]
    path = made(tmp_path / "x.replay", frames)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if why is None:
        _refused_at_import_or_harmless(path, tmp_path)
        return
    with pytest.raises(DamagedRecord, match=why) as refused:
        open_archive(path).close()
    assert "\n" not in str(refused.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "kB"


def _refused_at_import_or_harmless(path: Path, folder: Path) -> None:
    try:
        archive: Archive = open_archive(path)
    except DamagedRecord:
        return
    with archive, open_store(folder / "t", create=True) as store:
        assert Reader(archive).runs()
        with pytest.raises(WrongUsage, match="cannot name a run"):
            unpack(archive, Intake(store))
        assert store.reader().runs() == []
    assert sorted(one.name for one in folder.iterdir()) == ["t", "x.replay"]


def test_a_frame_that_claims_to_be_longer_than_the_file_takes_no_memory(tmp_path: Path) -> None:
    path = made(tmp_path / "x.replay", [a_run()])
    data = bytearray(path.read_bytes())
    at = len(MAGIC) + 8 + 3
    data[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(DamagedRecord, match="is cut, or the frame at byte 28 is damaged"):
        open_archive(path)


def test_a_record_that_no_archive_takes_is_refused_at_export(tmp_path: Path) -> None:
    with (tmp_path / "x.replay").open("wb") as out, pytest.raises(WrongUsage, match="does not go into an archive"):
        ArchiveWriter(out).put(b"X", exchange_key(1, (0, 0)), bomb(300_000_000))


def test_the_harmless_of_this_page_is_taken(tmp_path: Path) -> None:
    held = replace(exchange().request, body=body_of(b"x"))
    with open_archive(made(tmp_path / "x.replay", [a_run(), an_episode(), an_exchange(request=held)])) as archive:
        reader = Reader(archive)
        assert reader.exchange(reader.episode(reader.run("r"), "e"), 1).request.body == body_of(b"x")
