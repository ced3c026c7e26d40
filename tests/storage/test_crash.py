"""What a store goes through in earnest: killed writers, full disks, readers beside a writer."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from replayproxy.core.values import EpisodeState
from replayproxy.storage import open_store
from replayproxy.storage.verify import verify

WRITE = """
import sys
from pathlib import Path
from replayproxy.storage import open_store
from replayproxy.testing import episode, exchange, run
path, round_, seals = Path(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["seal"]
writer = open_store(path, create=True).writer()
made = writer.open_run(run("r"), append=True)
n = 0
while True:
    rollout = writer.open_episode(episode(f"{round_}-{n}", run_key=made.key))
    for at in range(5):
        writer.put_exchange(rollout.key, exchange("POST", f"/{n}/{at}", sent=b"s" * 5000, body=[n, at], at_ms=at))
    (writer.seal(rollout) if seals else writer.flush()).result(30)
    print(rollout.name, flush=True)  # acknowledged: from here on it may not be lost
    n += 1
"""


def writing(path: Path, *arguments: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITE, str(path), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, **options,
    )  # type: ignore[call-overload]  # fmt: skip


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    for round_ in range(4):
        child = writing(tmp_path / "s", str(round_), "seal" if round_ % 2 else "flush")
        assert child.stdout is not None
        for _ in range(1 + 3 * round_):
            acknowledged.append(child.stdout.readline().strip())
        child.send_signal(signal.SIGKILL)  # at whatever instant of its next episode this is
        acknowledged += child.communicate()[0].split()
    with open_store(tmp_path / "s") as store:
        reader = store.reader()
        made = reader.run("r")
        there = {e.name: e for e in reader.episodes(made)}
        for name in acknowledged:
            assert [e.request.target for e in reader.exchanges(there[name])] == [
                f"/{name.split('-')[1]}/{at}".encode() for at in range(5)
            ]
            wanted = EpisodeState.SEALED if int(name[0]) % 2 else EpisodeState.INCOMPLETE
            assert reader.trace(made, there[name]).episode.state is wanted
        writer = store.writer()  # the lock of the dead is nobody's
        writer.close()
        assert [p.name for p in (tmp_path / "s").glob("writer-*.lock")] == []
    assert verify(tmp_path / "s").damaged == []


READ = """
import sys
from pathlib import Path
from replayproxy.storage import open_store
reader = open_store(Path(sys.argv[1])).reader()
rounds = 0
while sys.stdin.readline():
    made = reader.run("r")
    episodes = reader.episodes(made)
    for e in episodes[-20:]:
        if e.state == "sealed":
            assert [x.seq for x in reader.trace(made, e).exchanges] == [1, 2, 3, 4, 5], e
    print(len(episodes), flush=True)
"""


def _look(reader: subprocess.Popen[str], *, beyond: int) -> int:
    """How many exchanges the reader sees, once it sees more than so many: two looks may fall between two commits."""
    assert reader.stdin is not None
    assert reader.stdout is not None
    for _ in range(2000):
        reader.stdin.write("look\n")
        reader.stdin.flush()
        if (count := int(reader.stdout.readline())) > beyond:
            return count
        time.sleep(0.01)
    return count


def test_two_processes_read_while_a_third_writes(tmp_path: Path) -> None:
    child = writing(tmp_path / "s", "0", "seal")
    assert child.stdout is not None
    child.stdout.readline()
    readers = [
        subprocess.Popen([sys.executable, "-c", READ, str(tmp_path / "s")], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]  # fmt: skip
    seen: list[list[int]] = [[], []]
    for _ in range(5):
        for _ in range(3):
            child.stdout.readline()
        for counts, reader in zip(seen, readers, strict=True):
            counts.append(_look(reader, beyond=counts[-1] if counts else 0))
    child.kill()
    child.communicate()
    assert [reader.communicate()[0] for reader in readers] == ["", ""]
    assert [reader.returncode for reader in readers] == [0, 0]
    for counts in seen:
        assert counts == sorted(set(counts)), "each look must see more than the one before"


FULL = """
import resource, signal, sys
from pathlib import Path
from replayproxy.storage import committer, open_store
from replayproxy.testing import episode, exchange, run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
committer.RETRY_SECONDS = 0.01
store = open_store(Path(sys.argv[1]), create=True)
writer = store.writer()
made = writer.open_run(run("r"))
first = writer.open_episode(episode("first", run_key=made.key))
writer.put_exchange(first.key, exchange(body=b"a" * 1000))
writer.seal(first).result(30)
size = (store.path / "data.mdb").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, resource.RLIM_INFINITY))
second = writer.open_episode(episode("second", run_key=made.key))
import os
for at in range(20):
    writer.put_exchange(second.key, exchange(body=os.urandom(50_000), at_ms=at))
sealed = writer.seal(second)
import time
deadline = time.monotonic() + 20
while writer.failed is None and time.monotonic() < deadline: time.sleep(0.005)
print(type(writer.failed).__name__, "|", sealed.done(), "|", store.reader().count(first))
if sys.argv[2] == "space":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(sealed.result(30).seal.exchanges)
try: writer.close(); print("closed")
except Exception as error: print(type(error).__name__, error.exit, str(error))
"""


@pytest.mark.parametrize("ending", ["space", "full"])
def test_a_full_disk_keeps_what_was_written_and_what_waits(tmp_path: Path, ending: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "s"), ending], capture_output=True, text=True, check=False
    )
    told = done.stdout.splitlines()
    assert told[:1] == ["Error | False | 1"], done.stderr
    if ending == "space":
        assert told[1:] == ["20", "closed"]
    else:
        assert told[1].startswith("StoreTrouble 4 ")
        assert "records are lost" in told[1]
    with open_store(tmp_path / "s") as store:
        reader = store.reader()
        made = reader.run("r")
        assert len(reader.trace(made, reader.episode(made, "first")).exchanges) == 1
        assert len(reader.episodes(made)) == (2 if ending == "space" else 1)
    assert verify(tmp_path / "s").damaged == []
