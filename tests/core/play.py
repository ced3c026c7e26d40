"""A dialogue with the replayer, for tests of what gets which answer."""

from __future__ import annotations

from datetime import date
from typing import Any

from replayproxy.core.misses import Document, miss_document
from replayproxy.core.nearest import Near, Situation, nearest
from replayproxy.core.receipt import episode_receipt
from replayproxy.core.relax import Relaxation
from replayproxy.core.replayer import Miss, Order, Replayer, Serve
from replayproxy.core.rules import parse_rules
from replayproxy.core.scriptbuild import build
from replayproxy.core.values import Exchange
from replayproxy.testing import request, trace

TODAY = date(2026, 11, 29)


class Play:
    """`ask` gives the number of the exchange served, or None for a miss."""

    def __init__(self, *exchanges: Exchange, order: Order = Order.LANE, rules: Any = (), **more: Any) -> None:
        relaxation = Relaxation(parse_rules(rules), TODAY)
        self.replayer = Replayer(
            build(trace(exchanges).exchanges, run="r", episode="e", rules=relaxation, **more), order
        )

    def claim(self, method: str, target: str, sent: object = b"", *, lane: str = "main", env: str = "app", **more: Any):
        asked = self.replayer.script.identify(env, request(method, target, sent, **more))
        return self.replayer.ask(asked, lane)

    def served(self, method: str, target: str, sent: object = b"", **more: Any) -> Serve:
        found = self.claim(method, target, sent, **more)
        assert isinstance(found, Serve), found
        self.replayer.done(found)
        return found

    def ask(self, method: str, target: str, sent: object = b"", **more: Any) -> int | None:
        found = self.claim(method, target, sent, **more)
        if isinstance(found, Miss):
            return None
        self.replayer.done(found)
        return found.entry.seq

    def missed(self, *args: Any, **more: Any) -> Document:
        """The document of the miss that this request is."""
        miss = self.claim(*args, **more)
        assert isinstance(miss, Miss), miss
        return miss_document(self.replayer.script, miss, self.near(miss))

    def near(self, miss: Miss) -> tuple[Near, ...]:
        now = Situation(
            asked=miss.asked, lane=miss.lane, consumers=dict(self.replayer.consumers), expected=miss.expected
        )
        return nearest(self.replayer.script, now, lambda body: body)

    def receipt(self) -> Document:
        return episode_receipt(self.replayer)

    @property
    def bound(self) -> list[tuple[Any, Any, str, str]]:
        """(recorded, live, place, kind) of what the receipt lists."""
        return [(one["recorded"], one["live"], one["place"], one["kind"]) for one in self.receipt()["bindings"]]
