"""Whether what an agent says in a conversation is what was recorded there."""

from __future__ import annotations

import json

import pytest

from replayproxy.core.conversation import REASON_LIMIT, Conversation, End, cut, end_of, unlike, unlike_close
from replayproxy.core.mint import Renames
from replayproxy.core.values import Exchange
from tests.serve.talks import agent, env, talk

CALL = '{"jsonrpc": "2.0", "id": %s, "method": "add", "params": {"n": 1}}'


def test_equal_bytes_are_exact() -> None:
    state = Conversation()
    assert state.hear(1, agent("x"), agent("x"))
    assert (state.exact, state.heard) == (True, 1)


@pytest.mark.parametrize("asked", ['{"b":2,"a":1.0}', '{"a": 1e0, "b": 2}'])
def test_equal_values_are_canonical(asked: str) -> None:
    state = Conversation()
    assert state.hear(1, agent('{"a":1,"b":2}'), agent(asked))
    assert not state.exact


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [("1", b"1"), ("x", "x "), ("0.1", "0.10000000000000001"), ('{"a":1,"a":1}', '{"a":1}'), ("[1]", "[1,2]")],
)
def test_another_type_or_value_is_not_the_same(recorded: str | bytes, asked: str | bytes) -> None:
    state = Conversation()
    assert not state.hear(1, agent(recorded), agent(asked))
    assert state.heard == 0


@pytest.mark.parametrize(("recorded", "live"), [("7", "8"), ("7", '"a-1"'), ('"u"', "1")])
def test_the_id_of_a_call_binds_and_the_answer_carries_the_live_one(recorded: str, live: str) -> None:
    state = Conversation()
    assert state.hear(1, agent(CALL % recorded), agent(CALL % live))
    answer = '{"result": {"id": %s},  "id": %s, "jsonrpc": "2.0"}'
    assert state.say(env(answer % (recorded, recorded))) == (answer % (recorded, live)).encode()
    assert [(one.recorded, one.live, one.place) for one in state.bindings] == [(recorded, live, "messages/1/id")]
    assert not state.exact


def test_a_call_of_the_environment_keeps_its_own_id() -> None:
    state = Conversation()
    assert state.hear(1, agent(CALL % 7), agent(CALL % 8))
    assert state.say(env(CALL % 7)) == (CALL % 7).encode()


def test_what_else_refers_to_a_call_is_bound_with_it() -> None:
    state = Conversation()
    gone = '{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": %s}}'
    assert state.hear(1, agent(CALL % 7), agent(CALL % 8))
    assert state.hear(3, agent(gone % 7), agent(gone % 8))
    assert len(state.bindings) == 1


def test_a_value_bound_before_stands_for_the_recorded_one_on_both_sides() -> None:
    was, now = "6f1c0f2e-58a4-4d0a-9c1e-0a1b2c3d4e5f", "11111111-2222-4333-8444-555555555555"
    state = Conversation(Renames(tokens={was: now}))
    assert state.hear(1, agent(f'{{"session": "{was}"}}'), agent(f'{{"session": "{now}"}}'))
    assert state.say(env(f"welcome {was}")) == f"welcome {now}".encode()
    assert state.say(env(was.encode())) == was.encode(), "binary messages are never touched"
    assert not state.exact


def test_the_id_of_an_answer_is_not_bound() -> None:
    answer = '{"jsonrpc": "2.0", "id": %s, "result": 1}'
    assert not Conversation().hear(1, agent(answer % 7), agent(answer % 8))


def test_what_was_due_is_told_first_and_a_later_message_is_recognised() -> None:
    around = [(3, agent('{"do": "a"}')), (5, agent('{"do": "b"}')), (1, agent('{"do": "c"}'))]
    found = unlike(3, agent('{"do": "b"}'), around)
    assert [(near.number, near.state, near.pointer) for near in found.near] == [
        (3, "free", "messages/3/do"),
        (5, "free", None),
        (1, "answered", "messages/1/do"),
    ]
    assert found.near[1].note == "the same message, recorded after this place"
    assert found.reason() == b"messages/3/do: recorded a, asked b"


def test_a_message_that_comes_twice_is_known_as_consumed() -> None:
    found = unlike(3, agent("a"), [(3, agent("b")), (1, agent("a"))])
    assert (found.near[1].state, found.near[1].pointer) == ("consumed", None)


def test_a_message_where_none_was_recorded_says_what_it_is() -> None:
    found = unlike(4, agent(b"abc"), [])
    assert found.reason() == b"messages/4: no message of the agent was recorded here, asked binary of 3 bytes"


def test_another_type_is_told_as_such() -> None:
    assert unlike(1, agent(b"{}"), [(1, agent("{}"))]).pointer == "messages/1/type"


def test_a_credential_is_never_in_the_reason() -> None:
    found = unlike(1, agent('{"api_key": "two"}'), [(1, agent('{"api_key": "one"}'))])
    assert found.pointer == "messages/1/api_key"
    assert b"one" not in found.reason()
    assert b"two" not in found.reason()


def test_another_close_names_code_or_reason() -> None:
    assert unlike_close(5, (1000, ""), (1001, "")).reason() == b"close/code: recorded 1000, asked 1001"
    assert unlike_close(5, (1000, "done"), (1000, "")).pointer == "close/reason"


@pytest.mark.parametrize("text", ["ü" * 200, "a" + "😀" * 60, "x" * 123])
def test_a_reason_fits_its_frame_and_is_utf8(text: str) -> None:
    raw = cut(text)
    assert len(raw) <= REASON_LIMIT
    assert text.startswith(raw.decode().removesuffix("…"))


@pytest.mark.parametrize(
    ("exchange", "end"),
    [
        (talk(code=1000, by_agent=True), End.AGENT_CLOSED),
        (talk(code=1001, by_agent=False), End.ENV_CLOSED),
        (talk(code=1006, by_agent=True), End.AGENT_GONE),
        (talk(code=1006, by_agent=False), End.ENV_GONE),
        (talk(code=None), End.OPEN),
    ],
)
def test_how_a_conversation_ended(exchange: Exchange, end: End) -> None:
    assert end_of(exchange) is end


def test_a_large_value_is_cut_for_people_and_matching_sees_all_of_it() -> None:
    long = json.dumps({"a": "x" * 10_000})
    found = unlike(1, agent(long[:-3] + 'y"}'), [(1, agent(long))])
    assert found.pointer == "messages/1/a"
    assert len(found.reason()) <= REASON_LIMIT
