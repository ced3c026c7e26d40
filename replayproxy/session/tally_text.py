"""The end of `record` for people: the verdict first, denominators always, the next command last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from replayproxy.core.identity import NO_CARRIER
from replayproxy.core.shown import count
from replayproxy.session.tally import EnvTally, Tally

SHOWN = 5
"""Of what is named one by one, as many."""


def lines(
    tally: Tally, *, seconds: float, upstreams: Mapping[str, str], instances: Mapping[str, int], store: str, size: int
) -> list[str]:
    """`upstreams`: by environment, as the user gave them. `instances`: how many a dynamic one had."""
    whole = not tally.why_not_whole()
    head = f"recorded {tally.run}: {'WHOLE' if whole else 'NOT WHOLE'}   {count(tally.sealed, 'episode')} sealed"
    head += f", {len(tally.incomplete)} incomplete   {count(tally.exchanges, 'exchange')}   {took(seconds)}"
    return [
        head,
        *_env_lines(tally, upstreams, instances),
        *_snapshot_lines(tally),
        *_episode_lines(tally),
        *_verdict_lines(tally),
        *_unrecorded_lines(tally, upstreams),
        *_stray_lines(tally),
        *_rule_lines(tally),
        *_fault_lines(tally),
        *_injected_lines(tally),
        *[f"NOT ANSWERED  {why}" for why in tally.why_not_whole() if why.startswith("no exchange was answered")],
        f"store {store}  {size_text(size)}        next: {next_command(tally, store, upstreams)}",
    ]


def _env_lines(tally: Tally, given: Mapping[str, str], instances: Mapping[str, int]) -> list[str]:
    upstreams = {**given, **{name: "by the forward proxy" for name in tally.envs if name not in given}}
    width = max((len(name) for name in upstreams), default=0)
    out = []
    for name, upstream in upstreams.items():
        env = tally.envs.get(name, EnvTally())
        where = f"{count(instances.get(name, 0), 'instance')} (dynamic)" if upstream == "dynamic" else upstream
        p50, p99 = env.added.quantile(0.5), env.added.quantile(0.99)
        added = f"   added p50 {p50:.1f} p99 {p99:.1f} ms" if p50 is not None and p99 is not None else ""
        how = ", ".join(f"{outcome.value} {n:,}" for outcome, n in env.failed.items() if n)
        failed = f"failed {env.failed.total():,}" + (f" ({how})" if how else "")
        exchanges = f"{env.exchanges:>8,} {'exchange' if env.exchanges == 1 else 'exchanges':<9}"
        counts = f"{exchanges}   5xx {env.errors}   {failed}{added}"
        out.append(f"  {name:<{width}}   {where:<28} {counts}")
    return out


def _injected_lines(tally: Tally) -> list[str]:
    out = []
    if tally.injected:
        told = ", ".join(f"{kind} {n:,}" for kind, n in sorted(tally.injected.items()))
        out.append(f"  injected by --chaos   {count(tally.injected.total(), 'fault')}: {told}")
    if tally.chaos_unused:
        none = "" if tally.injected else "NO FAULT INJECTED  "
        rules = ", ".join(repr(rule) for rule in tally.chaos_unused[:SHOWN])
        share = " or its share" if any("%" in rule for rule in tally.chaos_unused) else ""
        out.append(f"{none}--chaos hit nothing by {rules} -> look at its path (`*` is anything){share}; only requests"
                   " of an episode are hit (--episode NAME)")  # fmt: skip
    return out


def _verdict_lines(tally: Tally) -> list[str]:
    out = []
    if tally.verdicts:
        told = "   ".join(f"{word} {tally.verdicts[word]:,}" for word in ("clean", "suspect", "poisoned", "unknown"))
        out.append(f"  verdicts so far   {told}   of {count(tally.verdicts.total(), 'episode')} judged")
    if tally.stopped:
        names = ", ".join(tally.stopped[:3]) + (", .." if len(tally.stopped) > 3 else "")
        out.append(f"  stopped by --fail-fast   {len(tally.stopped):,}: {names}")
    return out


def _episode_lines(tally: Tally) -> list[str]:
    out = []
    if tally.lane_ambiguous:
        out.append(
            f"lanes       {count(tally.lane_ambiguous, 'identical request')} overlapped in one lane, order unknown"
            " -> mark lanes with X-Replay-Lane"
        )
    if tally.resets_seen:
        out.append(f"resets      {tally.resets_seen} seen, kept outside the episodes")
    if tally.asked_again:
        out.append(f"asked again {count(tally.asked_again, 'read')} that seemed to miss a write, between two snapshots")
    named = tally.incomplete[:SHOWN]
    out += [f"incomplete  {name} ({tally.why_incomplete.get(name, 'not sealed')})" for name in named]
    if len(tally.incomplete) > SHOWN:
        out.append(f"incomplete  and {len(tally.incomplete) - SHOWN} more")
    return out


def _unrecorded_lines(tally: Tally, upstreams: Mapping[str, str]) -> list[str]:
    """What went past the recorder, and where nothing came."""
    out = []
    if tally.tls_refused:
        host = tally.tls_refused.most_common(1)[0][0] or "a listener"
        out.append(
            f"NOT RECORDED {count(tally.tls_refused.total(), 'TLS connection')} that the agent gave up, most to {host}"
            " -> it must trust the certificate authority named above"
        )
    if tally.passed:
        hosts = ", ".join(f"{host} {n:,}" for host, n in tally.passed.most_common(SHOWN))
        out.append(f"passed      {tally.passed.total():,} unrecorded (requests and tunnels), by --pass: {hosts}")
    if tally.attributed and tally.empty:
        names = ", ".join([*tally.empty[:3], *([".."] if len(tally.empty) > 3 else [])])
        out.append(
            f"EMPTY {count(len(tally.empty), 'episode')} without an exchange ({names}):"
            f" did the agent go past the proxy? -> {doctor_command(upstreams)}"
        )
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
            f"UNATTRIBUTED {count(stray.count, 'exchange')} ({reason}), first {stray.first}{agent}"
            f"{_advice(tally, reason)}"
        )
    return out


def _rule_lines(tally: Tally) -> list[str]:
    out = []
    if tally.contradictions:
        out.append(f"contradictions: {tally.contradictions:,}, first {tally.contradiction_first}")
    if tally.rules:
        out.append("rules       " + "  ".join(f"{name} {n:,}" for name, n in tally.rules.items()))
    if tally.rules_unused:
        out.append(f"rules never used: {', '.join(tally.rules_unused)}")
    if tally.rules_expired:
        out.append(f"rules expired, not applied: {', '.join(tally.rules_expired)}")
    if tally.rules_too_large:
        out.append(f"rules not applied to {count(tally.rules_too_large, 'exchange')}: a body above 1 MiB")
    return out


def _fault_lines(tally: Tally) -> list[str]:
    out = []
    if tally.escaping:
        out.append(
            f"LEFT THE PROXY? {count(tally.escaping, 'link')} in answers straight to the environment"
            " -> set its public URL, or --env NAME=URL,host=keep"
        )
    if tally.lost:
        out.append(
            f"LOST {count(tally.lost, 'exchange')} with a worker process that ended: whether and how they were answered"
            f" is not known -> replayproxy show {tally.run}/EPISODE"
        )
    out += [f"RECORDER FAULT  {fault}" for fault in tally.faults[:SHOWN]]
    if not tally.attributed and tally.strays:
        none = "no episode holds an exchange" if tally.sealed or tally.incomplete else "no episode was recorded"
        out.append(f"{none}: what no episode can claim is kept, and never replayed or judged")
    elif not tally.attributed:
        out.append(
            "nothing was recorded: the agent did not come to the listener addresses ({NAME} in COMMAND), or its client"
            " ignores the proxy variables; doctor says which clients do"
        )
    return out


def _advice(tally: Tally, reason: str) -> str:
    if reason != NO_CARRIER:
        return {"undeclared": " -> --undeclared accept, or open it by the control API"}.get(reason, "")
    if tally.declared or tally.sealed or tally.incomplete:
        if tally.rules or tally.rules_unused or tally.rules_expired:
            return (
                ": no rule found an id in it -> look at the rules' `at` and place;"
                " or its URLs drop the base path -> --url-style port"
            )
        return (
            ": perhaps its URLs drop the base path -> --url-style port; if it carries an id of its own -> --rules,"
            " docs/identity.md"
        )
    return ": no request named an episode -> --episode NAME, or replayproxy.episode() in the harness"


def doctor_command(upstreams: Mapping[str, str]) -> str:
    """The call of `doctor` that looks at these environments."""
    given = upstreams or {"NAME": "URL"}
    return " ".join(["replayproxy doctor", *(f"--env {name}={url}" for name, url in given.items())])


def next_command(tally: Tally, store: str, upstreams: Mapping[str, str]) -> str:
    """What to call after this recording."""
    where = "" if store == ".replayproxy" else f" --store {store}"
    names: Sequence[str] = tally.incomplete
    if not tally.attributed and tally.strays:
        return "replayproxy record --episode NAME .."
    if not tally.attributed:
        return doctor_command(upstreams)
    return f"replayproxy ls {tally.run}{where}" if names else f"replayproxy check {tally.run}{where}"


def took(seconds: float) -> str:
    """2.1 s, 41 m 07 s, 3 h 02 m."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} m {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} m"


def size_text(size: int) -> str:
    """512 B, 4.2 MiB."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
