"""JSON-RPC: the ids that a client chooses bind for one exchange; everything else of a call is in the key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.callids import differing, replay_key
from replayproxy.core.replayer import Grade
from replayproxy.testing import exchange, request
from tests.core.play import Play
from tests.core.world import relaxed

KIND = {"Content-Type": "application/json"}


def call(id_: Any, method: str = "tools/list", **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, **more}


def rpc(body: Any) -> Any:
    return request("POST", "/mcp", body, headers=KIND)


ids = st.integers() | st.text(min_size=1, max_size=8) | st.booleans()


@relaxed
@given(ids, ids, st.sampled_from(["tools/list", "tools/call"]), st.sampled_from(["tools/list", "tools/call"]))
def test_calls_are_one_exactly_when_all_but_their_ids_is(a: Any, b: Any, one: str, other: str) -> None:
    left, right = replay_key("app", rpc(call(a, one))), replay_key("app", rpc(call(b, other)))
    assert (left[0] == right[0]) is (one == other)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (call(1), {"jsonrpc": "2.0", "method": "tools/list"}),  # a notification is no call
        (call(1), call(None)),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 2, "result": {}}),  # the server's id
        ({"id": 1, "method": "x"}, {"id": 2, "method": "x"}),  # no JSON-RPC 2.0
        (call(1, params={"id": 1}), call(1, params={"id": 2})),
        ([call(1)], call(1)),
        (call(1), [call(1), call(2)]),
    ],
)
def test_what_is_no_id_of_a_call_stays_in_the_key(a: Any, b: Any) -> None:
    assert replay_key("app", rpc(a))[0] != replay_key("app", rpc(b))[0]


def test_progress_tokens_and_cancellations_name_calls_and_bind_too() -> None:
    a = rpc(call(1, params={"_meta": {"progressToken": 1}, "name": "x"}))
    b = rpc(call("u", params={"_meta": {"progressToken": "p"}, "name": "x"}))
    (key_a, ids_a), (key_b, ids_b) = replay_key("app", a), replay_key("app", b)
    assert key_a == key_b
    assert differing(ids_a, ids_b) == [("/id", "1", '"u"'), ("/params/_meta/progressToken", "1", '"p"')]
    stop = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert replay_key("app", rpc(stop))[1] == (("/params/requestId", "1"),)


def test_a_client_that_counts_from_elsewhere_gets_its_own_ids_and_the_answers_in_their_order() -> None:
    recorded = [exchange("POST", "/mcp", sent=call(n), request_headers=KIND, at_ms=n) for n in (1, 2, 3)]
    play = Play(*recorded)
    # The live ids 2 and 3 were recorded too, of later calls: the n-th call still gets the n-th answer.
    found = [play.served("POST", "/mcp", call(n), headers=KIND) for n in (2, 3, "x")]
    assert [one.entry.seq for one in found] == [1, 2, 3]
    assert [dict(one.renames.ids) if one.renames else {} for one in found] == [{"1": "2"}, {"2": "3"}, {"3": '"x"'}]
    assert {one.grade for one in found} == {Grade.CANONICAL}
    assert play.bound == [(1, 2, "body/id", "json-rpc"), (2, 3, "body/id", "json-rpc"), (3, "x", "body/id", "json-rpc")]
    assert play.receipt()["reproduced"]


def test_equal_calls_made_at_once_are_told_apart_by_their_ids_where_these_are_the_recorded() -> None:
    together = [exchange("POST", "/mcp", sent=call(n), request_headers=KIND, at_ms=n / 10, took_ms=50) for n in (1, 2)]
    play = Play(*together)
    assert play.replayer.script.lane_ambiguous == 0
    assert [play.ask("POST", "/mcp", call(n), headers=KIND) for n in (2, 1)] == [2, 1]
    assert play.receipt()["reproduced"]


def test_a_changed_argument_is_a_miss_that_names_it_and_not_the_id() -> None:
    made = call(1, "tools/call", params={"name": "move", "arguments": {"to": "left"}})
    asked = call(9, "tools/call", params={"name": "move", "arguments": {"to": "right"}})
    near = Play(exchange("POST", "/mcp", sent=made, request_headers=KIND)).missed(
        "POST", "/mcp", asked, headers=KIND
    )["nearest"][0]  # fmt: skip
    assert (near["pointer"], near["recorded"], near["asked"]) == ("body/params/arguments/to", "left", "right")


def test_equal_calls_made_at_once_and_named_otherwise_cannot_be_told_apart_and_the_receipt_says_so() -> None:
    def recorded(took: int) -> Play:
        return Play(*(
            exchange("POST", "/mcp", sent=call(n), request_headers=KIND, at_ms=n, took_ms=took) for n in (1, 2)
        ))  # fmt: skip

    for took, ambiguous in ((50, 2), (0.5, 0)):
        play = recorded(took)
        assert [play.ask("POST", "/mcp", call(n), headers=KIND) for n in (7, 8)] == [1, 2]
        assert play.receipt()["lane_ambiguous"] == ambiguous
        assert play.receipt()["reproduced"] is not bool(ambiguous)
