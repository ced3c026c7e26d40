"""The stand-in over HTTP/2: a recorder speaks it to an agent only where the environment speaks it too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from h2.exceptions import ProtocolError

_BODY = b"// canary\n"


class Http2(asyncio.Protocol):
    """One connection. Each request is answered at its head; `arrived` is called with its path."""

    def __init__(self, arrived: Callable[[str], None]) -> None:
        self._arrived = arrived
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._http.initiate_connection()
        transport.write(self._http.data_to_send())

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            events = self._http.receive_data(data)
        except ProtocolError:
            self._transport.close()  # a client that speaks HTTP/1 is none of ours
            return
        for event in events:
            if isinstance(event, RequestReceived):
                self._answer(event)
        self._transport.write(self._http.data_to_send())

    def _answer(self, event: RequestReceived) -> None:
        fields = {str(name): str(value) for name, value in event.headers}
        self._arrived(fields.get(":path", ""))
        length = str(len(_BODY))
        self._http.send_headers(event.stream_id, [(":status", "200"), ("content-length", length)])
        self._http.send_data(event.stream_id, _BODY, end_stream=True)
