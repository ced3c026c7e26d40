"""A re-drive's result as people read it: verdict first, denominators always, the next command last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from replayproxy.cli.common import columns, count, safe
from replayproxy.cli.difftext import folds_of
from replayproxy.core.bindings import Substitution
from replayproxy.core.comparison import Root
from replayproxy.core.treediff import ABSENT
from replayproxy.session.ablation import Tally
from replayproxy.session.outcomes import told_histogram
from replayproxy.session.redrive import DIFFERENT, SAME, Ask, Redriven, Repetition
from replayproxy.session.redrive_report import equal_answers, live_address, shown_substitution, snapshots_of, verdict
from replayproxy.session.redrive_state import short

SHOWN_ROOTS = 5
SHOWN_NOTES = 3
SHOWN_SUBSTITUTIONS = 12


def text(results: Sequence[Redriven], ask: Ask) -> list[str]:
    """The lines of all episodes; several begin with a line for all."""
    lines = []
    if len(results) > 1:
        told = [one.verdict for one in results]
        lines.append(
            f"{verdict(results).upper()}   {count(len(results), 'episode')}: {told.count(SAME)} same, "
            f"{told.count(DIFFERENT)} different, {len(told) - told.count(SAME) - told.count(DIFFERENT)} undecided"
        )
    for one in results:
        lines += _episode(one)
    return [*lines, *_next(results, ask)]


def _episode(one: Redriven) -> list[str]:
    shown = one.shown
    address = safe(one.trace.address)
    if shown is None:
        return [f"{one.verdict.upper()}  {address}", f"    cannot be judged: {safe(str(one.problem))}"]
    envs = one.targets.envs if one.targets else {}
    where = "  ".join(f"{env}={safe(target.origin.url)}" for env, target in envs.items())
    head = f"{one.verdict.upper()}  {address}   {where}"
    if len(one.repetitions) > 1:
        k = sum(1 for repetition in one.repetitions if repetition.verdict == DIFFERENT)
        head += f"   {k} of {len(one.repetitions)} repetitions different"
    if shown.restored.answers_only:
        head += f"   answers only: no snapshot of {', '.join(shown.restored.answers_only)}"
    lines = [head, *_start(one, shown), *_sent(one, shown)]
    for number, root in enumerate(shown.comparison.roots[:SHOWN_ROOTS], 1):
        lines += _root(one, shown, number, root)
    if len(shown.comparison.roots) > SHOWN_ROOTS:
        lines.append(f"    {len(shown.comparison.roots) - SHOWN_ROOTS} more roots: --json")
    lines += _state(one, shown)
    notes = list(dict.fromkeys(shown.comparison.notes))
    lines += [f"    note     {safe(note)}" for note in notes[:SHOWN_NOTES]]
    if len(notes) > SHOWN_NOTES:
        lines.append(f"    {len(notes) - SHOWN_NOTES} more notes: --json")
    lines += [f"    undecided because {safe(reason)}" for reason in shown.reasons]
    if one.histogram:
        lines.append(f"    repeats  {safe(str(one.histogram['told']))}")
    if one.trial is not None:
        document = one.trial["finding_document"]
        lines.append(
            f"    finding  {document['kind']} ({document['sub']}) {document['grade']}, kept for the next check"
        )
    lines += _ablation(one)
    if one.problem is not None:
        lines.append(f"    stopped after {count(len(one.repetitions), 'repetition')}: {safe(str(one.problem))}")
    return lines


def _start(one: Redriven, shown: Repetition) -> list[str]:
    by = shown.restored.by
    parts = [f"{safe(name)} by {how}" + (", read back: equal" if name in shown.restored.verified else "")
             for name, how in by.items() if how != "reset" or name not in shown.restored.verified]  # fmt: skip
    parts += [f"{safe(name)} by reset, read back: equal" for name, how in by.items()
              if how == "reset" and name in shown.restored.verified]  # fmt: skip
    kept = f"   found state kept: {safe(one.before)}" if one.before else ""
    return [f"    start    {' · '.join(parts) or 'not restored'}{kept}"]


def _sent(one: Redriven, shown: Repetition) -> list[str]:
    total, drive = len(one.trace.exchanges), shown.drive
    states = snapshots_of(one, shown)
    assert one.plan is not None
    answered, compared = len(drive.live), shown.comparison.snapshots_compared
    lines = [
        f"    sent     {answered} of {count(total, 'request')}",
        f"    answers  {answered} compared, {equal_answers(one, shown)} of them equal before anything is explained",
        f"    states   {compared} compared, {states['equal']} of them equal before that; {states['recorded']} recorded",
    ]
    if one.plan.skipped:
        lines.append("    skipped  " + " · ".join(f"#{step.seq} {step.skip}" for step in one.plan.skipped))
    if drive.unsent:
        lines.append(f"    stopped at the first difference, {count(len(drive.unsent), 'request')} not sent")
    explained = " · ".join(f"{safe(name)} {number:,}" for name, number in shown.comparison.explained.items() if number)
    lines.append(f"    explained, not counted   {explained or 'nothing'}")
    return lines + _substitutions(shown)


def _substitutions(shown: Repetition) -> list[str]:
    made = [shown_substitution(one) for one in shown.bindings.substitutions]
    lines = [f"    substituted {count(len(made), 'value')} in {count(len({s.consumer for s in made}), 'request')}"]

    def name(one: Substitution) -> tuple[str, str, str]:
        return one.kind, one.recorded, one.live

    groups = [list(group) for _, group in groupby(sorted(made, key=name), key=name)]
    groups.sort(key=lambda group: min(one.consumer for one in group))
    rows = []
    for group in groups[:SHOWN_SUBSTITUTIONS]:
        first = min(group, key=lambda one: one.consumer)
        source = "known" if first.producer is None else f"from #{first.producer}"
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        rows.append(("     ", first.kind, f"{_cut(first.recorded)} | {_cut(first.live)}", source,
                     f"in #{first.consumer} {safe(first.place)}{more}"))  # fmt: skip
    lines += columns(rows) if rows else []
    if len(groups) > SHOWN_SUBSTITUTIONS:
        lines.append(f"      {len(groups) - SHOWN_SUBSTITUTIONS} more: --json")
    for broken in shown.bindings.violations:
        lines.append(
            f"    not one to one   {_cut(broken.recorded)} | {_cut(broken.live)} at #{broken.exchange} "
            f"{safe(broken.place)}, but {_cut(broken.held)} stood there since #{broken.since}"
        )
    return lines


def _cut(value: str, limit: int = 40) -> str:
    shown = safe(value)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _root(one: Redriven, shown: Repetition, number: int, root: Root) -> list[str]:
    differences = shown.comparison.differences
    lines = [f"    ROOT {number}  explains {root.consequences + 1} of {count(differences, 'difference')}"]
    parts = [
        safe(root.request or root.template),
        f"lane {safe(root.lane)}" if root.lane else "",
        _sides(one, shown, root),
    ]
    lines.append("      " + "   ".join(part for part in parts if part))
    lines.append(f"      {safe(root.pointer):<28}  {_value(root.values[0])} | {_value(root.values[1])}   {root.kind}")
    if root.note:
        lines.append(f"      {safe(root.note)}")
    folded = ", ".join(folds_of(root.folded))
    return [*lines, f"      folded under it: {folded}"] if folded else lines


def _sides(one: Redriven, shown: Repetition, root: Root) -> str:
    """The recorded exchange and the live one where it is kept; of a state that no exchange led to, the snapshot."""
    if root.a is not None:
        recorded = f"{one.trace.address}#{root.a}"
    else:
        recorded = f"{one.trace.address}/s{root.snapshots[0]}" if root.snapshots else ""
    kept = live_address(shown, root.b)
    return safe(" | ".join(side for side in (recorded, kept) if side))


def _value(value: object) -> str:
    return "(absent)" if value is ABSENT else safe(short(value))


def _state(one: Redriven, shown: Repetition) -> list[str]:
    state = shown.comparison.state
    if state is None:
        return []
    when = f"after #{state.after[0]}" if state.after[0] else f"at the {state.when}"
    rows = f" ({count(state.rows, 'row')} in all)" if state.rows > 1 else ""
    where = f"{safe(state.name)} {safe(state.table)}/{safe(state.key)} {safe(state.pointer)}"
    values = f"{_value(state.values[0])} | {_value(state.values[1])}"
    return [f"    state    first differing snapshot: {when}, {where}  {values}{rows}"]


def _ablation(one: Redriven) -> list[str]:
    """What was held fast, how many repetitions were alike then, and what that says."""
    if one.ablation is None:
        return []
    rows = [("      ", "as it was", _tally(one.ablation.bare), "")]
    for knob in one.ablation.knobs:
        if knob.tally is None:
            rows.append(("      ", knob.name, "not available", safe(knob.why)))
            continue
        by_chance = f"by chance {knob.chance:.0%}" if knob.chance is not None else ""
        said = {True: f"removes it   {by_chance}", False: "does not remove it", None: f"perhaps   {by_chance}"}
        rows.append(("      ", knob.name, _tally(knob.tally), said[knob.removes]))
    return ["    ablate   one thing held fast at a time", *columns(rows), f"      {safe(one.ablation.told())}"]


def _tally(tally: Tally) -> str:
    alike = "all alike" if len(tally.outcomes) == 1 else told_histogram(tally.outcomes)
    return f"{alike}, {tally.different}/{tally.n} unlike the recording"


def _next(results: Sequence[Redriven], ask: Ask) -> list[str]:
    for one in results:
        shown = one.shown
        if shown is None or one.verdict != DIFFERENT:
            continue
        root = next(iter(shown.comparison.roots), None)
        at = f"#{root.a}" if root is not None and root.a else ""
        lines = [f"    next     replayproxy show {safe(one.trace.address)}{at}"]
        if shown.saved:
            lines.append(f"             replayproxy diff {safe(one.trace.address)} {safe(shown.saved)}")
        return lines
    if any(one.verdict != SAME for one in results):
        return ["    next     see to what left it undecided, then the same command again"]
    if ask.repeat == 1:
        return ["    next     the same with --repeat 5: one time the same is little evidence"]
    return [f"    next     replayproxy check {safe(results[0].trace.run.name)}"]
