"""Episodes apart: ports, connections, clean starts, and a diff that shows only what differs."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.rules import parse_rules
from replayproxy.detect.finding import Kind
from replayproxy.errors import WorldTrouble
from replayproxy.proxy.listeners import bind
from replayproxy.serve.control import EndRequest, OpenRequest
from replayproxy.session.check import check
from replayproxy.session.check_document import Demands
from replayproxy.session.diff import diff
from replayproxy.session.look import Stores, looking
from replayproxy.state.loader import Loaded
from replayproxy.storage import Store
from tests.cases.lab import get, ok, over_a_store, recording, talker
from tests.proxy.wire import Environment, Peer, says
from tests.session.desk_kit import Table


async def test_listeners_bind_a_port_of_their_own_and_a_taken_one_is_told(store: Store) -> None:
    async with recording(store, *(says(ok(b"%d" % n)) for n in range(4))) as on:
        ports = [on.port(env) for env in on.environments]
        assert len(set(ports)) == 4
        assert all(ports)
        got = await asyncio.gather(*(on.ask(get(), env) for env in on.environments))
        assert got == [ok(b"%d" % n) for n in range(4)]
        with pytest.raises(WorldTrouble, match=str(ports[0])):
            bind(on.recorder.addresses.listeners["app"].bound[0], ports[0])


async def test_an_environment_that_restarts_on_its_port_is_not_reached_by_an_old_connection(store: Store) -> None:
    async with recording(store, says(ok(b"old"))) as on:
        agent = await on.agent()
        assert await agent.ask(get("/1")) == ok(b"old")
        await on.environment.stop()
        fresh = Environment(says(ok(b"new")))
        fresh.port = on.environment.port
        await fresh.start()
        try:
            assert await agent.ask(get("/2")) == ok(b"new")
            kept = await on.exchanges(count=2)
        finally:
            await fresh.stop()
    assert kept[0].env_connection != kept[1].env_connection


async def test_a_port_of_an_ended_episode_is_nobody_elses(store: Store) -> None:
    async with recording(store, says(ok()), episode=None, url_style="port") as on:
        first = await on.recorder.episodes.open(OpenRequest(episode="a"), "127.0.0.1")
        port = int(first["urls"]["app"].rpartition(":")[2])
        old = await talker(port)
        assert await old.ask(get("/1")) == ok()
        await on.recorder.episodes.end("a", EndRequest())
        second = await on.recorder.episodes.open(OpenRequest(episode="b"), "127.0.0.1")
        other = await talker(int(second["urls"]["app"].rpartition(":")[2]))
        assert await other.ask(get("/2")) == ok()
        await old.send(get("/late"))
        await old.read_to_end() if not await old.is_open() else None
        old.close()
        other.close()
        assert [one.request.target for one in await on.exchanges("b", 1)] == [b"/2"]
        assert [one.request.target for one in await on.exchanges("a", 1)] == [b"/1"]


async def test_what_an_episode_leaves_behind_is_a_dirty_start_of_the_next(store: Store) -> None:
    table = Table({"1": {"v": 1}})

    async def fork(peer: Peer, request: bytes) -> None:
        taken = "fork" in table.rows
        table.rows["fork"] = {"v": 2}
        await peer.send(
            ok(b"{}", b"Content-Type: application/json", status=b"409 Conflict" if taken else b"201 Created")
        )

    async with recording(store, fork, episode=None, snapshots=(Loaded.of("app", lambda: table, "t"),)) as on:
        for name in ("e1", "e2", "e3"):
            wanted = OpenRequest(episode=name, task="fork", seed=7)
            opened = await on.recorder.episodes.open(wanted, "127.0.0.1")
            prefix = "/rp/" + opened["urls"]["app"].rpartition("/")[2]
            answer = await on.ask(get(f"{prefix}/fork", method=b"POST", body=b"{}"))
            assert answer.startswith(b"HTTP/1.1 201 " if name == "e1" else b"HTTP/1.1 409 ")
            await on.recorder.episodes.end(name, EndRequest())
    with looking([store.path]) as stores:
        (one,) = check(stores, ("r",), Demands(reference="r/e1"), now=5)
    dirty = [f for f in one.to_json()["findings"] if f["kind"] in (Kind.STATE_BLEED, Kind.DIRTY_RESET)]
    assert {f["episode"] for f in dirty} == {"e2", "e3"}
    assert all("fork" in json.dumps(f) for f in dirty)


DECLARED = parse_rules([{"name": "took", "pointer": "/elapsed_ms", "action": "mask", "reason": "how long it took"}])
"""A duration is a number like any other, so it is declared; dates, request ids and fresh uuids need no rule."""


@given(changed=st.sampled_from([None, "amount", "name"]), amount=st.integers(1, 10**6))
@settings(max_examples=6, deadline=None)
@over_a_store
async def test_two_equal_episodes_are_equal_and_what_is_volatile_is_listed(
    store: Store, changed: str | None, amount: int
) -> None:
    round_ = [0]

    async def world(peer: Peer, request: bytes) -> None:
        told: dict[str, Any] = {
            "id": str(uuid.uuid4()), "elapsed_ms": 11 + round_[0], "amount": amount, "name": "Acme",
        }  # fmt: skip
        if round_[0] and changed:
            told[changed] = "other" if changed == "name" else amount + 1
        fields = (
            b"Date: Thu, 21 Mar 2030 12:45:%02d GMT" % round_[0],
            b"X-Request-Id: " + uuid.uuid4().hex.encode(),
            b"Content-Type: application/json",
        )
        await peer.send(ok(json.dumps(told).encode(), *fields))

    async with recording(store, world, episode=None, undeclared="accept") as on:
        for name in ("a", "b"):
            await on.ask(get(f"/rp/{name}/deals", method=b"POST", body=b"{}"))
            round_[0] += 1
    found = diff(Stores([store.reader()]), "r/a", "r/b", rules=DECLARED)
    if changed is None:
        assert found.verdict == "same", found.to_json()["roots"]
        assert sum(found.explained.values()) >= 2, found.explained
    else:
        assert found.verdict == "different"
        assert [root["pointer"] for root in found.to_json()["roots"]] == [f"body/{changed}"]
