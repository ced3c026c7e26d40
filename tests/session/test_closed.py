"""The guard of a closed replay, against what the interpreter itself does."""

from __future__ import annotations

import socket

import pytest

from replayproxy.session.closed import Guard, ReplayIsClosed


def test_an_answer_in_several_buffers_is_no_contact_and_a_datagram_is_one() -> None:
    """asyncio writes to a reader that is slow with `sendmsg`; that once cut its answer and counted as a contact."""
    left, right = socket.socketpair()
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    guard = Guard()
    try:
        with guard.closed():
            assert left.sendmsg([b"a", b"b"]) == 2
            assert guard.contacts == 0
            with pytest.raises(ReplayIsClosed):
                sender.sendmsg([b"x"], [], 0, ("127.0.0.1", 9))
            assert guard.contacts == 1
        assert right.recv(2) == b"ab"
    finally:
        for one in (left, right, sender):
            one.close()
