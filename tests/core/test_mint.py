"""Live values in recorded answers: only what is named changes, wherever the pieces of a stream are cut."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.mint import EventRewriter, Renames, rewrite_answer, rewrite_json_id
from replayproxy.core.values import Body, Chunk
from replayproxy.testing import body, response
from tests.core.world import relaxed

UUID_A, UUID_B = "3f2c1a90-77de-4b1c-9a54-0e8f6f2d1b33", "9d1e7c44-0b5a-4f0e-8a7d-52c3b1e0aa17"
SSE = {"Content-Type": "text/event-stream"}


@pytest.mark.parametrize(
    ("payload", "recorded", "live", "expected"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, "result": {"id": 1}}', 1, 7,
         b'{"jsonrpc": "2.0", "id": 7, "result": {"id": 1}}'),
        (b'{"id":1.0,"jsonrpc":"2.0","result":1}', 1, "a-1", b'{"id":"a-1","jsonrpc":"2.0","result":1}'),
        (b'{"jsonrpc":"2.0","id":"1","result":1}', 1, 7, b'{"jsonrpc":"2.0","id":"1","result":1}'),
        (b'[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":2,"error":{}}]', 2, 9,
         b'[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":9,"error":{}}]'),
        # A call that the server makes has an id of the server's own.
        (b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}', 1, 7,
         b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}'),
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}', 1, 7,
         b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}'),
        (b'{"id":1,"result":1}', 1, 7, b'{"id":1,"result":1}'),
        (b'{"jsonrpc":"2.0","id":1', 1, 7, b'{"jsonrpc":"2.0","id":1'),
        (b"\xff\xfe", 1, 7, b"\xff\xfe"),
        (b"", 1, 7, b""),
    ],
)  # fmt: skip
def test_only_the_id_of_an_answer_is_rewritten(payload: bytes, recorded: object, live: object, expected: bytes) -> None:
    assert rewrite_json_id(payload, recorded, live) == expected


ids = st.integers() | st.text(max_size=8)
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@relaxed
@given(ids, ids, trees, st.booleans(), st.sampled_from([None, 1]))
def test_an_id_there_and_back_gives_the_same_bytes_and_nothing_else_moves(recorded, live, tree, ascii_only, indent):
    document = {"jsonrpc": "2.0", "id": recorded, "result": {"id": recorded, "x": tree}}
    payload = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    changed = rewrite_json_id(payload, recorded, live)
    try:
        payload.decode()
    except UnicodeDecodeError:
        assert changed == payload  # lone surrogates are no UTF-8: no JSON, and left alone
        return
    assert json.loads(changed) == {**document, "id": live}
    assert json.loads(rewrite_json_id(changed, live, recorded)) == document


STREAM = (
    b": hello\r\nid: 1\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata:  \"id\":1,\"result\":{\"id\":1}}\r\n\r\n"
    b"event: message\ndata:{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n"
    b"data: made " + UUID_A.encode() + b"\r\rdata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":2}\n\n"
)  # fmt: skip
RENAMES = Renames(ids={"1": '"live-1"'}, tokens={UUID_A: UUID_B})
WANTED = (
    STREAM.replace(b'"id":1,"result"', b'"id":"live-1","result"').replace(UUID_A.encode(), UUID_B.encode())
)  # fmt: skip


def test_ids_in_events_are_rewritten_also_where_the_data_stands_in_several_lines() -> None:
    answered = rewrite_answer(response(200, STREAM, headers=SSE), RENAMES)
    assert answered.body is not None
    assert answered.body.inline == WANTED


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_a_stream_fed_in_any_pieces_gives_the_same_bytes(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    rewriter = EventRewriter(RENAMES)
    out = [rewriter.feed(STREAM[a:b]) for a, b in pairwise(edges)]
    assert b"".join([*out, rewriter.close()]) == WANTED


def test_an_event_goes_on_as_soon_as_it_is_whole() -> None:
    rewriter = EventRewriter(RENAMES)
    assert rewriter.feed(b'data: {"jsonrpc":"2.0","id":1,"result":1}\n\nda') == (
        b'data: {"jsonrpc":"2.0","id":"live-1","result":1}\n\n'
    )
    assert rewriter.close() == b"da"


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_chunk_boundaries_stay_and_sizes_are_those_of_the_new_bytes(sizes: list[int]) -> None:
    chunks, left = [], len(STREAM)
    for at, size in enumerate(sizes):
        chunks.append(Chunk(size=min(size, left), at=at))
        left -= chunks[-1].size
    chunks.append(Chunk(size=left, at=99))
    plain = body(STREAM)
    assert plain is not None
    whole = Body(size=plain.size, digest=plain.digest, inline=STREAM, chunks=tuple(chunks))
    changed = rewrite_answer(response(200, whole, headers=SSE), RENAMES).body
    assert changed is not None
    assert changed.inline == WANTED
    assert sum(chunk.size for chunk in changed.chunks) == len(WANTED)
    assert [chunk.at for chunk in changed.chunks] == [chunk.at for chunk in chunks]
    assert all(chunk.size >= 0 for chunk in changed.chunks)


def test_a_value_is_replaced_as_a_whole_token_in_fields_and_text_and_nowhere_else() -> None:
    sent = f'{{"a":"{UUID_A}","b":"x{UUID_A}","url":"/i/{UUID_A}?x=1","u":"{UUID_A}-2"}}'.encode()
    made = response(201, sent, headers={"Content-Type": "application/json", "Location": f"/i/{UUID_A}",
                                        "Content-Length": str(len(sent)), "X-Request-Id": UUID_A})  # fmt: skip
    longer = UUID_B + "f0"
    changed = rewrite_answer(made, Renames(tokens={UUID_A: longer}))
    assert changed.body is not None
    assert changed.body.inline == (
        f'{{"a":"{longer}","b":"x{UUID_A}","url":"/i/{longer}?x=1","u":"{UUID_A}-2"}}'.encode()
    )
    assert dict(changed.fields)[b"Location"] == f"/i/{longer}".encode()
    assert dict(changed.fields)[b"Content-Length"] == b"%d" % changed.body.size


def test_what_holds_nothing_to_rename_comes_back_as_the_same_object() -> None:
    coded = gzip.compress(b'{"a":1}')
    made = response(200, coded, headers={"Content-Type": "application/json", "Content-Encoding": "gzip"})
    assert rewrite_answer(made, Renames(tokens={UUID_A: UUID_B})) is made
    binary = response(200, UUID_A.encode(), headers={"Content-Type": "image/png"})
    assert rewrite_answer(binary, Renames(tokens={UUID_A: UUID_B})) is binary


def test_a_coded_body_is_coded_anew_where_something_in_it_changed() -> None:
    coded = gzip.compress(f'{{"a":"{UUID_A}"}}'.encode())
    kind = {"Content-Type": "application/json", "Content-Encoding": "gzip", "Content-Length": str(len(coded))}
    made = response(200, coded, headers=kind)
    changed = rewrite_answer(made, Renames(tokens={UUID_A: UUID_B}))
    assert changed.body is not None
    assert changed.body.inline is not None
    assert gzip.decompress(changed.body.inline) == f'{{"a":"{UUID_B}"}}'.encode()
    assert dict(changed.fields)[b"Content-Length"] == b"%d" % changed.body.size


def test_the_length_of_an_answer_that_was_cut_stays_longer_than_what_came_of_it() -> None:
    sent = f"made {UUID_A}".encode()
    made = response(200, sent, headers={"Content-Type": "text/plain", "Content-Length": "1000"})
    assert dict(rewrite_answer(made, Renames(tokens={UUID_A: UUID_B + "ff"})).fields)[b"Content-Length"] == b"1002"


def test_a_small_value_is_renamed_only_under_its_own_name() -> None:
    made = response(200, b'{"turn":17,"price":17,"x":{"turn":17.0}}', headers={"Content-Type": "application/json"})
    changed = rewrite_answer(made, Renames(named={("turn", "17"): "4"}))
    assert changed.body is not None
    assert changed.body.inline == b'{"turn":4,"price":17,"x":{"turn":4}}'
