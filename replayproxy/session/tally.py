"""What a recording holds, counted as it comes: the summary for programs, and the lines for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from replayproxy.core.identity import NO_CARRIER
from replayproxy.core.values import Exchange, Outcome, Snapshot, SnapshotStatus

RESETS = frozenset({Outcome.CUT, Outcome.REFUSED, Outcome.INVALID, Outcome.TIMED_OUT})
"""The ways in which an environment fails to answer."""


class Histogram:
    """Durations, kept as counts in buckets that are 9 % wide: a quantile of any number of them in little memory."""

    STEPS = 8

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()

    def add(self, ns: int) -> None:
        self._buckets[math.ceil(math.log2(max(ns, 1)) * self.STEPS)] += 1

    def quantile(self, q: float) -> float | None:
        """In milliseconds; None when there is nothing."""
        left = math.ceil(self._buckets.total() * q)
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return float(2 ** (bucket / self.STEPS) / 1e6)
        return None


@dataclass(slots=True)
class EnvTally:
    exchanges: int = 0
    errors: int = 0
    resets: int = 0
    added: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class Stray:
    """Unattributed traffic of one reason: how much, and the first of it."""

    count: int = 0
    first: str = ""
    agent: str = ""


@dataclass(slots=True)
class Tally:
    """Counts of one recording, without what an earlier recording of the same run holds."""

    run: str
    envs: dict[str, EnvTally] = field(default_factory=dict)
    sealed: int = 0
    declared: int = 0
    incomplete: list[str] = field(default_factory=list)
    why_incomplete: dict[str, str] = field(default_factory=dict)
    attributed: int = 0
    strays: dict[str, Stray] = field(default_factory=dict)
    resets_seen: int = 0
    probes: int = 0
    snapshots: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    late: int = 0
    torn: int = 0
    lane_ambiguous: int = 0
    escaping: int = 0
    empty: list[str] = field(default_factory=list)
    contradictions: int = 0
    contradiction_first: str = ""
    rules: Mapping[str, int] = field(default_factory=dict)
    rule_names: tuple[str, ...] = ()
    rules_expired: tuple[str, ...] = ()
    rules_too_large: int = 0
    faults: list[str] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    tls_refused: Counter[str] = field(default_factory=Counter)

    def exchange(self, exchange: Exchange, *, attributed: bool) -> None:
        env = self.envs.setdefault(exchange.env, EnvTally())
        env.exchanges += 1
        env.errors += exchange.response is not None and exchange.response.status >= 500
        env.resets += exchange.outcome in RESETS
        if (added := added_ns(exchange)) is not None:
            env.added.add(added)
        if exchange.is_reset:
            self.resets_seen += 1
        elif exchange.is_probe and not attributed:
            self.probes += 1
        elif attributed:
            self.attributed += 1
        else:
            self._stray(exchange)

    def _stray(self, exchange: Exchange) -> None:
        stray = self.strays.setdefault(exchange.carrier.partition(":")[0], Stray())
        stray.count += 1
        if not stray.first:
            request = exchange.request
            stray.first = f"{_shown(request.method)} {_shown(request.target)[:80]}"
            stray.agent = next((_shown(v)[:40] for n, v in request.fields if n.lower() == b"user-agent"), "")

    def contradiction(self, address: str, what: str) -> None:
        self.contradictions += 1
        self.contradiction_first = self.contradiction_first or f"{address}: {what}"

    def snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.status is SnapshotStatus.MISSING:
            # An undeclared start is expected to have no state; it is in the store, and counts as no fault.
            self.missing[snapshot.reason] += snapshot.reason != "undeclared"
            return
        self.snapshots[snapshot.when] += 1
        self.late += snapshot.late
        self.torn += snapshot.status is SnapshotStatus.TORN

    @property
    def rules_unused(self) -> list[str]:
        return [name for name in self.rule_names if not self.rules.get(name)]

    @property
    def unattributed(self) -> int:
        return sum(stray.count for stray in self.strays.values())

    @property
    def exchanges(self) -> int:
        return self.attributed + self.unattributed

    def why_not_whole(self) -> list[str]:
        """Empty when the recording is whole."""
        reasons = []
        if not self.attributed:
            reasons.append("no exchange was recorded in an episode")
        if self.incomplete:
            reasons.append(f"{_n(len(self.incomplete), 'episode')} incomplete")
        if self.unattributed:
            reasons.append(f"{_n(self.unattributed, 'exchange')} unattributed")
        if self.contradictions:
            reasons.append(_n(self.contradictions, "contradiction"))
        if self.missing.total():
            reasons.append(f"{_n(self.missing.total(), 'snapshot')} missing")
        if self.faults:
            reasons.append(f"the recorder failed: {self.faults[0]}")
        return reasons

    def document(self) -> dict[str, Any]:
        """What `record --json` prints and the summary holds."""
        return {
            "runs": [self.run],
            "whole": not self.why_not_whole(),
            "why_not_whole": self.why_not_whole(),
            "episodes": self.sealed + len(self.incomplete),
            "exchanges": self.exchanges,
            "unattributed": self.unattributed,
            "unattributed_reasons": {reason: stray.count for reason, stray in self.strays.items()},
            "incomplete": list(self.incomplete),
            "empty": list(self.empty),
            "snapshots": {
                "taken": self.snapshots.total(),
                "missing": self.missing.total(),
                "late": self.late,
                "torn": self.torn,
            },
            "lane_ambiguous": self.lane_ambiguous,
            "resets": self.resets_seen,
            "probes": self.probes,
            "escaping_links": self.escaping,
            "tls_refused": self.tls_refused.total(),
            "passed": self.passed.total(),
            "passed_hosts": dict(self.passed),
            "contradictions": self.contradictions,
            "first_contradiction": self.contradiction_first or None,
            "rules": {
                "used": dict(self.rules),
                "unused": self.rules_unused,
                "expired": list(self.rules_expired),
                "too_large": self.rules_too_large,
            },
            "faults": list(self.faults),
        }


def added_ns(exchange: Exchange) -> int | None:
    """What the proxy itself added to a whole exchange; a hold for a snapshot was asked for and is not counted."""
    times = exchange.times
    if times.c_in is None or times.fwd is None or times.up_end is None or times.c_out is None:
        return None
    return max((times.fwd - times.c_in) + (times.c_out - times.up_end) - exchange.held_ns, 0)


def _n(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _shown(raw: bytes) -> str:
    return raw.decode("ascii", "backslashreplace")


def took(seconds: float) -> str:
    """2.1 s, 41 m 07 s, 3 h 02 m."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} m {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} m"


def lines(
    tally: Tally, *, seconds: float, upstreams: Mapping[str, str], instances: Mapping[str, int], store: str, size: int
) -> list[str]:
    """The end of `record` for people: verdict first, denominators always, the next command last."""
    whole = not tally.why_not_whole()
    head = f"recorded {tally.run}: {'WHOLE' if whole else 'NOT WHOLE'}   {_n(tally.sealed, 'episode')} sealed"
    head += f", {len(tally.incomplete)} incomplete   {_n(tally.exchanges, 'exchange')}   {took(seconds)}"
    out = [head]
    given = upstreams
    found = {name: "by the forward proxy" for name in tally.envs if name not in upstreams}
    upstreams = {**upstreams, **found}
    width = max((len(name) for name in upstreams), default=0)
    for name, upstream in upstreams.items():
        env = tally.envs.get(name, EnvTally())
        where = f"{instances.get(name, 0)} instances (dynamic)" if upstream == "dynamic" else upstream
        p50, p99 = env.added.quantile(0.5), env.added.quantile(0.99)
        added = f"   added p50 {p50:.1f} p99 {p99:.1f} ms" if p50 is not None and p99 is not None else ""
        counts = f"{env.exchanges:>8,} exchanges   5xx {env.errors}   resets {env.resets}{added}"
        out.append(f"  {name:<{width}}   {where:<28} {counts}")
    out += _snapshot_lines(tally)
    if tally.lane_ambiguous:
        out.append(
            f"lanes       {_n(tally.lane_ambiguous, 'identical request')} overlapped in one lane, order unknown"
            " -> mark lanes with X-Replay-Lane"
        )
    if tally.resets_seen:
        out.append(f"resets      {tally.resets_seen} seen, kept outside the episodes")
    for name in tally.incomplete[:5]:
        out.append(f"incomplete  {name} ({tally.why_incomplete.get(name, 'not sealed')})")
    if len(tally.incomplete) > 5:
        out.append(f"incomplete  and {len(tally.incomplete) - 5} more")
    if tally.tls_refused:
        host = tally.tls_refused.most_common(1)[0][0] or "a listener"
        out.append(
            f"NOT RECORDED {_n(tally.tls_refused.total(), 'TLS connection')} that the agent gave up, most to {host}"
            " -> it must trust the certificate authority named above"
        )
    if tally.passed:
        hosts = ", ".join(f"{host} {n:,}" for host, n in tally.passed.most_common(5))
        out.append(f"passed      {_n(tally.passed.total(), 'request or tunnel')} unrecorded, by --pass: {hosts}")
    if tally.attributed and tally.empty:
        names = ", ".join([*tally.empty[:3], *([".."] if len(tally.empty) > 3 else [])])
        out.append(
            f"EMPTY {_n(len(tally.empty), 'episode')} without an exchange ({names}): did the agent go past the proxy?"
            f" -> {doctor_command(given)}"
        )
    out += _stray_lines(tally)
    out += _rule_lines(tally)
    if tally.escaping:
        out.append(
            f"LEFT THE PROXY? {_n(tally.escaping, 'link')} in answers straight to the environment"
            " -> set its public URL, or --env NAME=URL,host=keep"
        )
    out += [f"RECORDER FAULT  {fault}" for fault in tally.faults[:5]]
    if not tally.attributed and tally.strays:
        out.append("no episode was recorded: what no episode can claim is kept, and never replayed or judged")
    elif not tally.attributed:
        out.append(
            "nothing was recorded: the agent did not come to the listener addresses ({NAME} in COMMAND), or its client"
            " ignores the proxy variables; doctor says which clients do"
        )
    out.append(f"store {store}  {size_text(size)}        next: {next_command(tally, store, given)}")
    return out


def _snapshot_lines(tally: Tally) -> list[str]:
    if not tally.snapshots and not tally.missing.total():
        return []
    taken = "  ".join(
        f"{when} {tally.snapshots[when]:,}" for when in ("start", "write", "end", "mark") if tally.snapshots[when]
    )
    text = f"snapshots   {taken or 'none taken'}   missing {tally.missing.total():,}"
    if tally.missing.total():
        text += f" ({tally.missing.most_common(1)[0][0]})"
    text += f"   late {tally.late:,}"
    return [text + (f"   torn {tally.torn:,}" if tally.torn else "")]


def _stray_lines(tally: Tally) -> list[str]:
    out = []
    for reason, stray in sorted(tally.strays.items(), key=lambda item: -item[1].count):
        agent = f' from "{stray.agent}"' if stray.agent else ""
        out.append(
            f"UNATTRIBUTED {_n(stray.count, 'exchange')} ({reason}), first {stray.first}{agent}{_advice(tally, reason)}"
        )
    return out


def _rule_lines(tally: Tally) -> list[str]:
    out = []
    if tally.contradictions:
        out.append(f"contradictions: {tally.contradictions:,}, first {tally.contradiction_first}")
    if tally.rules:
        out.append("rules       " + "  ".join(f"{name} {count:,}" for name, count in tally.rules.items()))
    if tally.rules_unused:
        out.append(f"rules never used: {', '.join(tally.rules_unused)}")
    if tally.rules_expired:
        out.append(f"rules expired, not applied: {', '.join(tally.rules_expired)}")
    if tally.rules_too_large:
        out.append(f"rules not applied to {_n(tally.rules_too_large, 'exchange')}: a body above 1 MiB")
    return out


def _advice(tally: Tally, reason: str) -> str:
    if reason != NO_CARRIER:
        return {"undeclared": " -> --undeclared accept, or open it by the control API"}.get(reason, "")
    if tally.declared or tally.sealed or tally.incomplete:
        return ": perhaps its URLs drop the base path -> --url-style port"
    return ": no request named an episode -> --episode NAME, or replayproxy.episode() in the harness"


def doctor_command(upstreams: Mapping[str, str]) -> str:
    given = upstreams or {"NAME": "URL"}
    return " ".join(["replayproxy doctor", *(f"--env {name}={url}" for name, url in given.items())])


def next_command(tally: Tally, store: str, upstreams: Mapping[str, str]) -> str:
    where = "" if store == ".replayproxy" else f" --store {store}"
    names: Sequence[str] = tally.incomplete
    if not tally.attributed and tally.strays:
        return "replayproxy record --episode NAME .."
    if not tally.attributed:
        return doctor_command(upstreams)
    return f"replayproxy ls {tally.run}{where}" if names else f"replayproxy check {tally.run}{where}"


def size_text(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
