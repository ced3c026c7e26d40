"""TLS towards environments: each listener's own `ca=` and `insecure`, through mitmproxy's one set of options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mitmproxy import ctx, tls
from mitmproxy.addons.tlsconfig import TlsConfig
from mitmproxy.connection import Client
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import commands, events, layer

from replayproxy.proxy.listeners import EnvOptions


class _Closed(layer.Layer):
    """Closes an agent's connection that speaks TLS where none is spoken: a TLS client takes no answer in plain text."""

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.Start):
            yield commands.CloseConnection(self.context.client)


class UpstreamTls(TlsConfig):
    """mitmproxy's TlsConfig without its own certificate authority: nothing here speaks TLS to agents yet, so no CA is
    made and nothing is written to the user's home."""

    def __init__(self, options_of: Callable[[Any], EnvOptions], on_agent_tls: Callable[[Client], None]) -> None:
        self._options_of, self._on_agent_tls = options_of, on_agent_tls

    def running(self) -> None:
        pass

    def configure(self, updated: Any) -> None:
        pass

    def request(self, flow: Any) -> None:
        pass  # mitmproxy would answer requests for its revocation list itself

    def next_layer(self, nextlayer: layer.NextLayer) -> None:
        if starts_like_tls_record(nextlayer.data_client()):  # type: ignore[no-untyped-call]
            self._on_agent_tls(nextlayer.context.client)
            nextlayer.layer = _Closed(nextlayer.context)

    def tls_start_server(self, tls_start: tls.TlsData) -> None:
        wanted = self._options_of(tls_start.context.client)
        # TlsConfig reads these two from the options. Nothing is awaited between here and there.
        ctx.options.update(  # type: ignore[no-untyped-call]
            ssl_insecure=wanted.insecure,
            ssl_verify_upstream_trusted_ca=str(wanted.ca) if wanted.ca else None,
        )
        super().tls_start_server(tls_start)
