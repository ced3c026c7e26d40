"""What a race found, as the one JSON document of `race --json`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from replayproxy.detect.pairs import Risky
from replayproxy.session.race import Race, Raced


def bound(times: int) -> float:
    """The rate at which it may come and yet stay away so many times, with 95 % certainty."""
    return 1.0 - 0.05 ** (1 / times) if times else 1.0


def document(done: Race) -> dict[str, Any]:
    """`{"episode", "verdict", "predicted": [..], "pairs": [..]}`."""
    address = done.trace.address
    found: dict[str, Any] = {
        "episode": address,
        "verdict": None if done.listed else done.verdict,
        "predicted": [_risky(address, rank, one) for rank, one in enumerate(done.predicted, 1)],
        "pairs": [_pair(address, one) for one in done.raced],
    }
    if done.ready is not None and done.ready.targets is not None:
        found["targets"] = {env: target.origin.url for env, target in done.ready.targets.envs.items()}
        found["before"] = done.ready.before
    if done.unsaved:
        found["unsaved"] = done.unsaved
    return found


def _risky(address: str, rank: int, one: Risky) -> dict[str, Any]:
    return {
        "rank": rank, "how": one.how, "a": f"{address}#{one.a}", "b": f"{address}#{one.b}", "path": one.path,
        "row": f"{one.row.table}/{one.row.key}" if one.row else None, "why": list(one.why),
        "guard": one.guard or None, "alike": one.more,
    }  # fmt: skip


def _pair(address: str, one: Raced) -> dict[str, Any]:
    n = len(one.attempts)
    told = {
        "how": one.risky.how, "a": f"{address}#{one.risky.a}", "b": f"{address}#{one.risky.b}",
        "verdict": one.verdict, "k": len(one.shown), "n": n, "why": list(one.risky.why),
        "as_another": one.contest.other,
        "in_turn": [{"order": attempt.order, "statuses": attempt.outcome.statuses} for attempt in one.orders],
        "together": dict(Counter(attempt.outcome.statuses for attempt in one.attempts).most_common()),
        "attempts": [
            {"after_ms": round(attempt.after * 1000, 3), "statuses": attempt.outcome.statuses,
             "sub": next((s.anomaly.sub for s in one.shown if s.attempt is attempt), None)}
            for attempt in one.attempts
        ],
        "reason": one.reason or None,
        "finding": one.finding.to_json() if one.finding else None,
    }  # fmt: skip
    if one.verdict == "not shown":
        told["at_most"] = round(bound(n), 4)
    return told
