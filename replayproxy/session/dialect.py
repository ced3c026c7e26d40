"""What the recording proxy does between agent and environment, for a replay: by its own code, without mitmproxy."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from replayproxy.core.identity import Claims
from replayproxy.core.links import to_agent
from replayproxy.core.values import Exchange, Fields, Outcome, Run
from replayproxy.proxy.head import take_marks, without_alt_svc
from replayproxy.proxy.problems import assembled
from replayproxy.proxy.routes import Route, parse_upstream
from replayproxy.serve.doors import Door, Entrance
from replayproxy.session.wiring import DYNAMIC

_REWRITTEN = frozenset({b"location", b"content-location", b"link", b"set-cookie", b"alt-svc"})
_LENGTHS = frozenset(map(len, _REWRITTEN))


def _may_differ(name: bytes, value: bytes) -> bool:
    """Whether an agent may have to see this field otherwise than the environment sent it. Nearly all need no look."""
    return value[:4].lower() == b"http" or (len(name) in _LENGTHS and name.lower() in _REWRITTEN)


class Marked(NamedTuple):
    """The identity marks of a request, and its target without them."""

    claims: Claims
    target: bytes
    prefix: bytes


@lru_cache(maxsize=4096)
def _claims_of(target: bytes, port_episode: str | None) -> Claims:
    """What a request claims that carries no mark but its listener or its prefix. Nearly every request of an episode
    claims the same."""
    return take_marks(target, (), port_episode=port_episode).claims


class RecordedDialect:
    """The `Dialect` of a run: as its recorder treated the traffic."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def take_marks(self, target: bytes, fields: Fields, entrance: Entrance) -> Marked:
        """`fields` may be left out where none of them is a mark."""
        port_episode = entrance.door.port_episode
        if fields or entrance.door.is_forward or entrance.proxy_user is not None:
            prefixed = not entrance.door.is_forward
            marks = take_marks(target, fields, port_episode=port_episode, prefixed=prefixed)
            return Marked(replace(marks.claims, proxy_user=entrance.proxy_user), marks.target, marks.prefix)
        if port_episode is None and target.startswith(b"/rp/"):
            slash, query = target.find(b"/", 4), target.find(b"?", 4)
            end = query if slash == -1 or -1 < query < slash else slash
            lead, rest = (target, b"") if end == -1 else (target[:end], target[end:])
            return Marked(_claims_of(lead, None), rest if rest.startswith(b"/") else b"/" + rest, lead)
        return Marked(_claims_of(b"/", port_episode), target, b"")

    def agent_fields(self, door: Door, exchange: Exchange, agent_host: bytes | None, prefix: bytes) -> Fields:
        if exchange.response is None:
            return ()
        fields = exchange.response.fields
        if self.is_plain(fields):
            return fields
        if door.is_forward:
            return without_alt_svc(fields)
        base = Route(env=door.env, listener=door.url, fixed=None, origin=door.origin, port=door.port)
        return to_agent(
            without_alt_svc(fields),
            origins=self._origins(exchange),
            base_url=base.agent_base(agent_host, tls=door.origin.startswith("https://")),
            prefix=prefix.decode("latin-1"),
        )

    def is_plain(self, fields: Fields) -> bool:
        """Whether every agent sees these fields as the environment sent them."""
        return not any(_may_differ(name, value) for name, value in fields)

    def _origins(self, exchange: Exchange) -> tuple[str, ...]:
        """The environment's own, as they were when this was recorded."""
        wiring = self._run.envs.get(exchange.env)
        upstream = exchange.upstream or (wiring.upstream if wiring and wiring.upstream != DYNAMIC else "")
        own: tuple[str, ...] = (parse_upstream(upstream).origin,) if upstream else ()
        recorded_host = exchange.request.agent_host
        if wiring and wiring.options.get("host") == "keep" and recorded_host:
            own += tuple(f"{scheme}://{recorded_host.decode('latin-1')}" for scheme in ("http", "https"))
        return own

    def own_answer(self, status: int, outcome: Outcome, detail: str) -> bytes:
        return assembled(status, outcome, detail)
