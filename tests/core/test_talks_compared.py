"""Two conversations compared: each direction in its order, by type and value, then the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replayproxy.core.canonical import body_of
from replayproxy.core.compare import compare
from replayproxy.core.values import Exchange, Log, WebSocket
from replayproxy.testing import trace
from tests.serve.talks import agent, env, talk


def pointers(a: Exchange, b: Exchange) -> list[tuple[str, Any]]:
    return [(root.pointer, root.values) for root in compare(trace([a]), trace([b])).roots]


def test_equal_values_are_the_same_and_a_changed_field_has_its_pointer() -> None:
    a = talk(agent('{"step": 1}'), env('{"data": {"x": 1}}'), env("second"))
    assert pointers(a, talk(agent('{"step":1.0}'), env('{"data":{"x":1e0}}'), env("second"))) == []
    changed = talk(agent('{"step": 1}'), env('{"data": {"x": 2}}'), env("second"))
    assert pointers(a, changed) == [("websocket/env/0/data/x", (1, 2))]


def test_the_note_gives_the_number_that_show_gives_the_message() -> None:
    a = talk(agent("x"), env('{"n": 1}'), agent("y"), env('{"n": 2}'))
    b = talk(agent("x"), env('{"n": 1}'), agent("y"), env('{"n": 3}'))
    (root,) = compare(trace([a]), trace([b])).roots
    assert (root.pointer, root.note) == ("websocket/env/1/n", "message 4 of show")


def test_another_type_is_a_difference() -> None:
    ((pointer, _),) = pointers(talk(env("a")), talk(env(b"a")))
    assert pointer == "websocket/env/0"


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ({"code": 4000}, ("1000 by the agent", "4000 by the agent")),
        ({"reason": "x"}, ("1000 by the agent", "1000 by the agent x")),
        ({"by_agent": False}, ("1000 by the agent", "1000 by the environment")),
    ],
)
def test_how_it_was_closed_is_compared(more: dict[str, Any], values: tuple[str, str]) -> None:
    assert ("websocket/close", values) in pointers(talk(), talk(**more))


def test_the_first_message_that_differs_is_the_root_and_the_close_follows_from_it() -> None:
    a = talk(agent("x"), env('{"data": {"x": 1}}'), env('{"y": "one"}'))
    b = talk(agent("x"), env('{"data": {"x": 2}}'), env('{"y": "two"}'), code=4000)
    (root,) = compare(trace([a]), trace([b])).roots
    assert root.pointer == "websocket/env/0/data/x"


def test_conversations_too_long_to_be_held_are_compared_by_what_was_said() -> None:
    def long(said: bytes) -> Exchange:
        log = Log(body=body_of(said), count=7, said=said * 32)
        return replace(talk(), websocket=WebSocket(messages=(), close_code=1000, closed_by_agent=True, log=log))

    assert pointers(long(b"a"), long(b"a")) == []
    ((pointer, values),) = pointers(long(b"a"), long(b"b"))
    assert pointer == "websocket"
    assert values == (f"7 messages, digest {'61' * 8}", f"7 messages, digest {'62' * 8}")
