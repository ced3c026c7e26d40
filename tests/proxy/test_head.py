"""Identity marks are read and taken off; all else in a head stays as it came."""

from __future__ import annotations

import pytest

from replayproxy.proxy.head import take_marks, with_host, without_alt_svc, without_expect, without_h2c


@pytest.mark.parametrize(
    ("target", "prefix", "name", "rest"),
    [
        (b"/rp/e1/a%2Fb/../c//d?x=%27", b"/rp/e1", "e1", b"/a%2Fb/../c//d?x=%27"),
        (b"/rp/e1", b"/rp/e1", "e1", b"/"),
        (b"/rp/e1/", b"/rp/e1", "e1", b"/"),
        (b"/rp/e1?x=/y", b"/rp/e1", "e1", b"/?x=/y"),
        (b"/rp/caf%C3%A9%20x/a", b"/rp/caf%C3%A9%20x", "café x", b"/a"),
        (b"/rp/%ff/a", b"/rp/%ff", "\udcff", b"/a"),
        (b"/rp//a", b"/rp/", "", b"/a"),
        (b"/rp/e1/rp/e1/a", b"/rp/e1", "e1", b"/a"),
        (b"/rp/e1/rp/e1?x", b"/rp/e1", "e1", b"/?x"),
        (b"/rp/e1/rp/e11/a", b"/rp/e1", "e1", b"/rp/e11/a"),
        (b"/rp/e1/rp/e2/a", b"/rp/e1", "e1", b"/rp/e2/a"),
        (b"/rp", b"", None, b"/rp"),
        (b"/rpx/e1/a", b"", None, b"/rpx/e1/a"),
        (b"/a/rp/e1", b"", None, b"/a/rp/e1"),
        (b"*", b"", None, b"*"),
    ],
)
def test_the_prefix_is_taken_off_and_the_rest_of_the_target_is_untouched(
    target: bytes, prefix: bytes, name: str | None, rest: bytes
) -> None:
    marks = take_marks(target, ())
    assert (marks.prefix, marks.claims.prefix, marks.target) == (prefix, name, rest)


def test_on_a_listener_of_one_episode_a_path_that_looks_like_a_prefix_is_the_environments() -> None:
    marks = take_marks(b"/rp/e1/a", (), port_episode="mine")
    assert (marks.claims.port_episode, marks.claims.prefix, marks.target) == ("mine", None, b"/rp/e1/a")


def test_marks_in_headers_are_percent_decoded_and_removed() -> None:
    marks = take_marks(
        b"/",
        (
            (b"Host", b"h"),
            (b"X-REPLAY-EPISODE", b"e%201"),
            (b"x-replay-episode", b"second"),
            (b"X-Replay-Lane", b"left%2F1"),
            (b"Accept", b"*/*"),
        ),
    )
    assert marks.fields == ((b"Host", b"h"), (b"Accept", b"*/*"))
    assert (marks.claims.header, marks.claims.lane) == ("e 1", "left/1")


@pytest.mark.parametrize(
    ("value", "name", "left"),
    [
        (b"replay.episode=e1", "e1", ()),
        (b"a=1, replay.episode=e%201;p=2, b=3;q", "e 1", (b"a=1, b=3;q",)),
        (b"replay.episode=e1 , b=3", "e1", (b"b=3",)),
        (b"a=1,  b=replay.episode", None, (b"a=1,  b=replay.episode",)),
        (b"xreplay.episode=e1", None, (b"xreplay.episode=e1",)),
        (b"", None, ()),
    ],
)
def test_only_our_member_of_baggage_is_removed(value: bytes, name: str | None, left: tuple[bytes, ...]) -> None:
    marks = take_marks(b"/", ((b"Baggage", value), (b"X", b"1")))
    assert marks.claims.baggage == name
    expected = tuple((b"Baggage", part) for part in left) if value else ((b"Baggage", b""),)
    assert marks.fields == (*expected, (b"X", b"1"))


def test_host_is_written_in_place_and_the_agents_is_told() -> None:
    fields = ((b"A", b"1"), (b"hOST", b"proxy:1"), (b"B", b"2"))
    assert with_host(fields, b"env:2") == (((b"A", b"1"), (b"hOST", b"env:2"), (b"B", b"2")), b"proxy:1")
    assert with_host(fields, None) == (fields, b"proxy:1")
    assert with_host(((b"A", b"1"),), b"env:2") == (((b"A", b"1"),), None)


def test_an_offer_of_h2c_is_taken_off_with_what_belongs_to_it() -> None:
    offer = (
        (b"Connection", b"Upgrade, HTTP2-Settings, keep-alive"),
        (b"Upgrade", b"h2c"),
        (b"HTTP2-Settings", b"AAMA"),
        (b"X", b"1"),
    )
    assert without_h2c(offer) == (((b"Connection", b"keep-alive"), (b"X", b"1")), True)
    both = ((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket, h2c"))
    assert without_h2c(both) == (((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")), True)
    plain = ((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"))
    assert without_h2c(plain) == (plain, False)


def test_only_100_continue_is_taken_off_expect_and_all_of_alt_svc() -> None:
    assert without_expect(((b"Expect", b"100-Continue"), (b"expect", b"other"))) == ((b"expect", b"other"),)
    assert without_alt_svc(((b"ALT-SVC", b'h3=":1"'), (b"A", b"1"))) == ((b"A", b"1"),)
