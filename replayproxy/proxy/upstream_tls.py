"""TLS on both sides: towards environments with each one's own `ca=` and `insecure`, towards agents with certificates
of the store's own authority - and which layer a connection gets at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from mitmproxy import certs, ctx, exceptions, tls
from mitmproxy.addons.tlsconfig import TlsConfig
from mitmproxy.connection import Client
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import commands, context, events, layer, layers
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.layers.http import HTTPMode

from replayproxy.core.values import Outcome
from replayproxy.proxy import problems
from replayproxy.proxy.ca import Authority
from replayproxy.proxy.listeners import EnvOptions

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]")


class Agents(Protocol):
    """What is known of an agent's connection by the listener that it came through."""

    def is_forward(self, client: Any) -> bool: ...
    def speaks_tls(self, client: Any) -> bool: ...
    def options_of(self, client: Any, address: tuple[Any, ...] | None) -> EnvOptions: ...
    def names_of(self, client: Any, sni: str | None, address: tuple[Any, ...] | None) -> Iterable[str]: ...


class _Closed(layer.Layer):
    """Closes an agent's connection that speaks TLS where none is spoken: a TLS client takes no answer in plain text."""

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.Start):
            yield commands.CloseConnection(self.context.client)


class _Refused(layer.Layer):
    """Answers an agent that speaks what is not spoken here, and closes."""

    why = "this listener speaks TLS: its URL begins with https://"

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.Start):
            yield commands.SendData(self.context.client, problems.assembled(400, Outcome.LOCAL, self.why))
            yield commands.CloseConnection(self.context.client)


class _NoHttp(_Refused):
    why = "a tunnel carries HTTP or TLS; what else goes through it cannot be recorded (--pass HOST:PORT lets it by)"


def _is_no_http(data: bytes) -> bool:
    """Whether these first bytes of a tunnel can be no HTTP request."""
    line, newline, _ = data.partition(b"\n")
    return not _TOKEN.match(data) or (bool(newline) and b" HTTP/" not in line)


class UpstreamTls(TlsConfig):
    """mitmproxy's TlsConfig over our own authority (None: no listener speaks TLS), so that nothing is written to the
    user's home. `passes_tunnel`: whether what comes through a client's CONNECT is passed on as it is."""

    def __init__(
        self,
        agents: Agents,
        on_unreadable: Callable[[Client], None],
        passes_tunnel: Callable[[Client], bool] = lambda client: False,
        authority: Authority | None = None,
    ) -> None:
        self._agents, self._on_unreadable, self._passes_tunnel = agents, on_unreadable, passes_tunnel
        self.authority = authority
        if authority is not None:
            self.certstore = authority.store

    def running(self) -> None:
        pass

    def configure(self, updated: Any) -> None:
        pass

    def request(self, flow: Any) -> None:
        pass  # mitmproxy would answer requests for its revocation list itself

    def next_layer(self, nextlayer: layer.NextLayer) -> None:
        data, client = nextlayer.data_client(), nextlayer.context.client  # type: ignore[no-untyped-call]
        if data[:1] == b"\x16" and len(data) < 3:
            raise exceptions.AddonHalt  # too little to tell; nobody decides yet
        is_tls = starts_like_tls_record(data)
        outermost = len(nextlayer.context.layers) == 1
        if not self._agents.is_forward(client):
            if outermost and is_tls and not self._agents.speaks_tls(client):
                self._on_unreadable(client)
                nextlayer.layer = _Closed(nextlayer.context)
            elif outermost and not is_tls and self._agents.speaks_tls(client):
                self._on_unreadable(client)
                nextlayer.layer = _Refused(nextlayer.context)
        elif not outermost:
            self._in_tunnel(nextlayer, is_tls=is_tls)

    def _in_tunnel(self, nextlayer: layer.NextLayer, *, is_tls: bool) -> None:
        """mitmproxy guesses raw TCP or DNS by what it sees; here a tunnel holds TLS or HTTP, or is passed on."""
        inner = nextlayer.context.layers
        if not any(isinstance(one, modes.HttpProxy) for one in inner) or not any(
            isinstance(one, layers.HttpLayer) for one in inner
        ):
            return  # TLS to the proxy itself: the CONNECT is still to come
        client, data = nextlayer.context.client, nextlayer.data_client()  # type: ignore[no-untyped-call]
        if self._passes_tunnel(client):
            nextlayer.layer = layers.TCPLayer(nextlayer.context, ignore=True)
        elif is_tls:
            return
        elif client.alpn or (data and not _is_no_http(data)):
            # By its ALPN it is known before its first byte: an environment may have sent its HTTP/2 settings already.
            nextlayer.layer = layers.HttpLayer(nextlayer.context, HTTPMode.transparent)
        elif not data:
            raise exceptions.AddonHalt
        else:
            self._on_unreadable(client)
            nextlayer.layer = _NoHttp(nextlayer.context)

    def get_cert(self, conn_context: context.Context) -> certs.CertStoreEntry:
        assert self.authority is not None
        client, server = conn_context.client, conn_context.server
        return self.authority.certificate_for(self._agents.names_of(client, client.sni, server.address))

    def tls_start_server(self, tls_start: tls.TlsData) -> None:
        wanted = self._agents.options_of(tls_start.context.client, tls_start.conn.address)  # type: ignore[attr-defined]
        # TlsConfig reads these two from the options. Nothing is awaited between here and there.
        ctx.options.update(  # type: ignore[no-untyped-call]
            ssl_insecure=wanted.insecure,
            ssl_verify_upstream_trusted_ca=str(wanted.ca) if wanted.ca else None,
        )
        super().tls_start_server(tls_start)
