"""How long an environment may take: to be connected to, to begin its answer, and between two pieces of it.

A limit that is exceeded is the environment's doing and the proxy's decision: the exchange ends TIMED_OUT, and its error
names the limit and the option that sets it.
"""

from __future__ import annotations

from dataclasses import dataclass

CONNECT_SECONDS = 30.0
"""The one limit that is there unless it is taken away: the system itself would go on trying for two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds; None: as long as the agent waits. `connect`: the look-up of a name, the connection, and its TLS."""

    connect: float | None = None
    answer: float | None = None
    idle: float | None = None


def too_slow_to_connect(limit: float) -> str:
    return f"no connection to the environment within {limit:g} s (--upstream-connect)"


def too_slow_to_begin(limit: float) -> str:
    return f"the environment did not begin to answer within {limit:g} s (--upstream-timeout)"


def silent(limit: float) -> str:
    return f"the environment sent nothing more of its answer for {limit:g} s (--upstream-idle)"
