"""The subclasses are where mitmproxy looks, and the readers keep what mitmproxy would refuse."""

from __future__ import annotations

from typing import Any

from h11._receivebuffer import ReceiveBuffer
from mitmproxy.proxy.layers import http
from mitmproxy.proxy.layers import websocket as websocket_layers
from mitmproxy.proxy.layers.http import _http1

from replayproxy.core.values import Outcome
from replayproxy.proxy import layers
from replayproxy.proxy.install import install
from replayproxy.proxy.stream import RecordedStream

http_layers: Any = http


def test_installing_twice_is_installing_once() -> None:
    install()
    install()
    assert http_layers.Http1Server is layers.AgentHttp1
    assert http_layers.Http1Client is layers.EnvironmentHttp1
    assert http_layers.HttpStream is RecordedStream
    assert websocket_layers.WebsocketConnection is layers.AgentWebSocket
    assert _http1.make_error_response(400, "no").startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_chunked_body_keeps_its_trailers_wherever_it_is_cut() -> None:
    install()
    raw = b"3\r\nabc\r\n0\r\nX-Sum: 9\r\nx-SUM: \xe9\r\n\r\n"
    for cut in range(1, len(raw)):
        reader = _http1.make_body_reader(None)
        buffer = ReceiveBuffer()
        data, ended = b"", False
        for piece in (raw[:cut], raw[cut:]):
            buffer += piece
            while (event := reader(buffer)) is not None:
                data += bytes(getattr(event, "data", b""))
                if type(event).__name__ == "EndOfMessage":
                    ended = True
                    break
        assert (data, ended) == (b"abc", True)
        assert reader.trailers == ((b"X-Sum", b"9"), (b"x-SUM", b"\xe9"))  # type: ignore[union-attr]


def test_a_fault_of_the_environment_says_how_the_exchange_ended() -> None:
    fault = layers.EnvironmentFault(1, "closed", Outcome.CUT)
    assert (fault.stream_id, fault.message, fault.outcome) == (1, "closed", Outcome.CUT)
