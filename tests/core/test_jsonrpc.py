"""Which ids of JSON-RPC messages are the caller's own."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.jsonrpc import bind_ids, with_live_id


def call(id_: Any, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": "m", **more}


def test_the_ids_of_two_calls_are_a_pair() -> None:
    assert bind_ids(call(1), call("x")) == (1, "x")


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        (call(1), call(1)),
        ({"jsonrpc": "2.0", "id": 1, "result": 0}, {"jsonrpc": "2.0", "id": 2, "result": 0}),
        ({"id": 1, "method": "m"}, {"id": 2, "method": "m"}),
        (call(True), call(False)),
        (call(None), call(1)),
        ([call(1)], [call(2)]),
    ],
)
def test_nothing_else_is(recorded: Any, asked: Any) -> None:
    assert bind_ids(recorded, asked) is None


def test_the_live_id_takes_the_recorded_ones_place() -> None:
    assert with_live_id(call(1, params=[1]), 2) == call(2, params=[1])
