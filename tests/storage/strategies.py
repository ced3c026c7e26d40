"""Strategies for every value that a store keeps."""

from __future__ import annotations

from hypothesis import strategies as st

from replayproxy.core.canonical import digest
from replayproxy.core.values import (
    Body,
    Chunk,
    EnvWiring,
    Episode,
    EpisodeState,
    Event,
    Exchange,
    Message,
    Outcome,
    Request,
    Response,
    Run,
    Seal,
    Snapshot,
    SnapshotStatus,
    Times,
    WebSocket,
)

instants = st.integers(min_value=0, max_value=2**63)
maybe_instant = st.none() | instants
anything = st.binary(max_size=20)  # wire bytes: not UTF-8, control characters, empty
text = st.text(max_size=10)
surrogates = st.text(st.characters(codec=None), max_size=10)
addresses = st.binary(min_size=32, max_size=32)
fields = st.lists(st.tuples(anything, anything), max_size=4).map(tuple)
orders = st.tuples(instants, st.integers(min_value=0, max_value=2**16 - 1))
chunks = st.lists(st.builds(Chunk, size=st.integers(0, 2**40), at=instants), max_size=3).map(tuple)


def _whole(data: bytes, passed: tuple[Chunk, ...]) -> Body:
    return Body(size=len(data), digest=digest(data), inline=data, chunks=passed)


bodies = st.none() | st.builds(_whole, st.binary(max_size=100), chunks) | st.builds(
    Body, size=st.integers(0, 2**50), digest=addresses, inline=st.none() | anything,
    pieces=st.lists(addresses, max_size=3).map(tuple), chunks=chunks,
)  # fmt: skip

requests = st.builds(
    Request, method=anything, target=anything, version=anything, fields=fields, body=bodies,
    agent_host=st.none() | anything, trailers=fields,
)  # fmt: skip
responses = st.builds(
    Response, status=st.integers(), reason=anything, version=anything, fields=fields, body=bodies, trailers=fields,
    informational=st.lists(st.tuples(st.integers(100, 199), fields), max_size=2).map(tuple),
)  # fmt: skip
websockets = st.builds(
    WebSocket,
    messages=st.lists(
        st.builds(Message, from_agent=st.booleans(), text=st.booleans(), payload=anything, at=instants), max_size=3
    ).map(tuple),
    close_code=st.none() | st.integers(), close_reason=text, closed_by_agent=st.none() | st.booleans(),
)  # fmt: skip
times = st.builds(
    Times, head=instants, wall=st.integers(), c_in=maybe_instant, fwd=maybe_instant, first=maybe_instant,
    up_end=maybe_instant, c_out=maybe_instant,
)  # fmt: skip
exchanges = st.builds(
    Exchange, seq=st.just(0), order=orders, env=text, lane=surrogates, request=requests,
    response=st.none() | responses, outcome=st.sampled_from(Outcome), times=times, carrier=surrogates,
    websocket=st.none() | websockets, error=surrogates, cut_at=st.none() | st.integers(), upstream=text,
    agent_connection=text, env_connection=text, held_ns=st.integers(), closed_by_agent=st.none() | st.booleans(),
    notes=st.lists(text, max_size=2).map(tuple), is_reset=st.booleans(), is_probe=st.booleans(),
)  # fmt: skip

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.decimals(allow_nan=False) | surrogates,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=5,
)  # fmt: skip
mappings = st.dictionaries(text, json, max_size=3)
words = st.dictionaries(text, text, max_size=3)
texts = st.lists(surrogates, max_size=3).map(tuple)

runs = st.builds(
    Run, key=st.integers(0, 2**64 - 1), name=text, opened_wall=st.integers(), closed_wall=st.none() | st.integers(),
    envs=st.dictionaries(
        text,
        st.builds(EnvWiring, name=text, upstream=text, listener=text, reset=st.none() | st.tuples(text, text, text),
                  reads=texts, options=mappings),
        max_size=2,
    ),
    snapshots=words, snapshot_when=texts, snapshot_mode=text, url_style=text, meta=mappings, config=mappings,
    origin=text, version=text, faults=texts,
)  # fmt: skip
episodes = st.builds(
    Episode, key=st.integers(0, 2**64 - 1), run_key=st.integers(0, 2**64 - 1), name=text, task=st.none() | text,
    seed=st.none() | st.integers(), attempt=st.none() | st.integers(), group=st.none() | text, meta=mappings,
    envs=words, instance=words, declared=st.booleans(), opened=instants, opened_wall=st.integers(),
    ended=maybe_instant, ended_wall=st.none() | st.integers(), ended_by=st.none() | text,
    state=st.sampled_from(EpisodeState), reward=st.none() | st.floats(allow_nan=False), outcome=st.none() | text,
    faults=texts, escaping_links=st.integers(),
    seal=st.none() | st.builds(Seal, exchanges=st.integers(), snapshots=st.integers(), chain=addresses),
)  # fmt: skip
snapshots = st.builds(
    Snapshot, n=st.integers(0, 2**32 - 1), name=text, env=st.none() | text, when=text, label=surrogates,
    status=st.sampled_from(SnapshotStatus), reason=surrogates, late=st.booleans(), mode=text, atomic=st.booleans(),
    can_restore=st.booleans(), scope=text, root=st.none() | addresses, aside=st.none() | addresses,
    rows=st.integers(), begun=instants, done=instants, wall=st.integers(), after=st.none() | orders,
    after_seq=st.none(), in_flight=st.lists(orders, max_size=2).map(tuple), in_flight_seq=st.just(()),
    shared_with=texts,
)  # fmt: skip
events = st.builds(Event, at=instants, wall=st.integers(), kind=text, detail=mappings)
