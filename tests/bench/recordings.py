"""Recordings of a given size, put into a store as the recorder puts them, without its traffic."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from replayproxy.core.values import EnvWiring, Episode, Exchange, Run
from replayproxy.storage import open_store
from replayproxy.testing import WALL0, exchange
from tests.bench.contenders import BIN
from tests.bench.upstream import SMALL


@dataclass(frozen=True, slots=True)
class Recording:
    """`store`: with one run `r`. `paths`: its requests for ours, a line each; `plain`: without the episode's prefix."""

    folder: Path
    exchanges: int

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def flows(self) -> Path:
        return self.folder / "flows"

    @property
    def paths(self) -> Path:
        return self.folder / "paths"

    @property
    def plain(self) -> Path:
        return self.folder / "plain"


def answer(number: int, clock: int) -> bytes:
    """A small document; `clock` is what differs between two recordings of the same."""
    told = json.loads(SMALL) | {"id": f"D-{number}", "amount": number * 7919 % 100_000}
    return json.dumps(told | {"updated_at": f"2026-11-29T10:{clock // 60 % 60:02}:{clock % 60:02}Z"}).encode()


def of_episode(number: int, each: int, clock: int) -> Iterator[Exchange]:
    heads = {"Host": "app.test", "Accept": "*/*", "User-Agent": "agent/1.0", "Accept-Encoding": "gzip, deflate"}
    answered = {"Content-Type": "application/json", "Server": "nginx", "Connection": "keep-alive"}
    for n in range(each):
        body = answer(number * each + n, clock + n)
        yield exchange(
            "GET",
            f"/e{number}/deals/{n}",
            body=body,
            request_headers=heads,
            seq=n + 1,
            at_ms=(number * each + n) * 2.0,
            headers={**answered, "Content-Length": str(len(body))},
        )


def make(folder: Path, episodes: int, each: int, *, run: str = "r", clock: int = 0, flows: bool = False) -> Recording:
    """`episodes` of `each` exchanges. The same arguments give the same recording; a second run goes into the store."""
    made = Recording(folder, episodes * each)
    folder.mkdir(parents=True, exist_ok=True)
    wiring = Run(key=0, name=run, opened_wall=WALL0, envs={"app": EnvWiring(name="app", upstream="http://app.test")})
    with open_store(made.store, create=True) as store:
        writer = store.writer()
        opened = writer.open_run(wiring)
        for number in range(episodes):
            episode = writer.open_episode(
                Episode(key=0, name=f"e{number}", run_key=opened.key, opened=number, opened_wall=WALL0)
            )  # fmt: skip
            for one in of_episode(number, each, clock + number):
                writer.put_exchange(episode.key, one)
            writer.seal(replace(episode, ended=number + 1, ended_wall=WALL0 + 1)).result()
        writer.update_run(replace(opened, closed_wall=WALL0 + 1))
        writer.close()
    with made.paths.open("w") as ours, made.plain.open("w") as plain:
        for n in range(each):
            ours.writelines(f"/rp/e{number}/e{number}/deals/{n}\n" for number in range(episodes))
            plain.writelines(f"/e{number}/deals/{n}\n" for number in range(episodes))
    if flows:
        subprocess.run(
            [str(BIN / "replayproxy"), "export", run, "--format", "flow", "--out", str(made.flows), "--store",
             str(made.store)],
            check=True, capture_output=True,
        )  # fmt: skip
    return made
