"""Live values in recorded answers, over real sockets: an MCP server whose client counts otherwise, and its like."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core import prolly
from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.relax import Relaxation
from replayproxy.core.rules import parse_rules
from replayproxy.core.values import Body, Chunk, EnvWiring, Exchange, Run
from replayproxy.storage import Store, open_store
from replayproxy.testing import body as made_body
from replayproxy.testing import episode, exchange, snapshot
from tests.serve.staged import UPSTREAM, Staged, large, record, staged

KIND = {"Content-Type": "application/json"}
SSE = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
A, B = "5eed0000-1234-4abc-8def-9e3779b97f4a", "5eed0001-1234-4abc-8def-3c6ef372fe94"
X, Y = "11fe0000-9876-4cba-9fed-c2b2ae3d27d4", "11fe0001-9876-4cba-9fed-851e4fa7bd28"


@pytest.fixture
def store(tmp_path: Path):
    with open_store(tmp_path / "store", create=True) as opened:
        yield opened


def call(id_: Any, name: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": {"name": name}}


def streamed(data: bytes, *sizes: int) -> Body:
    plain = made_body(data)
    assert plain is not None
    edges = [*sizes, len(data) - sum(sizes)]
    return Body(size=plain.size, digest=plain.digest, inline=data,
                chunks=tuple(Chunk(size=size, at=n) for n, size in enumerate(edges)))  # fmt: skip


def rpc(id_: int, name: str, answer: Any, headers: Any = KIND) -> Exchange:
    return exchange("POST", "/mcp", sent=call(id_, name), request_headers=KIND, body=answer, headers=headers)


async def post(on: Staged, target: str, sent: Any, **headers: str) -> tuple[bytes, bytes]:
    data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    whole = await on.get(target, method="POST", body=data, **{"Content_Type": "application/json"} | headers)
    head, _, body = whole.partition(b"\r\n\r\n")
    return head, body


def events(id_: str) -> bytes:
    progress = f'data: {{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id_}}}}}\n\n'
    ask = 'data: {"jsonrpc":"2.0","id":2,"method":"sampling/createMessage"}\n\n'
    return (progress + ask + f'event: message\ndata: {{"jsonrpc":"2.0","id":{id_},"result":{{"id":2}}}}\n\n').encode()


@pytest.mark.parametrize("live", [[5, 6], ["7c0e", X]])
async def test_a_client_that_counts_otherwise_gets_its_own_ids_in_json_and_in_event_streams(
    store: Store, live: list[Any]
) -> None:
    answer = b'{"jsonrpc": "2.0", "id": 1, "result": {"id": 1}}'
    stream = streamed(events("2"), 30, 100)
    run = record(store, {"e": [rpc(1, "one", answer), rpc(2, "two", stream, SSE)]})
    async with staged(store, run) as on:
        _, body = await post(on, "/mcp", call(live[0], "one"))
        assert body == answer.replace(b'"id": 1,', b'"id": ' + json.dumps(live[0]).encode() + b",")
        _, chunked = await post(on, "/mcp", call(live[1], "two"))
        lines = chunked.split(b"\r\n")
        assert [int(lines[0], 16), int(lines[2], 16)] == [30, 100 + len(json.dumps(live[1])) - 1]
        assert b"".join(lines[1:-2:2]) == events(json.dumps(live[1]))
        receipt = on.receipt()
    assert [(one["recorded"], one["live"], one["exchange"]) for one in receipt["bindings"]] == [
        (1, live[0], "r/e/1"), (2, live[1], "r/e/2"),
    ]  # fmt: skip
    assert receipt["served"] == {"exact": 0, "canonical": 2, "relaxed": 0, "repeat": 0}
    assert receipt["reproduced"]


async def test_an_event_stream_too_long_to_be_held_is_rewritten_as_it_passes(store: Store) -> None:
    data = (b"data: " + b"x" * 1000 + b"\n\n") * (VIEW_LIMIT // 1000) + events("1")
    run = record(store, {"e": [rpc(1, "one", large(store, data, [len(data)]), SSE)]})
    async with staged(store, run) as on:
        _, chunked = await post(on, "/mcp", call("mine", "one"))
    assert b'"id":"mine","result"' in chunked
    assert b'"id":1,"result"' not in chunked


def act(key: str, action: str = "left") -> dict[str, str]:
    return {"call_id": key, "action": action}


async def test_a_minted_uuid_is_given_back_in_later_answers_too_also_coded_and_from_the_store(store: Store) -> None:
    coded = gzip.compress(json.dumps({"calls": [A], "pad": "x" * 9000}).encode())
    run = record(store, {"e": [
        exchange("POST", "/act", sent=act(A), request_headers=KIND, body={"done": A}, headers=[
            ("Content-Type", "application/json"), ("Location", f"/calls/{A}"), ("Content-Length", "48")]),
        exchange("GET", "/history", body=large(store, coded), headers=[
            ("Content-Type", "application/json"), ("Content-Encoding", "gzip"), ("Content-Length", str(len(coded)))]),
        exchange("GET", "/text", body=large(store, b"y " * 5000 + A.encode()), headers={"Content-Type": "text/plain"}),
    ]})  # fmt: skip
    async with staged(store, run) as on:
        head, body = await post(on, "/act", act(X))
        assert f"Location: /calls/{X}".encode() in head
        assert json.loads(body) == {"done": X}
        _, _, listed = (await on.get("/history")).partition(b"\r\n\r\n")
        assert json.loads(gzip.decompress(listed))["calls"] == [X]
        assert (await on.get("/text")).endswith(X.encode())
        assert on.receipt()["reproduced"]


async def test_a_changed_action_is_a_miss_that_names_it_and_a_broken_binding_one_that_says_so(store: Store) -> None:
    run = record(store, {"e": [exchange("POST", "/act", sent=act(key), request_headers=KIND) for key in (A, B)]})
    async with staged(store, run) as on:
        _, body = await post(on, "/act", act(X, "right"))
        near = json.loads(body)["nearest"][0]
        assert (near["pointer"], near["recorded"], near["asked"]) == ("body/action", "left", "right")
        assert b" 200 " in (await post(on, "/act", act(X)))[0]
        head, body = await post(on, "/act", act(X))
        assert b" 470 " in head
        assert f"{X} stands for {A} already" in json.loads(body)["detail"]
        assert not on.receipt()["reproduced"]


async def test_an_idempotency_key_is_no_part_of_the_key_and_comes_back_as_it_was_sent(store: Store) -> None:
    run = record(store, {"e": [
        exchange("POST", "/pay", sent={"n": 1}, request_headers={**KIND, "Idempotency-Key": A, "X-Request-Id": B},
                 body={"key": A}, headers={**KIND, "X-Request-Id": B, "Content-Length": "47"}),
    ]})  # fmt: skip
    async with staged(store, run) as on:
        head, body = await post(on, "/pay", {"n": 1}, Idempotency_Key=X, X_Request_Id=Y)
        receipt = on.receipt()
    assert f"X-Request-Id: {Y}".encode() in head
    assert json.loads(body) == {"key": X}
    assert {(one["recorded"], one["live"], one["place"]) for one in receipt["bindings"]} == {
        (A, X, "header/idempotency-key"), (B, Y, "header/x-request-id"),
    }  # fmt: skip
    assert receipt["served"]["exact"] == 1
    assert receipt["reproduced"]


async def test_an_agent_that_gives_up_early_leaves_answers_unused_and_none_is_given_to_a_later_step(
    store: Store,
) -> None:
    task = [exchange("GET", "/task", status=status) for status in (503, 503, 200)]
    run = record(store, {"e": [*task, exchange("POST", "/done", status=204)]})
    async with staged(store, run) as on:
        assert b" 503 " in await on.get("/task")
        assert b" 204 " in await on.get("/done", method="POST")
        for _ in range(5):
            assert b" 470 " in await on.get("/task?again=1")
        receipt = on.receipt()
    assert [one["exchange"] for one in receipt["unused_exchanges"]] == ["r/e/2", "r/e/3"]
    assert (receipt["missed"], receipt["requests_missed"], receipt["misses"][0]["count"]) == (1, 5, 5)


async def test_a_cold_cache_never_gets_a_304_nor_a_206_and_a_warm_one_does(store: Store) -> None:
    tag = {"If-None-Match": '"v1"'}
    run = record(store, {"e": [
        exchange("GET", "/b", status=304, request_headers=tag, headers={"ETag": '"v1"'}),
        exchange("GET", "/b", status=206, body=b"bund", request_headers={"Range": "bytes=0-3"}),
    ]})  # fmt: skip
    async with staged(store, run) as on:
        cold = await on.get("/b")
        assert b" 470 " in cold
        assert b"header/if-none-match" in cold
        assert b"header/range" in cold
        assert b" 206 " in await on.get("/b", Range="bytes=0-3")
        assert b" 304 " in await on.get("/b", If_None_Match='"v1"')


async def test_rules_are_obeyed_counted_and_grade_relaxed(store: Store) -> None:
    table = [
        {"name": "clock", "at": "POST /act", "pointer": "/ts", "action": "mask", "reason": "its clock"},
        {"name": "old", "at": "POST /act", "pointer": "/x", "action": "mask", "reason": "was needed once"},
    ]
    run = record(store, {"e": [exchange("POST", "/act", sent={"ts": 1, "a": 1}, request_headers=KIND)]})
    async with staged(store, run, rules=Relaxation(parse_rules(table))) as on:
        head, _ = await post(on, "/act", {"ts": 2.5, "a": 1})
        receipt = on.receipt()
    assert b" 200 " in head
    assert receipt["served"]["relaxed"] == 1
    assert receipt["rules"] == [
        {"name": "clock", "action": "mask", "uses": 1}, {"name": "old", "action": "mask", "uses": 0},
    ]  # fmt: skip
    assert receipt["unused_rules"] == ["old"]
    assert not receipt["reproduced"]


async def test_a_name_that_the_environment_held_at_the_start_is_no_agents_to_mint(store: Store) -> None:
    built = prolly.build({"deals": {A: {"stage": "won"}}})
    writer = store.writer()
    run = writer.open_run(Run(key=0, name="r", opened_wall=1, envs={"app": EnvWiring(name="app", upstream=UPSTREAM)}))
    opened = writer.open_episode(episode("e", run_key=run.key))
    writer.put_nodes(built.nodes)
    writer.put_snapshot(opened.key, snapshot(0, built.root, name="app", when="start", rows=1))
    for n, key in enumerate((A, B)):
        writer.put_exchange(opened.key, exchange("POST", "/act", sent=act(key), request_headers=KIND, at_ms=n))
    writer.seal(opened).result(10)
    writer.close()
    async with staged(store, run) as on:
        _, body = await post(on, "/act", act(X))
        assert b" 200 " in (await post(on, "/act", act(A)))[0]
        receipt = on.receipt()
    assert body == b""  # the second one was minted, and is the one that X stands for
    assert [(one["recorded"], one["live"]) for one in receipt["bindings"]] == [(B, X)]
