from __future__ import annotations

import errno
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from replayproxy.core import prolly
from replayproxy.core.values import EpisodeState
from replayproxy.errors import DamagedRecord, StoreTrouble, UnknownAddress
from replayproxy.storage import gc, locks, open_store
from replayproxy.storage.environment import Environment
from replayproxy.storage.gc import collect
from replayproxy.storage.intake import Intake
from replayproxy.storage.layout import COPY_FILE
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run, snapshot

SHARED = random.Random(1).randbytes(300_000)


def state(n: int) -> prolly.Built:
    return prolly.build({"deals": {str(key): {"n": n * (key % 7 == n), "title": "x" * 60} for key in range(200)}})


def fill(path: Path, runs: int = 3, episodes: int = 4, exchanges: int = 3) -> None:
    """Every run has bodies and states of its own, and some that all of them share."""
    with open_store(path, create=True) as store:
        writer = store.writer()
        for r in range(runs):
            made = writer.open_run(run(f"r{r}"))
            built = state(r)
            writer.put_nodes(built.nodes)
            for e in range(episodes):
                rollout = writer.open_episode(episode(f"e{e}", run_key=made.key))
                writer.put_snapshot(rollout.key, snapshot(0, built.root))
                for n in range(exchanges):
                    own = random.Random(f"{r}{e}{n}").randbytes(30_000)
                    writer.put_exchange(rollout.key, exchange(at_ms=n, body=SHARED if n == 0 else own))
                writer.seal(rollout).result(9)
            writer.put_check(made.key, {"run": made.name, "findings": [], "references": []})
            writer.put_trial(made.key, {"finding": "race-1", "wall": 5})
        writer.close()


def remove(path: Path, *addresses: str) -> None:
    with open_store(path) as store:
        writer, reader = store.writer(exclusive=False), store.reader()
        for address in addresses:
            at = reader.resolve(address)
            writer.remove(at.run.key, at.episode.key if at.episode else None)
        writer.close()


def content(path: Path) -> dict[str, tuple[bytes, ...]]:
    """Everything that is listed, with all that belongs to it; any damage raises."""
    found = {}
    with open_store(path) as store:
        reader = store.reader()
        for one in reader.runs():
            reader.check(one)
            for rollout in reader.episodes(one):
                trace = reader.trace(one, rollout, bodies=1 << 30)
                bodies = [x.response.body.inline or b"" for x in trace.exchanges if x.response and x.response.body]
                states = [repr(sorted(prolly.rows(s.root, reader.node).items())).encode()
                          for s in trace.snapshots if s.root]  # fmt: skip
                assert rollout.state is EpisodeState.SEALED
                found[f"{one.name}/{rollout.name}"] = (*bodies, *states)
    return found


def blobs(path: Path) -> int:
    return verify(path).read["blobs"]


def test_what_was_removed_is_gone_and_all_else_is_as_it_was(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    before, size = content(tmp_path / "s"), (tmp_path / "s/data.mdb").stat().st_size
    remove(tmp_path / "s", "r0", "r1/e2")
    freed = collect(tmp_path / "s")
    assert +freed.count >= Counter({"runs": 1, "episodes": 5, "exchanges": 15, "snapshots": 5, "checks": 1})
    assert freed.count["blobs"] > 5 * 2
    assert (freed.before, freed.after, freed.short) == (size, (tmp_path / "s/data.mdb").stat().st_size, "")
    assert freed.after < size * 0.7
    gone = {name for name in before if name.startswith("r0/")} | {"r1/e2"}
    assert content(tmp_path / "s") == {name: held for name, held in before.items() if name not in gone}
    report = verify(tmp_path / "s")
    assert report.damaged == []
    assert (report.read["runs"], report.read["episodes"], report.read["trials"]) == (2, 7, 2)
    assert not (tmp_path / "s" / COPY_FILE).exists()


def test_its_bytes_are_not_in_the_file_any_more(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", create=True) as store:
        writer = store.writer()
        made = writer.open_run(run("r"))
        for name in ("kept", "gone"):
            rollout = writer.open_episode(episode(name, run_key=made.key))
            for at in range(30):
                body = f"{name}-{at}-".encode() + random.Random(name).randbytes(3_000)  # too random to be compressed
                writer.put_exchange(rollout.key, exchange(at_ms=at, body=body))
            writer.seal(rollout).result(9)
        writer.close()
    needle = random.Random("gone").randbytes(3_000)[100:200]
    assert needle in (tmp_path / "s/data.mdb").read_bytes()
    remove(tmp_path / "s", "r/gone")
    collect(tmp_path / "s")
    assert needle not in (tmp_path / "s/data.mdb").read_bytes()
    assert random.Random("kept").randbytes(3_000)[100:200] in (tmp_path / "s/data.mdb").read_bytes()


def test_where_nothing_was_removed_nothing_is_written(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    collect(tmp_path / "s")
    first = (tmp_path / "s/data.mdb").read_bytes()
    assert +collect(tmp_path / "s").count == Counter()
    assert (tmp_path / "s/data.mdb").read_bytes() == first


def test_a_reference_of_a_check_is_kept_when_the_run_it_came_from_goes(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=2)
    root = state(0).root
    with open_store(tmp_path / "s") as store:
        writer, kept = store.writer(), store.reader().run("r1")
        writer.put_check(kept.key, {"run": "r1", "references": [{"root": root.hex()}], "note": "0" * 64})
        writer.close()
    remove(tmp_path / "s", "r0")
    collect(tmp_path / "s")
    with open_store(tmp_path / "s") as store:
        assert len(prolly.rows(root, store.reader().node)["deals"]) == 200


def test_the_last_check_goes_with_its_run(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=2)
    remove(tmp_path / "s", "r1")
    collect(tmp_path / "s")
    assert verify(tmp_path / "s").damaged == []
    with open_store(tmp_path / "s") as store:
        last = store.reader().last_check()
        assert last is not None
        assert last[0].name == "r0"


def test_while_somebody_writes_it_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    with open_store(tmp_path / "s") as store:
        before = (tmp_path / "s/data.mdb").read_bytes()
        recorder = store.writer()
        with pytest.raises(StoreTrouble, match=r"another recorder \(pid \d+\) is writing"):
            collect(tmp_path / "s")
        recorder.close()
        beside = store.writer(exclusive=False)
        with pytest.raises(StoreTrouble, match="another command is writing"):
            collect(tmp_path / "s")
        beside.close()
        taking = Intake(store)
        with pytest.raises(StoreTrouble, match="another command is writing"):
            collect(tmp_path / "s")
        del taking
    assert content(tmp_path / "s").keys() == {f"r{r}/e{e}" for r in (1, 2) for e in range(4)}
    assert len(before) == (tmp_path / "s/data.mdb").stat().st_size
    assert collect(tmp_path / "s").count["runs"] == 1


def test_nobody_begins_to_write_while_it_is_at_work(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=1)
    with open_store(tmp_path / "s") as store, locks.alone(store.path):
        with pytest.raises(StoreTrouble, match="gc is rewriting"):
            store.writer(exclusive=False)
        with pytest.raises(StoreTrouble, match="gc is rewriting"):
            Intake(store)
        with pytest.raises(StoreTrouble, match="another recorder"):
            store.writer()
    with open_store(tmp_path / "s") as store:
        store.writer().close()


def test_a_damaged_store_is_left_as_it_is(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=2)
    remove(tmp_path / "s", "r0")
    with open_store(tmp_path / "s") as store, store.env.writing() as txn, txn.cursor(store.env.dbs["exchanges"]) as at:
        assert at.last()
        at.put(at.key(), at.value()[:-1] + bytes((at.value()[-1] ^ 1,)))
    before = (tmp_path / "s/data.mdb").read_bytes()
    with pytest.raises(StoreTrouble, match=r"is damaged \(exchange r1/e3#3.* merge the store into a new one"):
        collect(tmp_path / "s")
    assert (tmp_path / "s/data.mdb").read_bytes() == before


def test_without_room_for_another_file_it_deletes_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0", "r1")
    monkeypatch.setattr(gc.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    freed = collect(tmp_path / "s")
    assert freed.count["runs"] == 2
    assert "1,000 are free" in freed.short
    assert freed.after == freed.before
    assert verify(tmp_path / "s").damaged == []
    fill_more(tmp_path / "s")
    assert (tmp_path / "s/data.mdb").stat().st_size == freed.after, "what it freed is used again"


def fill_more(path: Path) -> None:
    with open_store(path) as store:
        writer = store.writer()
        made = writer.open_run(run("more"))
        rollout = writer.open_episode(episode("e", run_key=made.key))
        for n in range(5):
            writer.put_exchange(rollout.key, exchange(at_ms=n, body=random.randbytes(20_000)))
        writer.seal(rollout).result(9)
        writer.close()


READ = """
import sys
from pathlib import Path
from replayproxy.storage import open_store
store = open_store(Path(sys.argv[1]))
reader = store.reader()
made = reader.run("r2")
while sys.stdin.readline():
    print(sum(len(reader.trace(made, e).exchanges) for e in reader.episodes(made)), flush=True)
"""


def test_a_reader_that_was_there_reads_on_and_a_writer_that_comes_later_does_no_harm(tmp_path: Path) -> None:
    """They share LMDB's lock file, which says which of the two meta pages of either file is the newer."""
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    reading = subprocess.Popen(
        [sys.executable, "-c", READ, str(tmp_path / "s")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reading.stdin is not None
    assert reading.stdout is not None

    def read() -> str:
        assert reading.stdin is not None
        assert reading.stdout is not None
        reading.stdin.write("\n")
        reading.stdin.flush()
        return reading.stdout.readline()

    assert read() == "12\n"
    for turn in range(3):  # of both parities
        collect(tmp_path / "s")
        assert read() == "12\n"
        with open_store(tmp_path / "s") as store:
            writer = store.writer()
            made = writer.open_run(run(f"again{turn}"))
            for n in range(turn + 1):
                rollout = writer.open_episode(episode(f"e{n}", run_key=made.key))
                writer.put_exchange(rollout.key, exchange(body=random.randbytes(500_000)))
                writer.seal(rollout).result(9)
            writer.close()
        assert read() == "12\n"
        remove(tmp_path / "s", f"again{turn}")
    reading.stdin.close()
    assert reading.wait(9) == 0
    assert verify(tmp_path / "s").damaged == []
    assert content(tmp_path / "s").keys() == {f"r{r}/e{e}" for r in (1, 2) for e in range(4)}


def test_who_had_the_old_file_open_cannot_write_into_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    with open_store(tmp_path / "s") as store:
        subprocess.run([sys.executable, "-c", COLLECT, str(tmp_path / "s")], check=True)
        with pytest.raises(StoreTrouble, match="removed or replaced while it was open"):
            store.writer()
        with pytest.raises(StoreTrouble, match="replaced while this process read it"):
            open_store(tmp_path / "s")
    with open_store(tmp_path / "s") as store:
        store.writer().close()


COLLECT = """
import sys
from pathlib import Path
from replayproxy.storage import gc
gc.AT_ONCE = 3
gc.collect(Path(sys.argv[1]), tell=lambda what: print(what, flush=True))
"""


@pytest.mark.parametrize("turn", range(4))
def test_killed_at_any_instant_it_leaves_a_whole_store_and_the_next_one_goes_on(tmp_path: Path, turn: int) -> None:
    killed_gc(tmp_path / "s", turn)


def killed_gc(path: Path, turn: int) -> None:
    """Kills it at a random instant behind one of its four steps; called with more turns by the soak."""
    rng = random.Random(turn)
    fill(path)
    before = content(path)
    remove(path, "r1", "r2/e0")
    kept = {name: held for name, held in before.items() if not name.startswith("r1/") and name != "r2/e0"}
    child = subprocess.Popen([sys.executable, "-c", COLLECT, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(1 + turn % 4):
        child.stdout.readline()
    time.sleep(rng.random() * 0.05)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert verify(path).damaged == []
    assert content(path) == kept
    collect(path)
    assert content(path) == kept
    report = verify(path)
    assert report.damaged == []
    assert (report.read["runs"], report.read["episodes"]) == (2, 7)
    assert sorted(p.name for p in path.iterdir()) == [
        ".gitignore", "data.mdb", "lock.mdb", "recorder.lock", "writers.lock",
    ]  # fmt: skip


def test_a_file_that_only_lacks_unused_pages_is_filled_up_and_another_one_refused(tmp_path: Path) -> None:
    """As after a kill between a commit and the filling up: LMDB need not write the last pages that it freed again."""
    fill(tmp_path / "s", runs=2, episodes=1)
    remove(tmp_path / "s", "r0", "r1")
    with open_store(tmp_path / "s") as opened:
        pages = opened.env.env.info()["last_pgno"] + 1
    mended = 0
    data = tmp_path / "s/data.mdb"
    for lost in range(1, 200):
        with data.open("r+b") as file:
            file.truncate((pages - lost) * 4096)
        try:
            open_store(tmp_path / "s").close()
        except StoreTrouble as trouble:
            refused = str(trouble)
            break
        mended += 1
        assert data.stat().st_size == pages * 4096
        assert verify(tmp_path / "s").damaged == []
    assert "is cut" in refused
    assert data.stat().st_size == (pages - lost) * 4096, "what is refused is left as it is"
    assert mended > 0


OPENED = """
import sys
from pathlib import Path
from replayproxy.storage import open_store
from replayproxy.testing import run
with open_store(Path(sys.argv[1])) as store:
    print("open", flush=True)
    if sys.stdin.readline():
        try:
            writer = store.writer()
            writer.open_run(run("late"))
            writer.close()
            print("written", flush=True)
        except Exception as error:
            print(error, flush=True)
        sys.stdin.readline()
"""


def opened(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPENED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def turn(child: subprocess.Popen[str]) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return child.stdout.readline()


def test_who_opens_the_store_while_the_file_is_written_anew_gets_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening waits for the transaction that `gc` holds, with the old file mapped already."""
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    waiting: list[subprocess.Popen[str]] = []
    real = gc._refuse_unlike

    def copied(env: Environment, txn: object, copy: Path) -> None:
        real(env, txn, copy)
        waiting.append(opened(tmp_path / "s"))
        deadline = time.monotonic() + 20
        while "data.mdb" not in Path(f"/proc/{waiting[0].pid}/maps").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    monkeypatch.setattr(gc, "_refuse_unlike", copied)
    collect(tmp_path / "s")
    with waiting[0] as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        assert turn(child) == "written\n"
        turn(child)
    with open_store(tmp_path / "s") as store:
        assert [one.name for one in store.reader().runs()] == ["r1", "r2", "late"]
    assert verify(tmp_path / "s").damaged == []


def test_who_had_an_older_store_open_makes_no_empty_store_of_the_new_file(tmp_path: Path) -> None:
    """One commit into the old file, and the lock file that both share points to the empty meta page of the new one."""
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    with open_store(tmp_path / "s") as store, store.env.writing() as txn:
        txn.drop(store.env.dbs["machines"])
    with opened(tmp_path / "s") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        assert collect(tmp_path / "s").count["runs"] == 1
        assert "replaced while it was open" in turn(child)
        assert content(tmp_path / "s").keys() == {f"r{r}/e{e}" for r in (1, 2) for e in range(4)}
        turn(child)


def test_ended_between_the_episodes_of_a_run_and_their_names_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "s", runs=2)
    remove(tmp_path / "s", "r0")

    def ended(env: Environment, db: str, prefix: bytes) -> int:
        if db == "episode-names":
            raise KeyboardInterrupt
        return real(env, db, prefix)

    real = gc._all_under
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gc, "_all_under", ended)
        collect(tmp_path / "s")
    assert verify(tmp_path / "s").damaged == []
    assert collect(tmp_path / "s").count["runs"] == 1
    assert verify(tmp_path / "s").damaged == []


def test_what_is_said_of_a_run_that_is_gone_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept, it would be damage, and no `gc` would run any more."""
    fill(tmp_path / "s", runs=2)
    monkeypatch.setattr(gc, "SPARE", 1.0)  # the file stays: whoever has it open may write
    with open_store(tmp_path / "s") as store:
        gone = store.reader().run("r0")
        remove(tmp_path / "s", "r0")
        collect(tmp_path / "s")
        writer = store.writer(exclusive=False)
        for told in (writer.put_trial(gone.key, {"wall": 5}), writer.put_check(gone.key, {"findings": []})):
            with pytest.raises(UnknownAddress, match="removed meanwhile"):
                told.result(9)
        writer.close()
    assert verify(tmp_path / "s").damaged == []
    assert +collect(tmp_path / "s").count == Counter()


def test_on_a_disk_without_a_single_free_block_it_deletes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it deletes first may be what it needs: pages that the file has free already."""
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("replayproxy.storage.locks.os.pwrite", full)
    monkeypatch.setattr(gc.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 0}))
    assert collect(tmp_path / "s").count["runs"] == 1
    with open_store(tmp_path / "s") as store, pytest.raises(StoreTrouble, match="no space left on device"):
        store.writer()


def test_the_new_file_belongs_to_whom_the_old_one_belonged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "s")
    remove(tmp_path / "s", "r0")
    data = tmp_path / "s/data.mdb"
    data.chmod(0o660)
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(gc.os, "fchown", lambda _, user, group: given.append((user, group)))
    before = data.stat()
    collect(tmp_path / "s")
    after = data.stat()
    assert after.st_ino != before.st_ino
    assert after.st_mode == before.st_mode
    assert given == [(before.st_uid, before.st_gid)]


def test_while_somebody_writes_a_short_file_is_not_made_longer(tmp_path: Path) -> None:
    """An import, or a gc, may be between its commit and that: the file grows while another one reads it."""
    fill(tmp_path / "s", runs=2, episodes=1)
    remove(tmp_path / "s", "r0", "r1")
    data = tmp_path / "s/data.mdb"
    whole = data.stat().st_size
    with data.open("r+b") as file:
        file.truncate(whole - 4096)
    held = locks.share(tmp_path / "s")
    with pytest.raises(StoreTrouble, match="is cut"):
        open_store(tmp_path / "s")
    assert data.stat().st_size == whole - 4096
    locks.drop(held)
    open_store(tmp_path / "s").close()
    assert data.stat().st_size == whole


def test_an_episode_that_goes_while_it_is_read_is_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=2, episodes=1, exchanges=100)
    with open_store(tmp_path / "s") as store:
        reader = store.reader()
        made = reader.run("r0")
        (rollout,) = reader.episodes(made)
        reading = reader.exchanges(rollout)
        next(reading)
        remove(tmp_path / "s", "r0")
        collect(tmp_path / "s")
        with pytest.raises(UnknownAddress, match=r"e0 was removed from .* while it was read"):
            list(reading)
        with pytest.raises(UnknownAddress, match="while it was read"):
            reader.trace(made, rollout)


def test_a_sealed_episode_that_lacks_exchanges_is_damaged_for_whoever_reads_them_one_by_one(tmp_path: Path) -> None:
    fill(tmp_path / "s", runs=1, episodes=1)
    with open_store(tmp_path / "s") as store:
        with store.env.writing() as txn, txn.cursor(store.env.dbs["exchanges"]) as at:
            assert at.last()
            at.delete()
        reader = store.reader()
        with pytest.raises(DamagedRecord, match="sealed with 3 exchanges, 2 are there"):
            list(reader.exchanges(reader.episode(reader.run("r0"), "e0")))
