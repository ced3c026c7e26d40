"""Random damage of a store's data file: flips, cuts, and pages of zeros or noise, each in a copy of its own."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

from replayproxy.core import prolly
from replayproxy.storage import open_store
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run, snapshot

KINDS = ("flip", "flips", "cut", "zeros", "noise")
SECONDS = 120

READ = """
import hashlib, json, sys
from pathlib import Path
from replayproxy.cli import main

def read(arguments, as_json):
    from replayproxy.errors import StoreTrouble, UnknownAddress
    from replayproxy.storage import open_store
    try:
        store = open_store(Path(arguments[0]))
        reader = store.reader()
        runs = reader.runs()
    except StoreTrouble as trouble:
        print(json.dumps({"refused": str(trouble)}))
        return 4
    for one in runs:
        try:
            episodes = reader.episodes(one)
        except StoreTrouble as trouble:
            print(json.dumps({"damaged": str(trouble)}), flush=True)
            continue
        for rollout in episodes:
            try:
                trace = reader.trace(one, rollout, bodies=1 << 30)
                nodes = [sorted(reader.node(s.root)) for s in trace.snapshots]
            except StoreTrouble as trouble:
                print(json.dumps({"damaged": str(trouble)}), flush=True)
                continue
            said = repr([trace.exchanges, trace.snapshots, trace.events, nodes, rollout.meta, rollout.reward])
            found = {"episode": f"{one.name}/{rollout.name}", "is": hashlib.sha256(said.encode()).hexdigest()}
            print(json.dumps(found), flush=True)
    return 0

main.run = read
main.main(sys.argv[1:])
"""


def make(path: Path) -> dict[str, str]:
    """A store of some 120 pages that has known other times, and what is read from it: episode -> digest."""
    rng = random.Random(7)
    with open_store(path, create=True) as store:
        writer = store.writer()
        for r in range(3):
            made = writer.open_run(run(f"r{r}", meta={"r": r}))
            for e in range(6):
                rollout = writer.open_episode(episode(f"e{e}", run_key=made.key, meta={"step": e}))
                state = prolly.build({"deals": {str(n): {"n": e, "title": "x" * 40} for n in range(150)}})
                writer.put_nodes(state.nodes)
                writer.put_snapshot(rollout.key, snapshot(0, state.root))
                for n in range(8):
                    writer.put_exchange(rollout.key, exchange(at_ms=n, body=rng.randbytes(rng.choice([90, 900, 9000]))))
                writer.seal(rollout).result(30)
        writer.close()
    return {one["episode"]: one["is"] for one in read(path)[1]}


def read(path: Path) -> tuple[int, list[dict[str, str]]]:
    """The exit code of a process that reads everything, and what it told until then."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.endswith("}")]


def hurt(data: bytearray, kind: str, rng: random.Random) -> bytearray:
    size = len(data)
    if kind == "cut":
        return data[: rng.randrange(size)]
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else 20):
            at = rng.randrange(size)
            data[at] ^= 1 << rng.randrange(8)
        return data
    page = rng.randrange(size // 4096) * 4096
    data[page : page + 4096] = bytes(4096) if kind == "zeros" else rng.randbytes(4096)
    return data


def trial(whole: Path, truth: dict[str, str], n: int, folder: Path) -> str:
    """What is wrong with how the n-th damage is borne; empty: nothing."""
    rng, kind = random.Random(n), KINDS[n % len(KINDS)]
    copy = folder / f"copy{n}"
    shutil.copytree(whole, copy)
    try:
        data = hurt(bytearray((whole / "data.mdb").read_bytes()), kind, rng)
        (copy / "data.mdb").write_bytes(data)
        try:
            named = bool(verify(copy).damaged)
        except Exception as trouble:  # a format that is too new, by a flip in its number: told, and exit 4
            named = bool(str(trouble))
        try:
            code, told = read(copy)
        except subprocess.TimeoutExpired:
            return f"{n} {kind}: reading it did not end in {SECONDS} s"
    finally:
        shutil.rmtree(copy)
    served = {one["episode"]: one["is"] for one in told if "episode" in one}
    wrong = [name for name, digest in served.items() if truth.get(name) != digest]
    if code not in (0, 4):
        return f"{n} {kind}: it ended with {code}"
    if wrong:
        return f"{n} {kind}: {wrong} are not what was recorded"
    if len(served) < len(truth) and not named:
        return f"{n} {kind}: {len(truth) - len(served)} episodes are gone, and fsck is content"
    return ""


def trials(folder: Path, numbers: range) -> list[str]:
    """What went wrong in so many trials: for `make soak`."""
    truth = make(folder / "whole")
    assert len(truth) == 18
    return [wrong for n in numbers if (wrong := trial(folder / "whole", truth, n, folder))]
