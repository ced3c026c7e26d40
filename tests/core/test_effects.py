"""Which request is a write, which two exchanges conflict, and where lanes leave the order open."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.canonical import body_of, request_key
from replayproxy.core.effects import Overlaps, is_write, lane_ambiguities, may_conflict, segments
from replayproxy.core.values import Request
from replayproxy.testing import exchange

JSON = ((b"Content-Type", b"application/json"),)


def post(document: object, target: bytes = b"/mcp") -> Request:
    body = body_of(json.dumps(document).encode())
    return Request(method=b"POST", target=target, version=b"HTTP/1.1", fields=JSON, body=body)


def call(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PROPFIND", b"REPORT"])
def test_safe_methods_are_reads(method: bytes) -> None:
    assert not is_write(Request(method=method, target=b"/", version=b"HTTP/1.1", fields=(), body=None))


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"PATCH", b"DELETE", b"MKCALENDAR", b"BREW"])
def test_any_other_method_is_a_write(method: bytes) -> None:
    assert is_write(Request(method=method, target=b"/", version=b"HTTP/1.1", fields=(), body=None))


def test_a_declared_read_is_one() -> None:
    reads = ("POST /search", "POST /q/*")
    assert not is_write(post({}, b"/search?x=1"), reads)
    assert not is_write(post({}, b"/q/a/b"), reads)
    assert is_write(post({}, b"/search/all"), reads)


def test_of_json_rpc_only_tool_calls_write() -> None:
    assert not is_write(post(call("tools/list")))
    assert not is_write(post(call("initialize")))
    assert is_write(post(call("tools/call", name="add")))
    assert not is_write(post(call("tools/call", name="look")), ("tools/call look",))
    assert is_write(post([call("tools/list"), call("tools/call", name="add")]))
    assert is_write(post({"jsonrpc": "1.0"}))


def test_conflicts_are_by_path_prefix_and_need_a_write() -> None:
    deal, deals, deal_note = (exchange(target=t) for t in ("/deals/1", "/deals?x=1", "/deals/1/notes"))
    other = exchange(target="/deals/12")
    assert may_conflict(deal, deals, True, False)
    assert may_conflict(deal, deal_note, False, True)
    assert not may_conflict(deal, deals, False, False)
    assert not may_conflict(deal, other, True, True)
    assert not may_conflict(deal, exchange(target="/deals/1", env="other"), True, True)


def test_segments_ignore_a_trailing_slash() -> None:
    assert segments(b"/a/b/?q=1") == (b"a", b"b")
    assert segments(b"/") == ()


def test_overlapping_identical_requests_in_one_lane_are_counted() -> None:
    key = lambda e: request_key(e.env, e.request)  # noqa: E731
    apart = [exchange(target="/x", at_ms=0), exchange(target="/x", at_ms=1000)]
    assert lane_ambiguities(apart, key) == 0
    together = [exchange(target="/x", at_ms=0), exchange(target="/x", at_ms=0.5)]
    assert lane_ambiguities(together, key) == 1
    lanes = [exchange(target="/x", at_ms=0, lane="a"), exchange(target="/x", at_ms=0.5, lane="b")]
    assert lane_ambiguities(lanes, key) == 0


SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 12), st.sampled_from("ab"), st.sampled_from("xyz")), max_size=30
)


@given(SPANS)
def test_overlaps_told_one_by_one_are_those_of_all_together(spans: list[tuple[int, int, str, str]]) -> None:
    spans = sorted(spans)
    made = [
        exchange(target=f"/{name}", at_ms=at, took_ms=took, lane=lane, worker=number)
        for number, (at, took, lane, name) in enumerate(spans)
    ]
    wanted = sum(
        any(
            (other.lane, other.request.target) == (one.lane, one.request.target)
            and one.times.head < (other.times.c_out or 0)
            for other in made[:number]
        )
        for number, one in enumerate(made)
    )
    told, under_way = Overlaps(), {one.order for one in made}
    for one in sorted(made, key=lambda one: one.times.c_out or 0):
        under_way.discard(one.order)
        told.add(one, one.request.target)
        told.settle(min(under_way, default=None))
    assert told.count == lane_ambiguities(made, lambda one: one.request.target) == wanted


def test_what_is_beside_a_stream_that_stays_open_is_not_all_kept() -> None:
    told, most = Overlaps(), 0
    for number in range(12_000):
        told.add(exchange(target=f"/{number}", at_ms=10 + number, took_ms=0.5), number)
        told.settle((0, 0))  # the stream came first, and is still under way
        most = max(most, len(told))
    assert told.count == 0
    assert most <= Overlaps.PENDING + 1_000
