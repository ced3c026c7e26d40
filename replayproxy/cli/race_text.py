"""A race as people read it: verdict first, then what each pair gave in turn and together, the next command last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from replayproxy.cli.common import beside, columns, count, safe
from replayproxy.detect.pairs import TWICE, Risky
from replayproxy.session.race import NOT_SHOWN, SHOWN, Race, Raced
from replayproxy.session.race_finding import WORDS
from replayproxy.session.race_report import bound

WIDE = 46
WIDTH = 100


def text(done: Race) -> list[str]:
    return _listed(done) if done.listed else [*_told(done), *_next(done)]


def _listed(done: Race) -> list[str]:
    address = safe(done.trace.address)
    if not done.predicted:
        return [f"{address}: no two requests look risky together; {_looked(done)}"]
    pairs = count(len(done.predicted), "pair")
    lines = [f"{address}: {pairs} may be risky together; {_looked(done)}; nothing was sent"]
    rows, why = [["    ", "RANK", "PAIR", "REQUESTS"]], ["WHY"]
    for rank, one in enumerate(done.predicted, 1):
        rows.append(["    ", str(rank), f"{one.a},{one.b}", _requests(done, one)])
        reasons = list(one.why) + ([f"guarded by {one.guard}"] if one.guard else [])
        why.append(safe("; ".join(reasons + ([f"{one.more} more alike"] if one.more else []))))
    lines += beside(columns(rows), why, WIDTH)
    envs = " ".join(f"--env {safe(env)}=URL" for env in sorted({e.env for e in done.trace.exchanges}))
    return [*lines, f"    next     replayproxy race {address} {envs}"]


def _looked(done: Race) -> str:
    return f"{count(len(done.trace.exchanges), 'exchange')} looked at"


def _requests(done: Race, one: Risky) -> str:
    first, second = (_line(done, seq) for seq in one.key)
    shown = safe(f"{first}, twice" if one.how == TWICE else f"{first} and {second}")
    return shown if len(shown) <= WIDE else shown[: WIDE - 1] + "…"


def _line(done: Race, seq: int) -> str:
    request = next(e.request for e in done.trace.exchanges if e.seq == seq)
    path = request.target.decode("utf-8", "replace").partition("?")[0]
    return f"{request.method.decode('ascii', 'replace')} {path}"


def _told(done: Race) -> list[str]:
    told = [one.verdict for one in done.raced]
    envs = done.ready.targets.envs if done.ready and done.ready.targets else {}
    where = "  ".join(f"{safe(env)}={safe(target.origin.url)}" for env, target in envs.items())
    undecided = len(told) - told.count(SHOWN) - told.count(NOT_SHOWN)
    lines = [
        f"{done.verdict.upper()}  {safe(done.trace.address)}   {where}   {count(len(told), 'pair')} of "
        f"{len(done.predicted)} predicted: {told.count(SHOWN)} shown, {told.count(NOT_SHOWN)} not shown"
        + (f", {undecided} undecided" if undecided else "")
    ]
    if done.ready is not None and done.ready.before:
        lines.append(f"    found state kept: {safe(done.ready.before)}")
    for number, one in enumerate(done.raced, 1):
        lines += _pair(done, number, one)
    if done.unsaved:
        lines.append(f"    NOT KEPT: {safe(done.unsaved)}")
    return lines


def _pair(done: Race, number: int, one: Raced) -> list[str]:
    n = len(one.attempts)
    finding = one.finding
    head = f"  PAIR {number}  "
    if finding is not None:
        head += f"{finding.kind.upper().replace('-', ' ')}  {finding.grade.upper()} {len(one.shown)}/{n}"
    else:
        head += one.verdict.upper() + (f" 0/{n}" if one.verdict == NOT_SHOWN else "")
    lines = [f"{head}   {_requests(done, one.risky)}   #{one.risky.a}, #{one.risky.b}"]
    if one.risky.why:
        lines.append(f"    why      {safe('; '.join(one.risky.why))}")
    if one.orders:
        turns = " · ".join(dict.fromkeys(f"{_order(a.order)} {a.outcome.statuses}" for a in one.orders))
        lines.append(f"    in turn  {turns}")
    if one.attempts:
        counted = Counter(attempt.outcome.statuses for attempt in one.attempts).most_common()
        lines.append("    together " + " · ".join(f"{statuses} in {k} of {n}" for statuses, k in counted))
    if finding is not None:
        lines.append(f"    shown    {WORDS[finding.sub]}")
        expected, found = finding.values
        where = safe(finding.pointer or "answers")
        lines.append(f"             {where}: {_value(expected)} in turn, {_value(found)} together")
    elif one.verdict == NOT_SHOWN:
        lines.append(f"    bound    at most {bound(n):.0%} of such meetings (95 %); that it cannot happen is not shown")
    if one.reason:
        lines.append(f"    undecided because {safe(one.reason)}")
    return lines


def _order(order: str) -> str:
    return {"ab": "A then B:", "ba": "B then A:"}[order]


def _value(value: object) -> str:
    shown = safe(str(value))
    return shown if len(shown) <= WIDE else shown[: WIDE - 1] + "…"


def _next(done: Race) -> Sequence[str]:
    found = next((one.finding for one in done.raced if one.finding is not None), None)
    if found is not None:
        return [
            f"    again    {safe(found.reproduce)}",
            f"    next     replayproxy check {safe(done.trace.run.name)}   (the finding is kept with the run)",
        ]
    if done.verdict == NOT_SHOWN:
        return ["    next     the same with --times 100: what was not shown is not ruled out"]
    return ["    next     see to what left it undecided, then the same command again"]
