"""Values on their way from one episode to another."""

from __future__ import annotations

from dataclasses import dataclass

from replayproxy.core.values import Exchange


def shown_at(exchange: Exchange) -> int:
    """Not after the agent had the answer, or what came of it: an agent may leave once it has read enough."""
    t = exchange.times
    return next(at for at in (t.up_end, t.c_out, t.first, t.fwd, t.head) if at is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Where a value came from. `own_id`: it is the id that an answer gives to what was made. `seq` 0: a canary that
    no recorded exchange sent."""

    episode: str
    seq: int
    fwd: int
    own_id: bool
    sent: bool  # the agent's value, not the environment's


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A value that `made` brought into the world, in an answer to another episode. `form`: how it was changed.
    `pointer` None: it was seen before it was known whose it is; look for the value there."""

    value: str
    made: Made
    episode: str
    seq: int
    lane: str
    pointer: str | None
    up_end: int
    canary: bool = False
    perhaps_own: bool = False  # the reader had sent a write whose answer it never had: it may have been given it then
    form: str = ""
