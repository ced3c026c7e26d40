"""A small environment for comparisons: one script, rendered with the ids and the clock of a run."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from replayproxy.core import jsonvalue
from replayproxy.core.compare import Comparison
from replayproxy.core.values import Exchange, Trace
from replayproxy.testing import MS, WALL0, exchange, trace

relaxed = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
"""For properties over whole trees: how fast a loaded machine is must decide nothing."""

scalars = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=6)
    | st.decimals(min_value=-1000, max_value=1000, places=3) | st.just(Decimal("1E+30"))
)  # fmt: skip
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class World:
    """`seed` makes the ids, `start_ms` is when the run began, `pace_ms` how far its steps lie apart."""

    seed: int
    start_ms: int = 0
    pace_ms: int = 100
    authority: str = "app.test"
    ids: dict[str, str] = field(default_factory=dict)
    done: list[Exchange] = field(default_factory=list)

    @property
    def now_ms(self) -> int:
        return self.start_ms + len(self.done) * self.pace_ms

    def id(self, name: str) -> str:
        chance = random.Random(f"{self.seed} {name}")
        return self.ids.setdefault(name, str(uuid.UUID(int=chance.getrandbits(128), version=4)))

    def iso(self, at_ms: int | None = None) -> str:
        ms = self.now_ms if at_ms is None else at_ms
        moment = EPOCH + timedelta(milliseconds=WALL0 / MS + ms)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def step(self, method: str, target: str, **more: Any) -> None:
        headers = more.pop("headers", None) or {"Content-Type": "application/json"}
        self.done.append(exchange(method, target, at_ms=self.now_ms, took_ms=5, headers=headers, **more))

    def trace(self, **more: Any) -> Trace:
        return trace(self.done, run=more.pop("run", f"r{self.seed}"), **more)


type Script = Callable[[World], None]


def played(script: Script, seed: int, **more: Any) -> Trace:
    world = World(seed, **more)
    script(world)
    return world.trace()


def deals(world: World, *, amount: Any = 100, title: str = "Acme") -> None:
    """A deal is made, read, listed, noted."""
    made = world.iso()
    deal = {"id": world.id("deal"), "title": title, "amount": amount, "created_at": made}
    location = f"http://{world.authority}/deals/{world.id('deal')}"
    world.step("POST", "/deals", status=201, sent={"title": title}, body=deal,
               headers={"Content-Type": "application/json", "Location": location, "ETag": f'"{world.id("v1")}"',
                        "Date": "now", "X-Request-Id": world.id(f"request {len(world.done)}")})  # fmt: skip
    world.step("GET", f"/deals/{world.id('deal')}", body=deal,
               headers={"Content-Type": "application/json", "ETag": f'"{world.id("v1")}"'})  # fmt: skip
    world.step("GET", "/deals?open=1", body={"items": [deal], "total": 1})
    world.step("POST", f"/deals/{world.id('deal')}/notes", status=201, sent={"text": "Called"},
               body={"id": world.id("note"), "text": "Called", "at": world.iso()})  # fmt: skip


JSON = {"Content-Type": "application/json"}


def plain(value: Any) -> Any:
    """A value of exact JSON as Python's own parser gives it."""
    return json.loads(jsonvalue.canonical(value))


def answers(*bodies: Any, **more: Any) -> Trace:
    """An episode of one GET for each body."""
    return trace([exchange("GET", f"/x/{index}", body=json.dumps(plain(body)), headers=JSON, **more)
                  for index, body in enumerate(bodies)])  # fmt: skip


def pointers(comparison: Comparison) -> list[str]:
    return [root.pointer for root in comparison.roots]
