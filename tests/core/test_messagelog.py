"""Messages as one run of bytes, and back, wherever it is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.messagelog import Damaged, Packer, unpacked
from replayproxy.core.values import Message

MESSAGES = st.lists(
    st.builds(
        Message, from_agent=st.booleans(), text=st.booleans(), payload=st.binary(max_size=300),
        at=st.integers(min_value=0, max_value=2**63),
    ),
    max_size=20,
)  # fmt: skip


def log_of(messages: list[Message]) -> bytes:
    packer = Packer()
    return b"".join(part for message in messages for part in packer.packed(message))


@given(MESSAGES, st.integers(min_value=1, max_value=50))
def test_what_was_packed_comes_back_wherever_the_pieces_end(messages: list[Message], size: int) -> None:
    messages.sort(key=lambda message: message.at)
    raw = log_of(messages)
    assert list(unpacked(raw[at : at + size] for at in range(0, len(raw), size))) == messages


def test_a_clock_that_goes_back_is_held() -> None:
    later = Message(from_agent=True, text=True, payload=b"a", at=9)
    assert [message.at for message in unpacked([log_of([later, replace(later, at=3)])])] == [9, 9]


def test_what_was_said_has_one_digest_at_any_time() -> None:
    one = Message(from_agent=True, text=True, payload=b"a", at=1)
    digests = set()
    for said in ([one], [replace(one, at=5)], [replace(one, text=False)], [one, one]):
        packer = Packer()
        for message in said:
            packer.packed(message)
        digests.add(packer.said)
    assert len(digests) == 3


@pytest.mark.parametrize("raw", [b"\x07\x00\x00", b"\x01\x05\x00ab", b"\x01", b"\x01" + b"\xff" * 12])
def test_damage_is_told(raw: bytes) -> None:
    with pytest.raises(Damaged):
        list(unpacked([raw]))
