from __future__ import annotations

from typing import Any

from replayproxy.core.pairing import kind_of, masked, pair
from replayproxy.core.values import Exchange
from replayproxy.testing import exchange, request, trace
from tests.core.world import JSON, World, deals, played


def numbered(*targets: str, **more: Any) -> list[Exchange]:
    return list(trace([exchange("GET", target, **more) for target in targets]).exchanges)


def test_one_extra_step_shifts_nothing() -> None:
    assert pair(numbered("/a", "/b", "/c"), numbered("/a", "/x", "/b", "/c")) == [(1, 1), (None, 2), (2, 3), (3, 4)]


def test_requests_with_fresh_ids_and_times_are_the_same_steps() -> None:
    a, b = played(deals, 0).exchanges, played(deals, 1, start_ms=70_000).exchanges
    assert pair(a, [*b]) == [(n, n) for n in range(1, 5)]


def test_a_near_miss_is_a_pair_and_another_kind_of_request_is_none() -> None:
    assert pair(numbered("/a", "/deals/1", "/c"), numbered("/a", "/deals/2", "/c")) == [(1, 1), (2, 2), (3, 3)]
    assert pair(numbered("/a", "/deals/1"), numbered("/a", "/tickets/1")) == [(1, 1), (2, None), (None, 2)]


def test_poll_loops_of_another_length_lose_only_their_surplus() -> None:
    a, b = numbered("/job", "/job", "/done"), numbered("/job", "/job", "/job", "/job", "/done")
    out = pair(a, b)
    assert sum(x is None for x, _ in out) == 2
    assert out[-1] == (3, 5)


def test_lanes_are_paired_each_for_itself_in_the_order_of_time() -> None:
    def lanes(order: str) -> list[Exchange]:
        counts = {"p": 0, "q": 0}
        made = []
        for at, lane in enumerate(order):
            counts[lane] += 1
            made.append(exchange("GET", f"/{lane}/{counts[lane]}", lane=lane, at_ms=at * 10))
        return list(trace(made).exchanges)

    assert pair(lanes("pqpq"), lanes("qqpp")) == [(1, 3), (2, 1), (3, 4), (4, 2)]


def test_lanes_of_random_names_meet_by_what_they_did() -> None:
    a = numbered("/x/1", "/x/2", lane="call_a1") + numbered("/y/1", "/y/2", lane="call_b2")
    b = numbered("/y/1", "/y/2", lane="call_7") + numbered("/x/1", "/x/2", lane="call_8")
    a = list(trace(a).exchanges)
    b = list(trace(b).exchanges)
    names = {x.seq: x.lane for x in a}
    other = {y.seq: y.lane for y in b}
    met = {(names[x], other[y]) for x, y in pair(a, b) if x and y}
    assert met == {("call_a1", "call_8"), ("call_b2", "call_7")}


def test_probes_and_resets_are_no_steps() -> None:
    a = list(trace([exchange("GET", "/health", is_probe=True), exchange("GET", "/x"),
                    exchange("POST", "/reset", is_reset=True)]).exchanges)  # fmt: skip
    assert pair(a, numbered("/x")) == [(2, 1)]


def test_json_rpc_calls_are_told_apart_by_what_they_call_and_not_by_their_number() -> None:
    def calls(*names: str) -> list[Exchange]:
        made = []
        for number, name in enumerate(names, 1):
            call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name}}
            made.append(exchange("POST", "/mcp", sent=call, request_headers=JSON))
        return list(trace(made).exchanges)

    assert pair(calls("a", "b"), calls("new", "a", "b")) == [(None, 1), (1, 2), (2, 3)]
    assert kind_of(calls("add")[0].request) == "POST /mcp tools/call add"
    assert kind_of(request("GET", "/deals/17")) == "GET /deals/{id}"


def test_what_chance_and_clock_put_in_is_masked() -> None:
    world = World(0)
    assert masked(f"a {world.id('x')} at 2026-11-29T10:00:00Z, 1700000000, 17") == "a * at *, *, 17"
