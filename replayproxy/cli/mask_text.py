"""What `mask` tells: for people the outcome first, then how the lines were joined, the groups, the next command; for
programs the same in one document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from replayproxy.cli.common import columns, count, safe
from replayproxy.session.mask import Masked
from replayproxy.session.mask_groups import Groups
from replayproxy.session.mask_list import Listed
from replayproxy.session.mask_marks import How, Mark
from replayproxy.session.mask_reasons import told

SHOWN = 10
WORDS = ("clean", "suspect", "poisoned", "unknown")


# For programs


def document(done: Masked) -> dict[str, Any]:
    """The document of `mask` with a file."""
    report, demands = done.report, done.demands
    return {
        "run": done.judged.run.name, "rollouts": str(done.source), "out": None if done.out is None else str(done.out),
        "how": demands.how.value, "masked_verdicts": sorted(demands.masked), "on": [str(p) for p in done.join.on],
        "judged": done.judged.judged or None,
        "lines": report.lines, "blank": report.blank, "masked": report.masked, "masked_before": report.given,
        "matched": report.matched, "unmatched": report.unmatched, "ambiguous": report.ambiguous,
        "lost_not_masked": report.lost, "other_reward": report.other_reward,
        "verdicts": dict(report.verdicts), "kinds": dict(report.kinds),
        "share_masked": report.share_masked, "max_masked": demands.max_masked,
        "share_unmatched": report.share_unmatched, "max_unmatched": demands.max_unmatched,
        "lacking": dict(report.lacking), "first_unmatched": report.first_unmatched,
        "first_ambiguous": [{"line": number, "episodes": names} for number, names in report.first_ambiguous],
        "episodes": {"run": len(done.judged.episodes), "with_lines": len(report.episodes)},
        "masked_lines": [{"line": number, **_mark(mark)} for number, mark in report.shown],
        "groups": _groups(report.groups), "why": done.why, "exit": done.exit,
    }  # fmt: skip


def list_document(listed: Listed) -> dict[str, Any]:
    """The document of `mask` without a file."""
    return {
        "run": listed.judged.run.name, "masked_verdicts": sorted(listed.demands.masked),
        "judged": listed.judged.judged or None, "masked": len(listed.masked), "of": len(listed.judged.episodes),
        "share_masked": listed.share, "max_masked": listed.demands.max_masked, "verdicts": dict(listed.verdicts),
        "lost_not_masked": listed.lost,
        "episodes": [
            {"episode": e.name, "task": e.task, "seed": e.seed, "attempt": e.attempt, "group": e.group,
             "reward": e.reward, "verdict": mark.verdict, "reasons": list(mark.reasons)}
            for e, mark in listed.masked
        ],
        "groups": _groups(listed.groups), "why": listed.why, "exit": listed.exit,
    }  # fmt: skip


def _mark(mark: Mark) -> dict[str, Any]:
    return {"episode": mark.episode or None, "verdict": mark.verdict or None, "reasons": list(mark.reasons)}


def _groups(groups: Groups) -> dict[str, Any]:
    losing = groups.losing()
    return {
        "of": len(groups), "losing": len(losing), "alone": sum(g.alone for g in losing),
        "no_variance": sum(g.flat for g in losing), "named": [group.to_json() for group in losing],
    }  # fmt: skip


# For people


def text(done: Masked, *, all_groups: bool) -> list[str]:
    """The report of `mask` with a file."""
    report = done.report
    share = f"{report.share_masked:.1%}, limit {done.demands.max_masked:.0%}"
    what = {How.ANNOTATE: "masked", How.DROP: "dropped", How.LIST: "to mask"}[done.demands.how]
    head = f"{safe(done.judged.run.name)}: "
    if done.why and done.demands.how is not How.LIST:
        head, what = f"{head}NOTHING WRITTEN   ", "to mask"
    head += f"{report.masked:,} of {count(report.lines, report.unit)} {what} ({share})"
    if done.out is not None:
        head += f"   written to {safe(str(done.out))}"
    episodes = f"{count(len(report.episodes), 'episode')} of {len(done.judged.episodes):,}"
    joined = (
        f"joined  {safe(str(done.join))}: {count(report.matched, report.unit)} of {episodes},"
        f" {report.unmatched:,} of none, {report.ambiguous:,} of several (limit {done.demands.max_unmatched:.0%})"
    )
    return [
        head,
        *(f"because {safe(why)}" for why in done.why),
        joined,
        *_unmatched(done),
        f"{report.unit + 's':<8}{_words(report.verdicts)}",
        *_kinds(report.kinds),
        *_given(report.given, report.unit),
        *_rewards(report.other_reward, report.unit),
        *(_lines(done) if done.demands.how is How.LIST else ()),
        *_group_lines(report.groups, all_groups=all_groups),
        *_unknown(report.verdicts, done.demands.masked, f"{report.unit}s"),
        *_lost(report.lost, f"{report.unit}s"),
        _next(done),
    ]


def list_text(listed: Listed, *, all_groups: bool) -> list[str]:
    """The report of `mask` without a file."""
    run, of = safe(listed.judged.run.name), len(listed.judged.episodes)
    rows = [("EPISODE", "TASK", "SEED", "ATT", "REWARD", "VERDICT", "WHY")]
    for e, mark in listed.masked:
        rows.append(
            (
                safe(e.name), safe(e.task or "-"), _number(e.seed), _number(e.attempt),
                "-" if e.reward is None else f"{e.reward:.2f}", mark.verdict, safe(told(mark.reasons)),
            )
        )  # fmt: skip
    share = f"{listed.share:.1%}, limit {listed.demands.max_masked:.0%}"
    return [
        f"{run}: {len(listed.masked):,} of {count(of, 'episode')} to mask ({share})   {_words(listed.verdicts)}",
        *(f"because {safe(why)}" for why in listed.why),
        *(columns(rows, right=(2, 3, 4)) if listed.masked else ()),
        *_group_lines(listed.groups, all_groups=all_groups),
        *_unknown(listed.verdicts, listed.demands.masked, "episodes"),
        *_lost(listed.lost, "episodes"),
        f"next    replayproxy mask {run} ROLLOUTS.jsonl --on FIELD=FIELD",
    ]


def _words(verdicts: Mapping[str, int]) -> str:
    return "  ".join(f"{word} {verdicts.get(word, 0):,}" for word in WORDS)


def _kinds(kinds: Counter[str]) -> Iterator[str]:
    if kinds:
        yield "masked for  " + " · ".join(f"{kind} {number:,}" for kind, number in kinds.most_common())


def _given(given: int, unit: str) -> Iterator[str]:
    if given:
        yield f"note    {count(given, unit)} had mask_sample true already, and keep it"


def _rewards(other: int, unit: str) -> Iterator[str]:
    if other:
        yield f"note    {count(other, unit)} with another reward than its episode: are they joined rightly?"


def _unmatched(done: Masked) -> Iterator[str]:
    report = done.report
    if report.unmatched:
        first = ", ".join(f"{number:,}" for number in report.first_unmatched)
        first += ", .." if report.unmatched > len(report.first_unmatched) else ""
        lacking = "".join(f"; {n:,} have no {safe(name)}" for name, n in report.lacking.most_common())
        yield f"of none     {report.unit}s {first}{lacking}"
    for number, names in report.first_ambiguous[:1]:
        yield f"of several  {report.unit} {number:,}: {', '.join(map(safe, names))} -> one more --on tells them apart"


def _lines(done: Masked) -> list[str]:
    rows = [(done.report.unit.upper(), "EPISODE", "VERDICT", "WHY")]
    for number, mark in done.report.shown:
        rows.append((f"{number:,}", safe(mark.episode or "-"), mark.verdict or "-", safe(told(mark.reasons))))
    more = done.report.masked - len(done.report.shown)
    return [*(columns(rows, right=(0,)) if len(rows) > 1 else ()), *([f"and {more:,} more"] if more > 0 else ())]


def _group_lines(groups: Groups, *, all_groups: bool) -> Iterator[str]:
    losing = groups.losing()
    if not losing:
        return
    alone, flat = sum(g.alone for g in losing), sum(g.flat for g in losing)
    yield (
        f"groups  {len(losing):,} of {len(groups):,} lose rollouts; {alone:,} keep fewer than two,"
        f" {flat:,} keep no difference in reward"
    )
    for group in losing if all_groups else losing[:SHOWN]:
        fate = "no sibling is left" if group.alone else "all that are left have one reward" if group.flat else ""
        yield f"  {safe(group.name)}: {group.rollouts:,} -> {group.left:,}{f'   {fate}' if fate else ''}"
    if not all_groups and len(losing) > SHOWN:
        yield f"  and {len(losing) - SHOWN:,} more        --groups names all"


def _unknown(verdicts: Mapping[str, int], masked: Any, what: str) -> Iterator[str]:
    unknown = verdicts.get("unknown", 0)
    if unknown and "unknown" not in masked:
        yield (
            f"note    {unknown:,} {what} could not be judged and are not masked"
            f" -> --verdicts {','.join([*sorted(masked), 'unknown'])}"
        )


def _lost(lost: int, what: str) -> Iterator[str]:
    if lost:
        yield f"note    {lost:,} {what} lost an exchange to a 5xx, a reset or a timeout and are not masked -> --lost"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _next(done: Masked) -> str:
    run = safe(done.judged.run.name)
    if done.why:
        return f"next    replayproxy mask {run}   replayproxy check {run}"
    return f"next    replayproxy show {run}/EPISODE" if done.report.masked else f"next    replayproxy ls {run}"
