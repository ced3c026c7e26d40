from __future__ import annotations

import errno
import os
import shutil
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from replayproxy.errors import Exit, StoreTrouble, UnknownAddress, WrongUsage
from replayproxy.storage import Store, default_path, open_store
from replayproxy.storage.environment import why_not_whole
from replayproxy.storage.layout import FORMAT
from replayproxy.testing import episode, exchange, run

BARE = """
import ctypes, os, sys
class Head(ctypes.Structure): _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
class Caps(ctypes.Structure): _fields_ = [("a", ctypes.c_uint32), ("b", ctypes.c_uint32), ("c", ctypes.c_uint32)]
if os.geteuid() == 0:  # root may write anywhere; without its capabilities it may not
    assert ctypes.CDLL(None).capset(ctypes.byref(Head(0x20080522, 0)), ctypes.byref((Caps * 2)())) == 0
"""


def filled(path: Path) -> Path:
    with open_store(path, create=True) as store:
        writer = store.writer()
        made = writer.open_run(run("r"))
        rollout = writer.open_episode(episode("e", run_key=made.key))
        for at in range(3):
            writer.put_exchange(rollout.key, exchange(body=b"x" * 3000, at_ms=at))
        writer.seal(rollout).result(5)
        writer.close()
    return path


def shot(path: Path) -> tuple[bytes, int]:
    data = path / "data.mdb"
    return data.read_bytes(), data.stat().st_mtime_ns


def test_a_new_store_is_private_and_ignored_by_git(tmp_path: Path) -> None:
    open_store(tmp_path / "a" / "s", create=True).close()
    assert stat.S_IMODE((tmp_path / "a" / "s").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "s" / "data.mdb").stat().st_mode) == 0o600
    assert (tmp_path / "a" / "s" / ".gitignore").read_text() == "*\n"


def test_the_default_store_comes_from_the_environment() -> None:
    assert default_path({}) == Path(".replayproxy")
    assert default_path({"REPLAYPROXY_STORE": "/x"}) == Path("/x")


def test_a_missing_store_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(UnknownAddress, match="there is no store at"):
        open_store(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_does_not_become_a_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(WrongUsage, match=r"not empty \(thesis.tex\)"):
        open_store(tmp_path, create=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_way_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("")
    with pytest.raises(WrongUsage, match="cannot hold a store"):
        open_store(tmp_path / "s", create=True)


@pytest.mark.parametrize("place", ["/proc/no-such-place", "/dev/null/s", "n" * 300])
@pytest.mark.parametrize("create", [True, False])
def test_a_place_that_can_hold_no_store_is_wrong_usage(place: str, create: bool, tmp_path: Path) -> None:
    with pytest.raises((WrongUsage, UnknownAddress)) as told:
        open_store(tmp_path / place, create=create)
    assert told.value.hint


def test_opening_and_reading_changes_no_byte(tmp_path: Path) -> None:
    path = filled(tmp_path / "s")
    before = shot(path)
    with open_store(path) as store:
        reader = store.reader()
        assert reader.trace(reader.run("r"), reader.episode(reader.run("r"), "e")).exchanges
    with open_store(path, create=True) as store:
        assert store.reader().runs()
    assert shot(path) == before


def test_one_directory_is_opened_once_in_a_process(tmp_path: Path) -> None:
    path = filled(tmp_path / "s")
    (tmp_path / "link").symlink_to(path)
    with open_store(path) as one, open_store(tmp_path / "link") as two:
        assert one.env is two.env
        one.close()
        assert two.reader().runs()
    with pytest.raises(ValueError, match="closed"):
        one.reader()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "s")
    with open_store(path) as store, store.env.writing() as txn:
        txn.put(b"format", (FORMAT + 1).to_bytes(4, "big"), db=store.env.dbs["meta"])
    before = shot(path)
    with pytest.raises(StoreTrouble, match="written by a newer replayproxy") as refused:
        open_store(path)
    assert refused.value.exit == Exit.STORE
    assert shot(path) == before


def test_an_empty_or_foreign_data_file_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"x" * 100, b"x" * 10_000):
        (tmp_path / "data.mdb").write_bytes(content)
        with pytest.raises(StoreTrouble, match=r"is cut|is no LMDB file"):
            open_store(tmp_path)
        with pytest.raises(StoreTrouble):
            open_store(tmp_path, create=True)
        assert (tmp_path / "data.mdb").read_bytes() == content


@pytest.mark.parametrize("kept", [0.999, 0.7, 0.3, 0.01])
def test_a_cut_file_is_refused_before_it_is_mapped(tmp_path: Path, kept: float) -> None:
    path = filled(tmp_path / "s")
    size = (path / "data.mdb").stat().st_size
    os.truncate(path / "data.mdb", int(size * kept))
    with pytest.raises(StoreTrouble, match="is cut"):
        open_store(path)


def test_a_longer_file_is_whole(tmp_path: Path) -> None:
    path = filled(tmp_path / "s")
    os.truncate(path / "data.mdb", (path / "data.mdb").stat().st_size + 9999)
    assert why_not_whole(path) is None
    with open_store(path) as store:
        assert store.reader().runs()


@pytest.mark.parametrize("page", [0, 1])
def test_a_damaged_meta_page_is_refused(tmp_path: Path, page: int) -> None:
    path = filled(tmp_path / "s")
    with (path / "data.mdb").open("r+b") as data:
        data.seek(page * 4096 + 16)
        data.write(struct.pack("=I", 0xDEADBEEF))
    with pytest.raises(StoreTrouble, match=r"damaged|no LMDB file"):
        open_store(path)


def test_a_read_only_directory_can_be_read_and_not_written(tmp_path: Path) -> None:
    path = filled(tmp_path / "s")
    (path / "lock.mdb").unlink()  # as after a copy
    for entry in path.iterdir():
        entry.chmod(0o400)
    path.chmod(0o500)
    probe = BARE + (
        "from pathlib import Path\n"
        "from replayproxy.storage import open_store\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "reader = store.reader()\n"
        "run = reader.run('r')\n"
        "print(len(reader.trace(run, reader.episode(run, 'e')).exchanges))\n"
        "try: store.writer()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    if os.geteuid() == 0 and sys.platform != "linux":
        pytest.skip("root may write anywhere here")
    try:
        done = subprocess.run([sys.executable, "-c", probe, str(path)], capture_output=True, text=True, check=False)
    finally:
        path.chmod(0o700)
    assert done.stdout.splitlines() == ["3", f"StoreTrouble {path} is read-only"], done.stderr


def test_a_store_opened_before_a_fork_is_refused_in_the_child(tmp_path: Path) -> None:
    path = filled(tmp_path / "s")
    probe = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from replayproxy.storage import open_store\n"
        "store = open_store(Path(sys.argv[1])); writer = store.writer()\n"
        "if (child := os.fork()) == 0:\n"
        "    for what in (store.reader().runs, writer.flush, lambda: open_store(Path(sys.argv[1]))):\n"
        "        try: what(); print('no error')\n"
        "        except Exception as error: print(type(error).__name__)\n"
        "    writer.close(); store.close(); sys.stdout.flush(); os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "writer.flush().result(5); writer.close(); store.close(); print('parent done')\n"
    )
    done = subprocess.run([sys.executable, "-c", probe, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["StoreTrouble"] * 3 + ["parent done"], done.stderr


def test_a_copy_made_while_nobody_writes_is_a_store(tmp_path: Path) -> None:
    shutil.copytree(filled(tmp_path / "s"), tmp_path / "copy")
    with open_store(tmp_path / "copy") as store:
        assert [one.name for one in store.reader().runs()] == ["r"]


def test_two_processes_may_create_one_store(tmp_path: Path) -> None:
    probe = (
        "import sys\nfrom pathlib import Path\nfrom replayproxy.storage import open_store\n"
        "sys.stdin.readline(); open_store(Path(sys.argv[1]), create=True).close(); print('made')\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", probe, str(tmp_path / "s")], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]  # fmt: skip
    ends = [child.communicate("\n") for child in children]
    assert [out for out, _ in ends] == ["made\n"] * 3, ends


def test_a_closed_store_can_be_opened_again(store: Store) -> None:
    store.close()
    with open_store(store.path) as again:
        assert again.reader().runs() == []


def test_a_full_disk_is_trouble_with_the_store_before_anything_is_recorded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(StoreTrouble, match="no space left on device"):
            store.writer()
    store.writer().close()
