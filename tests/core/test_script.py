"""The index of a recorded episode."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replayproxy.core.canonical import body_of
from replayproxy.core.script import exact_key
from replayproxy.core.scriptbuild import build
from replayproxy.core.values import Body, Event, Exchange, Outcome, Times, WebSocket
from replayproxy.testing import exchange, request, trace


def script(*exchanges: Exchange):
    return build(trace(exchanges).exchanges, run="r", episode="e")


def test_equal_requests_of_one_lane_stand_in_one_queue_in_order_of_arrival() -> None:
    built = script(exchange("GET", "/counter"), exchange("POST", "/inc"), exchange("GET", "/counter"))
    assert sorted(list(places) for places in built.queues.values()) == [[0, 2], [1]]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"outcome": Outcome.LOCAL}, "local"),
        ({"outcome": Outcome.HALF_SENT}, "half-sent"),
        ({"outcome": Outcome.LOST}, "lost"),
        ({"outcome": Outcome.LOST, "websocket": WebSocket(messages=(), close_code=None)}, "lost"),
        ({"status": 101}, "upgraded to another protocol"),
        ({"is_probe": True}, "probe"),
        ({"sent": None}, "request body not kept"),
        ({"body": None}, "body not kept"),
    ],
)
def test_what_cannot_be_given_again_is_in_no_queue_and_says_why(more: dict, reason: str) -> None:
    built = script(exchange("GET", "/x", **more))
    assert (built.entries[0].skip, built.queues) == (reason, {})


def test_a_head_answer_needs_no_body() -> None:
    assert script(exchange("HEAD", "/x", body=None)).entries[0].skip == ""


def test_large_request_bodies_are_read_one_at_a_time_and_let_go() -> None:
    data = b'{"a": 1.0}' + b" " * 5000
    whole = body_of(data)
    stored = Body(size=whole.size, digest=whole.digest, inline=None, pieces=(whole.digest,))
    read: list[Body] = []

    def load(body: Body) -> Body:
        read.append(body)
        return Body(size=body.size, digest=body.digest, inline=data, pieces=body.pieces)

    recorded = exchange("POST", "/x", sent=stored, request_headers={"Content-Type": "application/json"})
    built = build([recorded], run="r", episode="e", load=load)
    asked = built.identify("app", request("POST", "/x", b'{"a":1}', headers={"content-type": "application/json"}))
    assert asked.key == built.entries[0].key
    assert read == [stored]
    assert built.entries[0].exchange.request.body == stored


def test_a_byte_equal_request_is_known_without_parsing() -> None:
    built = script(exchange("POST", "/x", sent={"a": 1}))
    assert built.known("app", built.entries[0].exchange.request) is not None
    assert built.known("app", request("POST", "/x", b'{"a":1}')) is None


def test_the_exact_key_looks_at_key_fields_only_and_not_at_their_order() -> None:
    one = request(headers=[("Range", "bytes=0-3"), ("If-Match", "a"), ("X-Trace", "1")])
    two = request(headers=[("if-match", "a"), ("range", "bytes=0-3")])
    three = request(headers=[("if-match", "b"), ("range", "bytes=0-3")])
    assert exact_key("app", one) == exact_key("app", two) != exact_key("app", three)


def test_overlapping_equal_requests_without_lanes_are_counted() -> None:
    twice = [exchange("GET", "/x", at_ms=0, took_ms=20), exchange("GET", "/x", at_ms=10, took_ms=20)]
    assert script(*twice).lane_ambiguous == 1
    apart = [exchange("GET", "/x", at_ms=0, took_ms=5), exchange("GET", "/x", at_ms=10, took_ms=20)]
    assert script(*apart).lane_ambiguous == 0


def test_a_request_repeated_after_the_agent_had_left_is_not_ambiguous() -> None:
    times = Times(head=10, wall=0, c_in=11, fwd=12)
    left = replace(exchange("GET", "/x", status=None, outcome=Outcome.CLIENT_GONE), times=times, agent_connection="c1")
    again = exchange("GET", "/x", at_ms=50)
    recorded = trace([left, again]).exchanges
    closed = Event(at=20, wall=0, kind="agent-closed", detail={"connection": "c1"})
    assert build(recorded, run="r", episode="e").lane_ambiguous == 1
    assert build(recorded, run="r", episode="e", events=[closed]).lane_ambiguous == 0
