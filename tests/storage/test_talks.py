"""Conversations in the store: short ones in their record, long ones apart, read back message by message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replayproxy.core.values import Episode, Exchange, Message, Run, WebSocket
from replayproxy.errors import DamagedRecord
from replayproxy.storage import Store
from replayproxy.storage.codec import bodies_of
from replayproxy.testing import episode, exchange
from tests.serve.talks import agent, env, talk

SHORT = (agent("hi", 1), env(b"\x00", 2))
LONG = tuple((agent if at % 2 else env)("x" * at, at) for at in range(400))
LARGE = (agent(b"\x01" * 700_000, 1), env("", 2), env(b"\x02" * 300_000, 3))


def stored(store: Store, one: Exchange) -> tuple[Run, Episode]:
    writer = store.writer()
    run = writer.open_run(Run(key=0, name="r", opened_wall=1))
    opened = writer.open_episode(episode(run_key=run.key))
    writer.put_exchange(opened.key, one)
    sealed = writer.seal(opened).result(10)
    writer.close()
    return run, sealed


@pytest.mark.parametrize("said", [SHORT, LONG, LARGE, ()], ids=["short", "long", "large", "silent"])
def test_a_conversation_comes_back_as_it_was(store: Store, said: tuple[Message, ...]) -> None:
    _, sealed = stored(store, talk(*said))
    reader = store.reader()
    found = reader.exchange(sealed, 1).websocket
    assert found is not None
    assert found.is_apart is (said in (LONG, LARGE))
    assert found.count == len(said)
    assert tuple(reader.messages(found)) == said
    whole = reader.exchange(sealed, 1, bodies=1 << 30).websocket
    assert whole is not None
    assert whole.messages == said


def test_what_was_loaded_is_stored_again_as_it_was(store: Store) -> None:
    _, sealed = stored(store, talk(*LONG))
    again = store.reader().exchange(sealed, 1, bodies=1 << 30)
    writer = store.writer()
    other = writer.open_run(Run(key=0, name="copy", opened_wall=2))
    opened = writer.open_episode(episode(run_key=other.key))
    writer.put_exchange(opened.key, again)
    copied = writer.seal(opened).result(10)
    writer.close()
    reader = store.reader()
    assert reader.exchange(copied, 1).websocket == reader.exchange(sealed, 1).websocket


def test_the_pieces_of_a_long_conversation_belong_to_its_record(store: Store) -> None:
    _, sealed = stored(store, talk(*LARGE))
    one = store.reader().exchange(sealed, 1)
    named = dict(bodies_of(one))
    assert sorted(named) == ["messages", "request", "response"]
    assert len(named["messages"].pieces) == 4


def test_a_lost_piece_is_damage_that_names_the_exchange(store: Store) -> None:
    run, sealed = stored(store, talk(*LARGE))
    reader = store.reader()
    one = reader.exchange(sealed, 1)
    assert one.websocket is not None
    assert one.websocket.log is not None
    log = one.websocket.log
    lost = replace(log, body=replace(log.body, pieces=(b"\0" * 32, *log.body.pieces[1:])))
    with pytest.raises(DamagedRecord):
        list(reader.messages(replace(one.websocket, log=lost)))
    cut = replace(log, body=replace(log.body, pieces=log.body.pieces[:-1]))
    with pytest.raises(DamagedRecord, match="a conversation"):
        list(reader.messages(replace(one.websocket, log=cut)))
    del run


def test_a_record_of_before_has_its_messages_inside(store: Store) -> None:
    said = WebSocket(messages=SHORT, close_code=1000, closed_by_agent=True)
    _, sealed = stored(store, exchange("GET", "/ws", status=101, websocket=said))
    assert store.reader().exchange(sealed, 1).websocket == said
