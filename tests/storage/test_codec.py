from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.values import Episode, EpisodeState, Event, Exchange, Run, Snapshot
from replayproxy.storage import cold
from replayproxy.storage.codec import decode_exchange, encode_exchange, settle
from replayproxy.storage.frame import Broken, seal_record
from replayproxy.testing import body, episode, exchange
from tests.storage import strategies

few = settings(max_examples=40)


@few
@given(strategies.exchanges, st.integers(min_value=1))
def test_an_exchange_comes_back_as_it_was(given_one: Exchange, seq: int) -> None:
    raw = encode_exchange(given_one)
    assert decode_exchange(raw, given_one.order, seq) == replace(given_one, seq=seq)


@few
@given(strategies.runs)
def test_a_run_comes_back_as_it_was(run: Run) -> None:
    assert repr(cold.decode(Run, cold.encode(run))) == repr(run)


@few
@given(strategies.episodes, st.integers(0, 2**64 - 1))
def test_an_episode_comes_back_as_it_was(given_one: Episode, session: int) -> None:
    back, writer = cold.decode_episode(cold.encode_episode(given_one, session))
    assert (repr(back), writer) == (repr(given_one), session)


@few
@given(strategies.snapshots)
def test_a_snapshot_comes_back_as_it_was(snapshot: Snapshot) -> None:
    assert repr(cold.decode(Snapshot, cold.encode(snapshot))) == repr(snapshot)


@few
@given(strategies.events)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    assert repr(cold.decode(Event, cold.encode(event))) == repr(event)


def test_header_bytes_that_are_no_text_come_back() -> None:
    sent = exchange(request_headers=[(b"X-\xff", b"\x80\xfe caf\xe9"), (b"x-\xff", b"")])
    assert decode_exchange(encode_exchange(sent), sent.order, 0) == sent


def test_a_body_that_was_not_captured_is_not_an_empty_one() -> None:
    for content in (None, b""):
        sent = exchange(body=content, sent=content)
        back = decode_exchange(encode_exchange(sent), sent.order, 0)
        assert back.response is not None
        assert back.response.body == body(content) == back.request.body


def test_no_answer_is_not_an_empty_answer() -> None:
    sent = exchange(status=None)
    assert decode_exchange(encode_exchange(sent), sent.order, 0).response is None


def test_a_record_under_the_key_of_another_is_broken() -> None:
    with pytest.raises(Broken, match="under the key of another"):
        decode_exchange(encode_exchange(exchange(at_ms=1)), exchange(at_ms=2).order, 1)


@few
@given(strategies.exchanges, st.data())
def test_a_changed_byte_is_always_noticed(given_one: Exchange, data: st.DataObject) -> None:
    raw = bytearray(encode_exchange(given_one))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Broken):
        decode_exchange(bytes(raw), given_one.order, 1)


@few
@given(strategies.exchanges, st.data())
def test_a_cut_record_is_always_noticed(given_one: Exchange, data: st.DataObject) -> None:
    raw = encode_exchange(given_one)
    with pytest.raises(Broken):
        decode_exchange(raw[: data.draw(st.integers(0, len(raw) - 1))], given_one.order, 1)


@few
@given(strategies.json, st.binary(max_size=10))
def test_a_document_of_another_shape_is_broken_and_nothing_else(document: Any, tail: bytes) -> None:
    """A checksum that fits says nothing about the shape: a record of a faulty writer must not bring a reader down."""
    raw = seal_record(document, tail, packed=True)
    for decode in (
        lambda: decode_exchange(raw, (0, 0), 1),
        lambda: cold.decode(Run, raw),
        lambda: cold.decode_episode(raw),
        lambda: cold.decode(Snapshot, raw),
    ):
        with pytest.raises(Broken):
            decode()


def test_a_small_body_stays_in_its_record_and_a_large_one_becomes_pieces() -> None:
    put: dict[bytes, bytes] = {}
    small, large = body(b"x" * 4095), body(b"y" * 600_000)
    assert settle(small, put.__setitem__) == small
    assert put == {}
    stored = settle(large, put.__setitem__)
    assert stored is not None
    assert stored.inline is None
    assert b"".join(put[address] for address in stored.pieces) == b"y" * 600_000
    assert [len(put[address]) for address in stored.pieces] == [262_144, 262_144, 75_712]


def test_a_member_that_has_its_default_is_not_written() -> None:
    assert "reward" not in cold.members(episode())
    assert cold.members(episode(reward=0.0))["reward"] == 0.0


def test_the_state_comes_back_as_a_state() -> None:
    back, _ = cold.decode_episode(cold.encode_episode(episode(state=EpisodeState.SEALED), 1))
    assert back.state is EpisodeState.SEALED
