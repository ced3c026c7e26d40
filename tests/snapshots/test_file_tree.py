"""`dir:` snapshots: files, links and directories come back, whatever their names; untouched files are not read."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core import prolly
from replayproxy.errors import WrongUsage
from replayproxy.state import Changes, KeepsAside, Provider, Reading, RestoreFailed, StateUnreadable
from replayproxy.state.conformance import conform
from replayproxy.state.growing import GrowingState
from replayproxy.state.loader import load


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    (made / "cal/empty").mkdir(parents=True)
    (made / "a.txt").write_text("hello")
    (made / "cal/1.ics").write_bytes(b"BEGIN\r\n")
    (made / "cal/same.ics").write_bytes(b"BEGIN\r\n")
    (made / "link").symlink_to("cal/1.ics")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    return made


def provider(root: Path, options: str = "") -> Provider:
    return load("files", f"dir:{root}{options}").provider


def files(root: Path, options: str = "") -> dict[str, Any]:
    return cast("dict[str, Any]", provider(root, options).capture().rows["files"])


def through(rows: Any) -> Any:
    """Rows as they come out of a store."""
    tree = prolly.build(rows)
    return prolly.exact(tree.root, tree.nodes.__getitem__)


def restored(root: Path, reading: Reading, options: str = "") -> None:
    cast("KeepsAside", provider(root, options)).restore_whole(through(reading.rows), through(reading.aside))


def listing(root: Path) -> list[Any]:
    found = []
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found.append((path, status.st_mode, status.st_mtime_ns, status.st_uid, content))
    return found


def test_it_meets_the_contract(root: Path) -> None:
    def change() -> None:
        (root / "a.txt").write_text("other")
        (root / "cal/1.ics").unlink()
        (root / "new").mkdir()

    checks = conform(lambda: provider(root), write=True, change=change, broken=lambda: provider(root.parent / "none"))
    assert [check for check in checks if check.outcome != "ok"] == []


def test_rows_are_mode_size_and_hash_by_path(root: Path) -> None:
    assert files(root) == {
        "a.txt": {"mode": "0644", "size": 5, "hash": hashlib.sha256(b"hello").hexdigest()},
        "cal/": {"mode": "0755"},
        "cal/1.ics": {"mode": "0644", "size": 7, "hash": hashlib.sha256(b"BEGIN\r\n").hexdigest()},
        "cal/empty/": {"mode": "0755"},
        "cal/same.ics": {"mode": "0644", "size": 7, "hash": hashlib.sha256(b"BEGIN\r\n").hexdigest()},
        "link": {"link": "cal/1.ics"},
        "run.sh": {"mode": "0755", "size": 10, "hash": hashlib.sha256(b"#!/bin/sh\n").hexdigest()},
    }


def test_a_restore_brings_back_everything_times_included(root: Path) -> None:
    os.utime(root / "cal/1.ics", ns=(1_600_000_000_123_456_789,) * 2)
    os.utime(root / "cal/empty", ns=(1_500_000_000_000_000_000,) * 2)
    before, reading = listing(root), provider(root).capture()
    (root / "a.txt").unlink()
    (root / "a.txt").mkdir()
    (root / "a.txt/inner").write_text("x")
    (root / "cal/1.ics").write_text("changed")
    (root / "cal/empty").rmdir()
    (root / "cal/empty").write_text("a file now")
    (root / "link").unlink()
    (root / "link").symlink_to("/etc")
    (root / "run.sh").chmod(0o600)
    (root / "extra/deep").mkdir(parents=True)
    (root / "extra/deep/file").write_text("y")
    restored(root, reading)
    assert listing(root) == before


def test_times_are_no_part_of_the_state(root: Path) -> None:
    before = prolly.build(provider(root).capture().rows).root
    os.utime(root / "a.txt", (1, 1))
    assert prolly.build(provider(root).capture().rows).root == before


def test_a_tree_can_be_restored_where_nothing_is_left(root: Path, tmp_path: Path) -> None:
    before, reading = listing(root), provider(root).capture()
    root.rename(tmp_path / "old")
    restored(root, reading)
    assert listing(root) == before


def test_names_that_are_not_utf8_come_back(root: Path) -> None:
    odd = [b"caf\xe9", b"back\\slash", b"back\\xe9", "é".encode(), b"new\nline", b" "]
    for name in odd:
        (root / os.fsdecode(name)).write_bytes(name)
    assert "caf\\xe9" in files(root)
    assert "back\\\\xe9" in files(root)
    before, reading = listing(root), provider(root).capture()
    for name in odd:
        (root / os.fsdecode(name)).unlink()
    restored(root, reading)
    assert listing(root) == before


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (",exclude=*.ics", {"a.txt", "cal/", "cal/empty/", "link", "run.sh"}),
        (",exclude=cal", {"a.txt", "link", "run.sh"}),
        (",exclude=cal/*", {"a.txt", "cal/", "link", "run.sh"}),
        (",exclude=cal,exclude=link,exclude=*.sh", {"a.txt"}),
    ],
)
def test_what_is_excluded_is_neither_read_nor_touched(root: Path, options: str, left: set[str]) -> None:
    reading = provider(root, options).capture()
    assert set(reading.rows["files"]) == left
    gone = [path for path, *_ in listing(root) if path.is_file() and path.name == "1.ics"]
    gone[0].write_text("kept as it is")
    restored(root, reading, options)
    assert (root / "cal/1.ics").read_text() == "kept as it is"


def test_untouched_files_are_not_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in root.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (1, 1))
    monkeypatch.setattr("time.time_ns", lambda: 10**20)  # as if all had been at rest for long
    one = provider(root)
    one.capture()
    (root / "a.txt").write_text("HELLO")
    monkeypatch.setattr(type(one), "_content", counted := Counted(type(one)._content))
    changes = one.capture()
    assert counted.paths == [b"a.txt"]
    assert isinstance(changes.rows, Changes)
    assert [change.key for change in changes.rows.rows] == ["a.txt"]
    assert one.capture().rows == Changes()


class Counted:
    def __init__(self, original: Any) -> None:
        self.paths: list[bytes] = []
        self._original = original

    def __get__(self, one: Any, owner: Any) -> Any:
        def call(path: bytes) -> Any:
            self.paths.append(path)
            return self._original(one, path)

        return call


def test_a_change_within_the_same_clock_tick_is_seen(root: Path) -> None:
    one = provider(root)
    seen = []
    for number in range(20):
        (root / "a.txt").write_text(f"{number:05}")
        os.utime(root / "a.txt", (5, 5))
        reading = one.capture()
        if number:
            seen.append(reading.rows.rows[0].after["hash"])
        else:
            seen.append(reading.rows["files"]["a.txt"]["hash"])
    assert seen == [hashlib.sha256(f"{number:05}".encode()).hexdigest() for number in range(20)]


ACTIONS = ["write", "same", "remove", "mkdir", "chmod", "link", "touch", "move"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_changes_always_add_up_to_the_whole_state(actions: list[tuple[str, int, int]]) -> None:
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        one, grown = provider(root), GrowingState()
        grown.take(one.capture())
        for action, a, b in actions:
            path, other = root / str(a), root / str(b)
            if (action in ("write", "same", "mkdir", "link") and path.exists()) or path.is_symlink():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            if action in ("write", "same"):
                path.write_text(str(b) if action == "write" else "same")
            elif action == "mkdir":
                (path / "in").mkdir(parents=True)
            elif action == "link":
                path.symlink_to(str(b))
            elif action in ("chmod", "touch") and path.exists():
                path.chmod(0o700 + b) if action == "chmod" else os.utime(path, (b, b))
            elif action == "move" and path.is_file() and not other.is_dir():
                path.rename(other)
            seen = grown.take(one.capture())
            fresh = GrowingState().take(provider(root).capture())
            assert (seen.root, seen.rows) == (fresh.root, fresh.rows)
            assert seen.aside == fresh.aside


def test_files_that_vanish_while_they_are_read_are_no_error(root: Path) -> None:
    stop = threading.Event()

    def churn() -> None:
        rng = random.Random(1)
        while not stop.is_set():
            path = root / "cal" / str(rng.randrange(20))
            if path.exists():
                path.unlink()
            else:
                path.write_text("x" * rng.randrange(5000))

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        one = provider(root)
        readings = [one.capture() for _ in range(40)]
    finally:
        stop.set()
        thread.join()
    assert any(isinstance(reading.rows, Changes) and reading.rows.rows for reading in readings)


def test_sockets_and_pipes_are_no_state(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(root)  # the path of a socket must be short
        listening.bind("sock")
        found = files(root)
    assert "pipe" not in found
    assert "sock" not in found


def test_large_trees_share_what_they_have_in_common(root: Path) -> None:
    (root / "big").write_bytes(random.Random(1).randbytes(3_000_000))
    first = GrowingState()
    before = first.take(provider(root).capture())
    (root / "copy").write_bytes((root / "big").read_bytes() + b"more")
    after = GrowingState().take(provider(root).capture())
    added = sum(len(node) for address, node in after.nodes.items() if address not in before.nodes)
    assert added < 200_000


def test_what_cannot_be_read_is_no_state(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StateUnreadable, match="No such file"):
        provider(tmp_path / "none").capture()
    with pytest.raises(StateUnreadable, match="Not a directory"):
        provider(root / "a.txt").capture()

    def refused(*_: Any, **__: Any) -> int:
        raise PermissionError(13, "Permission denied")

    one = provider(root)
    monkeypatch.setattr("os.open", refused)
    with pytest.raises(StateUnreadable, match=r"a\.txt: Permission denied"):
        one.capture()


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/etc/x", "", "link/x", "cal/none/x", "a\0b"])
def test_a_foreign_recording_cannot_write_elsewhere(root: Path, path: str) -> None:
    rows = {
        "files": {"link": {"link": "/tmp"}, "cal/": {"mode": "0755"}, path: {"mode": "0644", "size": 0, "hash": "0"}}
    }
    before = listing(root)
    with pytest.raises(RestoreFailed):
        cast("KeepsAside", provider(root)).restore_whole(rows, {"contents": {"0": b""}})
    assert listing(root) == before


def test_a_state_without_the_contents_cannot_be_written(root: Path) -> None:
    rows = through(provider(root).capture().rows)
    (root / "a.txt").write_text("x")
    with pytest.raises(RestoreFailed, match=r"does not hold the content of a\.txt"):
        provider(root).restore(rows)


def test_the_path_is_filled_in(root: Path) -> None:
    assert load("x", f"dir:{root}/{{task}}", context={"task": "cal"}).provider.capture().rows["files"]["1.ics"]
    with pytest.raises(WrongUsage, match="lead elsewhere"):
        load("x", f"dir:{root}/{{task}}", context={"task": ".."})
