"""From a recorded exchange to the bytes of its answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replayproxy.core.values import Exchange, Outcome
from replayproxy.serve.wire import Ending, Framing, Plan, chunks_of, plan, problem, whole_body
from replayproxy.testing import exchange

CHUNKED = {"Transfer-Encoding": "chunked"}


def planned(one: Exchange) -> Plan:
    return plan(one, one.response.fields if one.response else ())


@pytest.mark.parametrize(
    ("headers", "body", "version", "framing", "ending"),
    [
        ({"Content-Length": "2"}, b"ok", b"HTTP/1.1", Framing.LENGTH, Ending.KEEP),
        ({"content-length": "2", "CONNECTION": "Close"}, b"ok", b"HTTP/1.1", Framing.LENGTH, Ending.CLOSE),
        ({"Content-Length": "2", "Connection": "x, close"}, b"ok", b"HTTP/1.1", Framing.LENGTH, Ending.CLOSE),
        ({"Content-Length": "2"}, b"ok", b"HTTP/1.0", Framing.LENGTH, Ending.CLOSE),
        ({"Content-Length": "2", "Connection": "keep-alive"}, b"ok", b"HTTP/1.0", Framing.LENGTH, Ending.KEEP),
        ({"Content-Length": "3"}, b"ok", b"HTTP/1.1", Framing.LENGTH, Ending.CLOSE),
        (CHUNKED, b"ok", b"HTTP/1.1", Framing.CHUNKED, Ending.KEEP),
        ({"Transfer-Encoding": "gzip, Chunked"}, b"ok", b"HTTP/1.1", Framing.CHUNKED, Ending.KEEP),
        ({}, b"ok", b"HTTP/1.1", Framing.CLOSE, Ending.CLOSE),
        ({}, b"", b"HTTP/1.1", Framing.CLOSE, Ending.CLOSE),
    ],
)
def test_the_fields_say_where_the_body_ends(
    headers: dict[str, str], body: bytes, version: bytes, framing: Framing, ending: Ending
) -> None:
    one = exchange(body=body, headers=headers)
    assert one.response is not None
    made = planned(replace(one, response=replace(one.response, version=version)))
    assert (made.framing, made.ending) == (framing, ending)
    assert made.head.startswith(version + b" 200 OK\r\n")


def test_an_answer_over_http_2_is_given_as_1_1() -> None:
    one = exchange(body=b"", headers={"Content-Length": "0"})
    assert one.response is not None
    two = replace(one, response=replace(one.response, version=b"HTTP/2.0", reason=b""))
    assert planned(two).head == b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n"


def test_interim_answers_come_before_the_answer() -> None:
    one = exchange(body=b"", headers={"Content-Length": "0"})
    assert one.response is not None
    hints = ((100, ()), (103, ((b"Link", b"</a>"),)))
    head = planned(replace(one, response=replace(one.response, informational=hints))).head
    assert head == b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def test_a_body_that_passed_as_a_block_is_one_chunk_and_an_empty_one_none() -> None:
    assert whole_body(planned(exchange(body=b"block", headers=CHUNKED))) == b"5\r\nblock\r\n0\r\n\r\n"
    assert whole_body(planned(exchange(body=b"", headers=CHUNKED))) == b"0\r\n\r\n"


def test_chunks_that_do_not_add_up_are_not_believed() -> None:
    one = exchange(body=b"abcdef", headers=CHUNKED, chunks=[(2, 1), (2, 2)])
    assert one.response is not None
    assert chunks_of(one.response.body) == [(6, None)]


@pytest.mark.parametrize("outcome", [Outcome.CLIENT_GONE, Outcome.OPEN_AT_END])
def test_what_had_not_reached_the_agent_is_held_back(outcome: Outcome) -> None:
    nothing = planned(exchange(status=None, outcome=outcome))
    block = planned(exchange(body=b"held", headers={"Content-Length": "4"}, outcome=outcome))
    assert (nothing.head, block.head, nothing.ending, block.ending) == (b"", b"", Ending.HOLD, Ending.HOLD)
    streamed = exchange(body=b"abcdef", headers={"Content-Length": "6"}, chunks=[(4, 1), (2, 2)], outcome=outcome)
    assert whole_body(planned(streamed)) == b"abcd"
    endless = planned(exchange(body=b"ab", headers=CHUNKED, chunks=[(2, 1)], outcome=outcome))
    assert whole_body(endless) == b"2\r\nab\r\n"
    opened = planned(exchange(body=b"", headers={"Content-Type": "text/event-stream"}, outcome=outcome))
    assert opened.head.startswith(b"HTTP/1.1 200 OK\r\n")


def test_our_own_answers_say_whose_they_are_and_fit_a_head_request() -> None:
    whole = problem(470, "No", b"{}", (b"Replay-Miss", b"1"), head_only=False)
    assert whole.endswith(b"Replay-Miss: 1\r\nContent-Length: 2\r\n\r\n{}")
    assert problem(470, "No", b"{}", (b"Replay-Miss", b"1"), head_only=True) == whole[:-2]


def injected(one: Exchange, note: str) -> Exchange:
    return replace(one, notes=(f"injected:{note} (--chaos 'x')",))


def test_an_injected_status_is_given_as_it_was_and_an_injected_reset_as_a_close() -> None:
    status = injected(exchange(status=503, body=b"no", headers={"Content-Length": "2"}), "status 503")
    made = planned(replace(status, outcome=Outcome.LOCAL))
    assert (made.head[:12], made.whole, made.ending) == (b"HTTP/1.1 503", True, Ending.KEEP)
    reset = planned(replace(injected(exchange(), "reset"), response=None, outcome=Outcome.LOCAL))
    assert (reset.head, reset.ending) == (b"", Ending.CLOSE)


def test_a_truncated_answer_is_given_as_far_as_the_agent_got_it() -> None:
    one = injected(exchange(body=b"0123456789", headers={"Content-Length": "10"}), "truncate 4")
    made = planned(one)
    assert made.body is not None
    assert (made.body.inline, made.body.size, made.whole, made.ending) == (b"0123", 4, False, Ending.CLOSE)
    assert b"Content-Length: 10\r\n" in made.head
