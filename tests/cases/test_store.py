"""What is put into the store comes back equal: numbers, order, names, and when there is no room."""

from __future__ import annotations

import asyncio
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core import jsonvalue, prolly, rowcode
from replayproxy.core.values import EpisodeState, SnapshotStatus
from replayproxy.errors import StoreTrouble
from replayproxy.serve.control import OpenRequest
from replayproxy.session.camera import Plan
from replayproxy.state.loader import Loaded
from replayproxy.storage import Store, committer, environment, open_store
from replayproxy.storage.verify import verify
from tests.cases.lab import OK, answers, get, ok, over_a_store, recording, stored
from tests.proxy.wire import Peer, says
from tests.session.desk_kit import Table

ODD = st.one_of(
    st.sampled_from(
        [math.nan, math.inf, -math.inf, -0.0, 2**70, -(2**64), 1e308, Decimal("0.10"), b"\xff\x00", "\ud800", ""]
    ),
    st.integers(-(2**200), 2**200),
    st.floats(),
)


def alike(a: Any, b: Any) -> bool:
    """Numbers come back as exact decimals of what the float is written as; what is no number as a float of its name."""
    if isinstance(a, float):
        return float(b) == a or (math.isnan(a) and math.isnan(float(b)))
    return bool(a == b)


@given(value=ODD, key=st.sampled_from([3, "x", None, True, (1, 2)]))
@settings(max_examples=15, deadline=None)
@over_a_store
async def test_a_state_with_values_that_json_cannot_hold_comes_back_equal_or_is_refused_by_name(
    store: Store, value: Any, key: Any
) -> None:
    row = {"reward": value, "seed": 2**70, key: "x"}
    table = Table({"1": row})
    async with recording(store, says(OK), snapshots=(Loaded.of("app", lambda: table, "t"),), plan=Plan()) as on:
        assert await on.ask(get()) == OK
    reader = store.reader()
    (start, *_) = reader.snapshots(reader.episode(reader.run("r"), "e"))
    if start.status is SnapshotStatus.MISSING:
        assert start.reason
        return
    assert start.root is not None
    back = rowcode.decode(jsonvalue.canonical(prolly.rows(start.root, reader.node)["t"]["1"]))
    assert alike(row["reward"], back["reward"])
    assert back["seed"] == 2**70
    assert back[key] == "x"
    assert len(back) == len(row)


async def test_a_full_store_keeps_what_it_had_and_the_run_fails_visibly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "MAP_SIZES", (1 << 20,))
    monkeypatch.setattr(committer, "GIVE_UP_SECONDS", 0.5)
    big = ok(random.Random(1).randbytes(2_000_000))
    store = open_store(tmp_path / "small", create=True)
    with pytest.raises(StoreTrouble, match="MAP_FULL"):
        async with recording(store, answers(*[ok(b"%d" % n) for n in range(3)], big), patience=3) as on:
            agent = await on.agent()
            for n in range(3):
                assert await agent.ask(get(f"/{n}")) == ok(b"%d" % n)
            first = await on.exchanges(count=3)
            reading = store.reader().exchanges(store.reader().episode(store.reader().run("r"), "e"))
            next(reading)
            assert await agent.ask(get("/3")) == big, "the agent gets its answer in any case"
            assert len(list(reading)) == 2, "a reader that was open reads on"
            recorder = on.recorder
    assert recorder.episodes.store_trouble
    reader = store.reader()
    assert reader.episode(reader.run("r"), "e").state is not EpisodeState.SEALED
    assert [one.response for one in (await stored(store))[:3]] == [one.response for one in first]
    store.close()
    assert verify(tmp_path / "small").damaged == []


@given(
    names=st.lists(
        st.sampled_from(["run1", "run10", "run1.x", "run1-x", "run", "é", "run1%2Fx"]), min_size=2, unique=True
    ),
    count=st.integers(10, 13),
)
@settings(max_examples=5, deadline=None)
@over_a_store
async def test_steps_are_in_their_order_and_no_episode_holds_anothers(
    store: Store, names: list[str], count: int
) -> None:
    async def echo(peer: Peer, request: bytes) -> None:
        await peer.send(ok(request.split(b" ")[1]))

    async with recording(store, echo, episode=None) as on:
        for name in names:
            await on.recorder.episodes.open(OpenRequest(episode=name), "127.0.0.1")
        agent = await on.agent()
        for n in range(count):
            for name in names:
                head = b"X-Replay-Episode: " + "".join(f"%{b:02X}" for b in name.encode()).encode()
                await agent.ask(get(f"/{names.index(name)}/{n}", head))
    reader = store.reader()
    run = reader.run("r")
    assert {one.name for one in reader.episodes(run)} == set(names)
    for number, name in enumerate(names):
        episode = reader.episode(run, name)
        assert episode.state is EpisodeState.SEALED
        kept = list(reader.exchanges(episode))
        assert [one.seq for one in kept] == list(range(1, count + 1))
        assert [one.request.target for one in kept] == [f"/{number}/{n}".encode() for n in range(count)]
        assert reader.exchange(episode, count).request.target == f"/{number}/{count - 1}".encode()


def test_opening_it_again_finds_all_of_it(tmp_path: Path) -> None:
    async def once(store: Store) -> None:
        async with recording(store, says(OK)) as on:
            for n in range(12):
                await on.ask(get(f"/{n}"))

    store = open_store(tmp_path / "s", create=True)
    asyncio.run(once(store))
    store.close()
    with open_store(tmp_path / "s") as again:
        kept = asyncio.run(stored(again))
        assert [one.request.target for one in kept] == [f"/{n}".encode() for n in range(12)]
