"""Puts our subclasses of mitmproxy's layers where mitmproxy looks its classes up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mitmproxy.net.http import validate
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers import websocket as websocket_layers
from mitmproxy.proxy.layers.http import _http1

from replayproxy.core.values import Outcome
from replayproxy.proxy import problems
from replayproxy.proxy.bodyreader import make_body_reader, parse_content_length
from replayproxy.proxy.http2 import AgentHttp2, EnvironmentHttp2
from replayproxy.proxy.layers import AgentHttp1, AgentWebSocket, EnvironmentHttp1
from replayproxy.proxy.stream import RecordedStream, reach_stream
from replayproxy.proxy.unquoted import unquoted


def _make_error_response(status_code: int, message: str = "") -> bytes:
    return problems.assembled(status_code, Outcome.LOCAL, unquoted(message))


def install() -> None:
    """Puts the subclasses where mitmproxy looks its classes up. Idempotent; affects the whole process."""
    places: Iterator[tuple[Any, str, Any]] = iter(
        (
            (http_layers, "Http1Server", AgentHttp1),
            (http_layers, "Http1Client", EnvironmentHttp1),
            (http_layers, "Http2Server", AgentHttp2),
            (http_layers, "Http2Client", EnvironmentHttp2),
            (http_layers, "HttpStream", RecordedStream),
            (http_layers.HttpLayer, "_handle_event", reach_stream),
            (websocket_layers, "WebsocketConnection", AgentWebSocket),
            (_http1, "make_body_reader", make_body_reader),
            (validate, "parse_content_length", parse_content_length),
            (_http1, "make_error_response", _make_error_response),
        )
    )
    for module, name, ours in places:
        setattr(module, name, ours)
