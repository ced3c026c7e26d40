"""The report of `check` for people: verdict first, denominators always, the next command last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replayproxy.cli.common import columns, count, safe
from replayproxy.cli.moments import moment

GRADES = ("proven", "confirmed", "suspected")
KINDS = ("state-bleed", "stale-read", "dirty-reset", "nondeterminism")
WORDS = ("clean", "suspect", "poisoned", "unknown")
SHOWN = 10
WIDTH = 110


def text(documents: Sequence[Mapping[str, Any]], unsaved: Mapping[str, str]) -> list[str]:
    """One report per run. `unsaved`: run -> why its document could not be kept."""
    lines: list[str] = []
    for told in documents:
        lines += ["", *report(told)] if lines else report(told)
        if unsaved.get(told["run"]):
            lines.append(f"not saved: {safe(unsaved[told['run']])}")
    return lines


def report(told: Mapping[str, Any]) -> list[str]:
    """The report of one run's document."""
    words = Counter(told["verdicts"].values())
    return [
        _head(told, words),
        *_rate(told),
        *_table(told),
        "  ".join(f"{word} {words[word]:,}" for word in WORDS),
        *_spread(told),
        *_findings(told),
        *_story(told),
        *_why(told),
        _next(told),
    ]


def _head(told: Mapping[str, Any], words: Mapping[str, int]) -> str:
    word = {0: "PASS", 1: "FAIL"}.get(told["exit"], "NOT JUDGED")
    total = len(told["verdicts"])
    judged = total - words.get("unknown", 0)
    grades = Counter(finding["grade"] for finding in told["findings"])
    found = ", ".join(f"{grades[grade]} {grade}" for grade in GRADES if grades[grade]) or "no"
    what = "finding" if sum(grades.values()) == 1 else "findings"
    looked = sum(any(kind in seen["checked"] for seen in told["coverage"].values()) for kind in KINDS)
    scope = f"{judged:,} of {count(total, 'episode')} judged, for {looked} of {len(KINDS)} kinds"
    return f"{safe(told['run'])}: {word}   {found} {what}   {scope}"


def _rate(told: Mapping[str, Any]) -> Iterator[str]:
    failures, share = told["failures"], told["failure_rate"]
    if share is None:
        yield "failure rate: none, no sealed episode holds an exchange"
        return
    low, high = told["interval"]
    budget = told["max_failure_rate"]
    word = "above it" if share > budget else "ok"
    yield (
        f"failure rate {_percent(share)} [{low * 100:.1f}, {high * 100:.1f}] = {failures['poisoned']} poisoned + "
        f"{failures['lost']} lost to 5xx, resets or timeouts, of {failures['of']:,}; budget {_percent(budget)}: {word}"
    )


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %".replace(".0 %", " %")


def _table(told: Mapping[str, Any]) -> list[str]:
    """Per kind: findings by grade, episodes they fall on, and where one could not look and why."""
    total = len(told["verdicts"])
    rows: list[tuple[str, ...]] = [("KIND", "PROVEN", "CONFIRMED", "SUSPECTED", "EPISODES", "COULD NOT LOOK IN")]
    for kind in KINDS:
        found = [finding for finding in told["findings"] if finding["kind"] == kind]
        grades = Counter(finding["grade"] for finding in found)
        blind = Counter(seen["not_checked"][kind] for seen in told["coverage"].values() if kind in seen["not_checked"])
        hidden = sum(blind.values())
        why = f" ({safe(blind.most_common(1)[0][0])}{', ..' if len(blind) > 1 else ''})" if blind else ""
        rows.append(
            (
                kind, *(str(grades[grade] or "-") for grade in GRADES),
                str(len({finding["episode"] for finding in found}) or "-"), f"{hidden:,} of {total:,}{why}",
            )
        )  # fmt: skip
    return columns(rows, right=(1, 2, 3, 4))


def _spread(told: Mapping[str, Any]) -> Iterator[str]:
    caught = told["suspected_from"]
    if caught:
        shown = ", ".join(f"{safe(name)} (after {safe(source)})" for name, source in list(caught.items())[:3])
        more = f" and {len(caught) - 3} more" if len(caught) > 3 else ""
        yield f"spread  suspect because of a dirty start before them on their instance: {shown}{more}"


def _findings(told: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (
            finding["number"], finding["grade"], finding["kind"], safe(finding["episode"]),
            safe(finding["pointer"] or "-"), safe(finding["title"]),
        )
        for finding in told["findings"][:SHOWN]
    ]  # fmt: skip
    yield from (line if len(line) <= WIDTH else line[: WIDTH - 1] + "…" for line in (columns(rows) if rows else ()))
    rest = len(told["findings"]) - len(rows)
    if rest > 0:
        yield f"and {rest:,} more        --json lists all"


def _story(told: Mapping[str, Any]) -> Iterator[str]:
    """Since when, what it did to the rewards, and which one exchange is behind most of it."""
    began, worst = told["began"], told["worst"]
    if began is not None:
        beside = [f"{safe(str(k))} {safe(str(v))}" for k, v in began["meta"].items() if k in ("step", "env_commit")]
        beside += [f"instance {safe(str(v))}" for v in began["instance"].values()]
        yield f"began   {', '.join([moment(began['wall']), *beside, 'with ' + safe(began['episode'])])}"
    for one in told["rewards"][:SHOWN]:
        without = "none is left" if one["without"] is None else f"{one['without']:.2f} without"
        yield f"reward  {safe(str(one['task']))}: mean {one['with']:.2f} with its {one['poisoned']} poisoned, {without}"
    if worst is not None:
        where = f"{worst['episodes']} episodes, one exchange: {safe(worst['exchange'])}"
        yield f"worst   {worst['number']} {worst['kind']}, {where}"


def _why(told: Mapping[str, Any]) -> Iterator[str]:
    for reason in told["why"]:
        yield f"because {safe(reason)}"
    lost = sum("no reference" in seen["not_checked"].values() for seen in told["coverage"].values())
    if lost:
        where = f"{lost:,} of {count(len(told['verdicts']), 'episode')}"
        yield f"note    the right start is not known for {where} -> --reference {safe(told['run'])}/EPISODE"
    for note in told["notes"]:
        yield f"note    {safe(note)}"
    snapshots = told["snapshots"]
    if any(snapshots.values()):
        told_of = ", ".join(f"{number:,} {what}" for what, number in snapshots.items() if number)
        yield f"note    snapshots: {told_of}"


def _next(told: Mapping[str, Any]) -> str:
    if told["findings"]:
        first = told["findings"][0]
        return f"next    replayproxy show {first['number']}   {safe(first['reproduce'])}"
    if not told["verdicts"]:
        return "next    replayproxy record --env NAME=URL -- COMMAND"
    return f"next    replayproxy ls {safe(told['run'])}   replayproxy diff {safe(told['run'])} OTHER"
