"""Which requests are the reset of an environment, by `--reset`: they belong to no episode."""

from __future__ import annotations

from collections.abc import Sequence

from replayproxy.core.canonical import Kind, body_of, view
from replayproxy.core.values import Exchange
from replayproxy.session.wiring import Reset


class Resets:
    """A reset given without a body is any request with its method and target; with one, the bodies must be equal,
    and JSON is equal by value."""

    def __init__(self, resets: Sequence[Reset]) -> None:
        self._resets = {(one.env, one.method.encode(), one.target): one for one in resets}

    def by_head(self, env: str, method: bytes, target: bytes) -> bool:
        """Whether the request's head alone says that it is a reset."""
        reset = self._resets.get((env, method, target))
        return reset is not None and not reset.body

    def equal(self, exchange: Exchange) -> bool:
        request = exchange.request
        reset = self._resets.get((exchange.env, request.method, request.target))
        if reset is None:
            return False
        if not reset.body:
            return True
        if request.body is None:
            return False
        wanted = body_of(reset.body.encode())
        if request.body.digest == wanted.digest:
            return True
        sent, wired = view(request.fields, request.body), view(request.fields, wanted)
        return sent.kind is Kind.JSON and sent.key == wired.key
