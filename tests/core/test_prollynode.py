"""The bytes of tree nodes: what they are, what is refused, and where large values are cut."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.canonical import digest
from replayproxy.core.prollynode import (
    LARGE,
    PIECE_LEAST,
    PIECE_MOST,
    Node,
    Nodes,
    UnknownNode,
    children,
    decode,
    decode_value,
    encode,
    encode_value,
    ends_node,
    in_pieces,
)

names = st.binary(max_size=8)
keys = st.tuples(names) | st.tuples(names, names)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5), st.lists(st.tuples(keys, st.binary(max_size=60)), max_size=9))
def test_a_node_comes_back_from_its_bytes(level: int, items: list[tuple[tuple[bytes], bytes]]) -> None:
    assert decode(encode(Node(level, items))) == Node(level, items)


def test_every_cut_of_a_node_is_refused() -> None:
    whole = encode(Node(0, [((b"t",), b""), ((b"t", b"k"), b"j1")]))
    ends = {2, 15}  # after the head, and after a whole entry: only the address tells that more belongs to it
    for size in range(len(whole)):
        if size not in ends:
            with pytest.raises(UnknownNode):
                decode(whole[:size])


@pytest.mark.parametrize("data", [b"\x02\x00", b"\x01", b"\x01\xffabc"])
def test_another_format_is_refused(data: bytes) -> None:
    with pytest.raises(UnknownNode):
        decode(data)


def test_an_address_is_the_digest_of_the_node() -> None:
    nodes: Nodes = {}
    encode_value(random.Random(1).randbytes(200_000), nodes)
    assert all(digest(node) == address for address, node in nodes.items())
    assert len(nodes) >= 4


@pytest.mark.parametrize("size", [LARGE - 1, LARGE, LARGE + 1, PIECE_MOST, PIECE_MOST + 1, 3 * PIECE_MOST])
def test_values_of_every_size_come_back(size: int) -> None:
    nodes: Nodes = {}
    content = random.Random(size).randbytes(size)
    value = encode_value(content, nodes)
    assert len(value) <= LARGE
    assert decode_value(value, nodes.__getitem__) == content
    leaf = encode(Node(0, [((b"t", b"k"), value)]))
    assert set(children(leaf)) == set(nodes)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([b"\n", b"},", b" "]))
def test_pieces_add_up_and_keep_their_sizes(seed: int, mark: bytes) -> None:
    rng = random.Random(seed)
    data = b"".join(rng.randbytes(rng.randrange(200)) + mark for _ in range(1500))
    pieces = list(in_pieces(data))
    assert b"".join(pieces) == data
    assert all(PIECE_LEAST <= len(piece) <= PIECE_MOST for piece in pieces[:-1])


def test_a_node_ends_by_its_key_and_not_by_a_value_of_the_same_size() -> None:
    found = {ends_node(0, (b"t", b"%d" % n), bytes(100)) for n in range(500)}
    assert found == {True, False}
    for n in range(500):
        key = (b"t", b"%d" % n)
        assert ends_node(0, key, bytes(100)) == ends_node(0, key, b"x" * 90)
    assert ends_node(0, (b"t", b"1"), bytes(5000))
    assert not all(ends_node(1, (b"t", bytes(5000) + b"%d" % n), bytes(40)) for n in range(50))
