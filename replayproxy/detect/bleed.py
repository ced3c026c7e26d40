"""State bleed and dirty resets as findings: which exchange left what another episode began with, or was shown."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from replayproxy.core.values import UNATTRIBUTED
from replayproxy.detect.dirty import STRONG_BITS, Dirt, Sighting, Survivor, weight
from replayproxy.detect.finding import (
    Blame,
    Finding,
    Grade,
    Kind,
    Witness,
    exchange_address,
    plain,
    seconds,
    snapshot_address,
    witness,
)
from replayproxy.detect.flows import Flow
from replayproxy.detect.ops import Op
from replayproxy.detect.residue import is_counter
from replayproxy.detect.timeline import cell

SHOWN_ROWS = 20


def from_dirt(
    run: str, dirt: Dirt, seen: Sequence[Sighting], flows: Sequence[Flow], envs: Iterable[str]
) -> list[Finding]:
    """The findings of one dirty start: a bleed for each earlier episode whose rows were read, and the reset where no
    proven bleed tells all of it: rows that nobody is known to have written are another fault than what was left."""
    by_polluter: dict[str, list[Sighting]] = defaultdict(list)
    for sighting in seen:
        if sighting.survivor.writer is not None and sighting.survivor.by is not None:
            by_polluter[sighting.survivor.writer.episode].append(sighting)
    found = [_bleed(run, dirt, polluter, sights, flows) for polluter, sights in by_polluter.items()]
    if any(finding.grade is Grade.PROVEN for finding in found):
        rest = tuple(s for s in dirt.survivors if s.writer is None and not s.perhaps)
        if all(_counted_on(survivor, dirt) for survivor in rest):
            return found
        return [*found, _reset(run, replace(dirt, survivors=rest), (), envs)]
    return [*found, _reset(run, dirt, seen, envs)]


NUMBER = re.compile(r"-?\d{1,30}(?:\.\d{1,10})?\Z")


def _counted_on(survivor: Survivor, dirt: Dirt) -> bool:
    """Whether only numbers of the row grew, and it is as the episode before had left it: a sequence or a sum goes on
    with every row that was left. Values drawn anew are above the reference half of the time too."""
    before, after = survivor.change.before, survivor.change.after
    if before is None or after is None:
        return False
    if survivor.row in dirt.changed_since and not is_counter(survivor.change):
        return False
    pairs = [(cell(before, name), cell(after, name)) for name in survivor.differing]
    return all(NUMBER.match(x) and NUMBER.match(y) and Decimal(y) > Decimal(x) for x, y in pairs)


def _mine(dirt: Dirt, polluter: str) -> list[Survivor]:
    return [s for s in dirt.survivors if s.writer is not None and s.writer.episode == polluter]


def _bleed(run: str, dirt: Dirt, polluter: str, sights: Sequence[Sighting], flows: Sequence[Flow]) -> Finding:
    first = min(sights, key=lambda sight: (sight.seq, sight.survivor.change.before is not None))
    survivors = _mine(dirt, polluter)
    strong = dirt.unchanged_since == polluter or weight(survivors) >= STRONG_BITS
    grade = Grade.PROVEN if strong and not dirt.at_work else Grade.SUSPECTED
    survivor = first.survivor
    return Finding(
        kind=Kind.STATE_BLEED, sub="residue", grade=grade,
        blame=Blame.UNDECIDED if dirt.at_work else Blame.ENVIRONMENT,
        blame_reason="other episodes were at work on the instance" if dirt.at_work else "the reset left it",
        run=run, episode=dirt.episode, lane=first.lane, pointer=first.pointer,
        values=(_before(survivor, first), plain(first.value)),
        exchanges=(*_writers(run, survivor), witness(run, dirt.episode, first.exchange, "read",
                                                     pointer=first.pointer, value=first.value)),
        snapshots=(snapshot_address(run, dirt.episode, dirt.start),),
        assumptions=_assumptions(dirt),
        ruled_out=(
            f"own write: {dirt.episode} had not written the row before it read it",
            f"a constant of the task: {_agree(dirt)}",
            "running at the same time: " + (", ".join(dirt.at_work) or "none"),
        ),
        reproduce=_redrive(run, [polluter, dirt.episode], dirt),
        title=f"{dirt.episode} read what {polluter} had left in {survivor.change.table}/{survivor.change.key}",
        cannot_say="whether the reward depends on it",
        times=seconds(
            write=survivor.writer.at if survivor.writer else None, start=(dirt.start.begun, dirt.start.done),
            read=first.exchange.times.fwd,
        ),
        effect={
            "from": polluter, "rows": _rows(survivors), "reads": len({sight.seq for sight in sights}),
            "values": sum(flow.made.episode == polluter for flow in flows),
            **_polluters(run, survivors), **_start(dirt),
        },
        scope=_scope(dirt, sights),
        covers=frozenset((dirt.episode, sight.seq) for sight in sights), count=len({s.seq for s in sights}),
        at=first.exchange.times.head,
    )  # fmt: skip


def _reset(run: str, dirt: Dirt, seen: Sequence[Sighting], envs: Iterable[str]) -> Finding:
    first = min(dirt.survivors, key=_told_first, default=None)
    names = sorted({s.writer.episode for s in dirt.survivors if s.writer is not None})
    grade = Grade.SUSPECTED if dirt.at_work or dirt.only_counters else Grade.PROVEN
    witnesses = tuple(_writers(run, first)) if first is not None else ()
    if seen:
        sight = seen[0]
        witnesses += (
            witness(run, dirt.episode, sight.exchange, "read", pointer=sight.pointer, value=sight.value),
        )  # fmt: skip
    if dirt.reset is not None:
        witnesses += (witness(run, UNATTRIBUTED, dirt.reset, "reset"),)
    column = next((name for name in first.differing if name), "") if first is not None else ""
    snapshots = (dirt.start, *([dirt.settled] if dirt.settled is not None else []))
    return Finding(
        kind=Kind.DIRTY_RESET, sub=_sub(dirt, names), grade=grade,
        blame=Blame.UNDECIDED if dirt.at_work else Blame.ENVIRONMENT,
        blame_reason="other episodes were at work on the instance" if dirt.at_work else "task and seed are the same",
        run=run, episode=dirt.episode, lane="",
        pointer=_pointer(first, column) if first is not None else "",
        values=_values(first, column), exchanges=witnesses,
        snapshots=tuple(snapshot_address(run, dirt.episode, one) for one in snapshots), assumptions=_assumptions(dirt),
        ruled_out=(
            "clocks, fresh ids and the order of lists: taken out by one consistent renaming",
            f"another start of this task and seed: {_agree(dirt)}",
            "running at the same time: " + (", ".join(dirt.at_work) or "none"),
        ),
        reproduce=_redrive(run, [*names[:1], dirt.episode], dirt),
        title=_reset_title(dirt, names), cannot_say="whether the agent was influenced by it",
        times=seconds(
            write=first.writer.at if first is not None and first.writer is not None else None,
            start=(dirt.start.begun, dirt.start.done),
            settled=(dirt.settled.begun, dirt.settled.done) if dirt.settled is not None else None,
            reset=(dirt.reset.times.fwd, dirt.reset.times.up_end) if dirt.reset is not None else None,
        ),
        effect={
            "from": names, "rows": _rows(dirt.survivors), "row_count": len(dirt.survivors), "envs": sorted(envs),
            **_polluters(run, dirt.survivors), **_start(dirt),
        },
        scope=_scope(dirt, seen),
        covers=frozenset((dirt.episode, seq) for seq in {*(sight.seq for sight in seen), *dirt.before_settled}),
        count=max(1, len(dirt.survivors)),
        at=dirt.start.begun,
    )  # fmt: skip


def _sub(dirt: Dirt, names: Sequence[str]) -> str:
    if dirt.settled is not None:
        return "unsettled"
    if dirt.unchanged_since is not None:
        return "no-op"
    if dirt.only_counters:
        return "counter"
    return "residue" if names else "content"


def _reset_title(dirt: Dirt, names: Sequence[str]) -> str:
    if dirt.too_much:
        return f"{dirt.episode} began with quite another state than the other starts of its task and seed"
    rows = f"{len(dirt.survivors)} {'row' if len(dirt.survivors) == 1 else 'rows'}"
    left = f", left by {', '.join(names)}" if names else ""
    if dirt.settled is not None:
        return f"{dirt.episode} began before its reset had ended: {rows} came right later, without a write"
    return f"{dirt.episode} began with {rows} unlike the other starts of its task and seed{left}"


def _told_first(survivor: Survivor) -> tuple[bool, bool, str, str]:
    return survivor.by is None, survivor.change.before is not None, survivor.change.table, survivor.change.key


def _writers(run: str, survivor: Survivor) -> Iterator[Witness]:
    for written in (survivor.maker, survivor.writer):
        if written is not None and written.by is not None:
            yield of_op(run, written.by, "write")


def of_op(run: str, op: Op, role: str) -> Witness:
    return Witness(
        address=exchange_address(run, op.episode, op.seq), role=role, method=op.method, target=op.target,
        status=op.status, lane=op.lane, fwd=op.fwd, up_end=op.answered, wall=op.wall,
    )  # fmt: skip


def _before(survivor: Survivor, sight: Sighting) -> object:
    """What the reference has in place of what was read; None: nothing."""
    before = survivor.change.before
    column = sight.pointer.rpartition("/")[2]
    return plain(before.get(column)) if isinstance(before, dict) else None


def _values(first: Survivor | None, column: str) -> tuple[object, object]:
    if first is None:
        return None, None
    before, after = first.change.before, first.change.after
    if isinstance(before, dict) and isinstance(after, dict) and column:
        return plain(before.get(column)), plain(after.get(column))
    return plain(before), plain(after)


def _pointer(survivor: Survivor, column: str) -> str:
    whole = survivor.change.before is None or survivor.change.after is None
    at = f"/{survivor.change.table}/{survivor.change.key}"
    return at if whole or not column else f"{at}/{column}"


def _rows(survivors: Sequence[Survivor]) -> list[str]:
    return [f"{s.change.table}/{s.change.key}" for s in survivors[:SHOWN_ROWS]]


def _agree(dirt: Dirt) -> str:
    reference = dirt.reference
    if reference.given:
        return "the reference that was named begins without it"
    if not reference.common:
        return f"no state is that of more than half of {reference.starts} starts; compared with the most frequent one"
    return f"{reference.agree} of {reference.starts} starts begin without it"


def _assumptions(dirt: Dirt) -> tuple[str, ...]:
    told = ", ".join(f"{name} {value}" for name, value in _inputs(dirt).items())
    return (
        f"snapshots {dirt.series} show the whole state that the agent can see",
        "equal task and seed mean an equal start" + (f"; both were {told}" if told else ""),
    )


def _inputs(dirt: Dirt) -> dict[str, Any]:
    """What both starts were asked to be."""
    task, seed, commit = dirt.group
    named = {"task": task, "seed": seed, "env_commit": commit or None}
    return {name: value for name, value in named.items() if value is not None}


def _start(dirt: Dirt) -> dict[str, Any]:
    return {
        "inputs": _inputs(dirt), "roots": [dict(root) for root in dirt.roots],
        "start_root": dirt.start.root.hex()[:16] if dirt.start.root is not None else None,
    }  # fmt: skip


def _polluters(run: str, survivors: Sequence[Survivor]) -> dict[str, Any]:
    """Who left what is there, for whoever sends it again: the episodes, and their exchanges."""
    named = [s.writer.by for s in survivors if s.writer is not None and s.writer.by is not None]
    addresses = dict.fromkeys(exchange_address(run, op.episode, op.seq) for op in named)
    return {
        "episodes": sorted({s.writer.episode for s in survivors if s.writer is not None}),
        "writes": list(addresses)[:SHOWN_ROWS],
    }  # fmt: skip


def _scope(dirt: Dirt, seen: Sequence[Sighting]) -> dict[str, Any]:
    named = sum(survivor.writer is not None for survivor in dirt.survivors)
    return {
        "snapshots": dirt.series, "rows_with_a_known_writer": [named, len(dirt.survivors)],
        "rows_seen": len({sight.survivor.row for sight in seen}),
    }  # fmt: skip


def _redrive(run: str, episodes: Sequence[str], dirt: Dirt) -> str:
    env = dirt.start.env or dirt.series.partition(".")[0]
    return f"replayproxy redrive {' '.join(f'{run}/{name}' for name in episodes)} --env {env}=URL"
