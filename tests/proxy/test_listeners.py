"""Sockets of our own."""

from __future__ import annotations

import socket

import pytest

from replayproxy.errors import WorldTrouble
from replayproxy.proxy.listeners import bind, bound_address, listener_for
from replayproxy.proxy.routes import parse_upstream


def test_port_0_gives_each_listener_a_port_of_its_own() -> None:
    socks = [bind("127.0.0.1", 0) for _ in range(20)]
    assert len({bound_address(sock) for sock in socks}) == 20
    for sock in socks:
        assert sock.proto == socket.IPPROTO_TCP
        sock.close()


def test_a_taken_port_is_named() -> None:
    with bind("127.0.0.1", 0) as sock:
        sock.listen()
        with pytest.raises(WorldTrouble, match="port taken") as caught:
            bind("127.0.0.1", bound_address(sock)[1])
        with pytest.raises(WorldTrouble, match="choose another port for --control, or none for a free one"):
            bind("127.0.0.1", bound_address(sock)[1], option="--control")
    assert "another port" in str(caught.value)


def test_a_host_that_is_no_address_is_the_worlds_trouble() -> None:
    with pytest.raises(WorldTrouble, match=r"cannot listen on no-such-host\.invalid:1"):
        bind("no-such-host.invalid", 1)


def test_urls_never_end_in_a_slash() -> None:
    target = parse_upstream("http://a/v1/")
    listener = listener_for(
        "e", "http://a/v1/", target, ("127.0.0.1", 9), port_episode=None, advertise=None, options=None
    )
    assert (listener.origin, listener.url) == ("http://127.0.0.1:9", "http://127.0.0.1:9/v1")
    assert listener.episode_url("x") == "http://127.0.0.1:9/rp/x/v1"
    dynamic = listener_for("e", "dynamic", None, ("::1", 9), port_episode=None, advertise=None, options=None)
    assert dynamic.url == "http://[::1]:9"
