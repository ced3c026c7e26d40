"""A condition that was not kept: two writes demanded one version of a row, both changed it, and both were done.

Whichever acted first made another version of the row, so the second should have been refused (412). Only a third write
that brought the old version back could explain it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from replayproxy.detect.lost_write import may_set
from replayproxy.detect.ops import PRESENCE, Op
from replayproxy.detect.race_claims import row_of
from replayproxy.detect.race_row import VERSIONS, version_of
from replayproxy.detect.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """`first` and `second` both demanded `version`; their answers bear others."""

    first: Op
    second: Op
    version: str


def ignored(timeline: Timeline) -> Iterator[Ignored]:
    """Conditions that were not kept, by row and version."""
    demanded: dict[tuple[str, str, str], list[Op]] = defaultdict(list)
    for op in timeline.writes.closed:
        version = demands(op)
        if version and op.ok and _bears(op) not in ("", version):
            demanded[op.env, op.target.partition("?")[0], version].append(op)
    for (_, _, version), ops in demanded.items():
        for first, second in pairwise(ops):
            if not _again(first, second) and not _restored(timeline, first, second):
                yield Ignored(first=first, second=second, version=version)


def demands(op: Op) -> str:
    """The version that a write demands: If-Match, or a member of its body; "" it demands none."""
    tag = op.condition.strip()
    if tag and tag != "*" and "," not in tag:
        return _bare(tag)
    for name in (*VERSIONS, "expected_version", "if_version", "base_version"):
        value = op.asked.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and op.method in ("PUT", "PATCH", "POST"):
            return _bare(str(value))
    return ""


def _bare(tag: str) -> str:
    """A version without what only a header puts around it: a body may name the same one."""
    return tag.strip().removeprefix("W/").strip('"')


def _bears(op: Op) -> str:
    """The version of what the write has made: of the kind that it demanded, where the answer bears one."""
    return _bare(op.tag if op.condition and op.tag else version_of(op))


def _again(first: Op, second: Op) -> bool:
    """Whether it may be one write, sent twice: a server may know that it has done it."""
    return bool(first.once and first.once == second.once) or (
        first.asked == second.asked and version_of(first) == version_of(second)
    )


def _restored(timeline: Timeline, first: Op, second: Op) -> bool:
    row = row_of(first)
    others: Sequence[Op] = [
        *timeline.writes.within(min(first.fwd, second.fwd), max(first.end, second.end)),
        *(op for op in timeline.writes.floating if op.fwd <= second.end),
    ]
    pair = {(first.episode, first.seq), (second.episode, second.seq)}
    for op in others:
        if (op.episode, op.seq) in pair or op.refused:
            continue
        if row is None or may_set(timeline, op, row, PRESENCE) or row in op.about:
            return True
    return False
