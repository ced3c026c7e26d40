"""Faults that a recording puts in by itself, for users to see what their agents make of them (`record --chaos`).

Rules of this file: what is injected is a pure function of the seed, the episode's name, the lane and the request's
place in it, so a second run has the same faults at the same places. An injected fault is the proxy's doing and is
marked as such in its exchange; nothing that is judged may take it for the environment's.

    RULE  = FAULT [SHARE%] [METHOD] [PATH]
    FAULT = latency TIME | reset | truncate BYTES | status 5xx

| fault | the environment | the agent | recorded as |
|---|---|---|---|
| `latency` | gets the request that much later | waits | as it ended, with a note |
| `reset` | never hears of it | its connection ends before any answer | `local`, with a note |
| `status` | never hears of it | that status, in a problem document of ours | `local`, with a note and the answer |
| `truncate` | answers | gets so many bytes of the body, then its connection ends | the whole answer, with a note |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

from replayproxy.core.patterns import endpoint
from replayproxy.core.values import INJECTED, Outcome, Trace
from replayproxy.errors import WrongUsage

LATENCY, RESET, TRUNCATE, STATUS = "latency", "reset", "truncate", "status"

_RULE = re.compile(
    r"(?:(latency) +(\d+(?:\.\d+)?)(ms|s)|(reset)|(truncate) +(\d+)|(status) +(5\d\d))"
    r"(?: +(\d+(?:\.\d+)?)%)?(?: +(\S.*))?"
)
_MOST = 1e12
_HINT = '"latency 250ms 10% GET /deals/*", "reset 5%", "truncate 120 POST /export", "status 503 20%"'


class Fault(NamedTuple):
    """What is done to one request. `value`: seconds of latency, bytes that are left, a status. `rule`: its text."""

    kind: str
    value: float
    rule: str

    @property
    def note(self) -> str:
        """How the exchange says it."""
        amount = {LATENCY: f" {self.value:g}s", RESET: ""}.get(self.kind, f" {self.value:.0f}")
        return f"{INJECTED}{self.kind}{amount} (--chaos {self.rule!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRule:
    """`share`: of the requests that it is about, from 0 to 1."""

    fault: Fault
    share: float
    at: re.Pattern[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chaos:
    """The first rule that is about a request, and whose dice fall, does its fault; no request has two."""

    rules: tuple[ChaosRule, ...]
    seed: int = 0

    def fault(self, *, episode: str, lane: str, place: int, method: bytes, target: bytes) -> Fault | None:
        """`place` counts the requests of the lane from 1."""
        line = f"{method.decode('latin-1')} {target.partition(b'?')[0].decode('latin-1')}"
        for number, rule in enumerate(self.rules):
            if rule.at.match(line) and _dice(self.seed, episode, lane, place, number) < rule.share:
                return rule.fault
        return None


def _dice(*of: int | str) -> float:
    """In [0, 1), evenly, and always the same for the same."""
    drawn = blake2b(repr(of).encode(), digest_size=7).digest()
    return int.from_bytes(drawn, "big") / 2**56


def parse_chaos(texts: Sequence[str], seed: int = 0) -> Chaos | None:
    """None: nothing is injected. Raises WrongUsage for a text that is no rule."""
    return Chaos(rules=tuple(_parse(text) for text in texts), seed=seed) if texts else None


def _parse(text: str) -> ChaosRule:
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise WrongUsage(f"--chaos {text!r} is no rule", hint=_HINT)
    latency, time, unit, reset, truncate, size, status, code, share, at = found.groups()
    value = float(time) / (1000 if unit == "ms" else 1) if latency else float(size or code or 0)
    if share is not None and float(share) > 100:
        raise WrongUsage(f"--chaos {text!r}: {share}% is more than all", hint=_HINT)
    if value > _MOST:
        raise WrongUsage(f"--chaos {text!r}: that is no amount", hint=_HINT)
    try:
        pattern = endpoint(at or "")
    except ValueError as wrong:
        raise WrongUsage(f"--chaos {text!r}: {wrong}", hint=_HINT) from None
    kind = latency or reset or truncate or status
    return ChaosRule(
        fault=Fault(kind, value, text.strip()), share=1.0 if share is None else float(share) / 100, at=pattern
    )


def truncated_at(notes: Sequence[str]) -> int | None:
    """How many bytes of the recorded answer's body the agent got; None: nothing was withheld."""
    lead = f"{INJECTED}{TRUNCATE} "
    return next((int(note.removeprefix(lead).split()[0]) for note in notes if note.startswith(lead)), None)


def unblamed(trace: Trace) -> Trace:
    """The trace as judges may see it: an answer that the proxy put in is nobody's word about the environment."""
    if not any(exchange.injected and exchange.outcome is Outcome.LOCAL for exchange in trace.exchanges):
        return trace
    kept = [
        replace(one, response=None) if one.injected and one.outcome is Outcome.LOCAL else one for one in trace.exchanges
    ]
    return replace(trace, exchanges=kept)
