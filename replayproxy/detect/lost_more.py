"""Findings of additions that do not add up, conditions that were not kept, writes that did not see each other."""

from __future__ import annotations

from decimal import Decimal

from replayproxy.core import jsonvalue
from replayproxy.detect import graph
from replayproxy.detect.finding import Blame, Finding, Grade, Kind, plain, seconds
from replayproxy.detect.lost_addition import Missing
from replayproxy.detect.lost_condition import Ignored
from replayproxy.detect.lost_return import Returned
from replayproxy.detect.lost_writeback import PutBack
from replayproxy.detect.ops import Op
from replayproxy.detect.race_findings import Told, interval, pointer
from replayproxy.detect.race_row import Crossed, version_of

SEEN_OFTEN = 2
"""An action that was seen alone this often does what it did then."""


def lost_addition(told: Told, found: Missing, last: Op) -> Finding:
    """An addition that is not in the number, or one more than was acknowledged; it falls on the last of them."""
    window = found.window
    doubt = told.covered()
    if not doubt and found.agreed < SEEN_OFTEN:
        times = "only once" if found.agreed else "never"
        doubt = f"what the action adds: it was {times} seen to, beside its name"
    doubt = doubt or found.doubt
    ops = (*window.done, *window.open)
    others = [op for op in ops if op is not last]
    failed = [op for op in window.open if op.status is not None]
    return Finding(
        kind=Kind.RACE if found.twice else Kind.LOST_UPDATE, sub="applied-twice" if found.twice else "lost-addition",
        grade=Grade.SUSPECTED if doubt else Grade.PROVEN,
        blame=Blame.INFRASTRUCTURE if found.twice and not failed else Blame.ENVIRONMENT,
        blame_reason=_blamed(found, failed), run=told.run, episode=told.episode, lane=last.lane,
        pointer=pointer(window.row, window.column), values=(plain(found.expected), plain(window.found)),
        exchanges=tuple(told.witness(op, "write") for op in (*others[-4:], last)),
        snapshots=told.at([window.before, window.after]),
        assumptions=(
            f"each of these adds to {window.column} what it asks, as it did {found.agreed} times alone", told.assumed(),
        ),
        ruled_out=("another write of this number: none between the snapshots", "one sent again under its key: none"),
        reproduce=told.reproduce(last.env), title=_sum_title(found),
        cannot_say="which of them is " + ("the one too many" if found.twice else "missing")
        + (f"; {doubt}" if doubt else ""),
        times={k: v for k, v in seconds(rival=interval(others[-1]), write=interval(last)).items() if v is not None},
        effect={"before": plain(window.was), "granted": len(window.done), "open": len(window.open)},
        scope=told.scope, covers=frozenset({(last.episode, last.seq)}), at=last.fwd,
    )  # fmt: skip


def _blamed(found: Missing, failed: list[Op]) -> str:
    if not found.twice:
        return "it had acknowledged each addition"
    return f"it had done what it answered with {failed[0].status}" if failed else "an answer was lost on its way"


def _sum_title(found: Missing) -> str:
    window = found.window
    where = f"{window.row.table}/{window.row.key} {window.column}"
    told = f"{len(window.done)} additions were acknowledged"
    shown, due = _short(window.found), _short(found.expected)
    if found.twice:
        return f"{where} is {shown} and not {due}: what was answered as failed was done, and done again"
    return f"{where} is {shown} and not {due}, although {told}"


def _short(value: Decimal) -> str:
    return jsonvalue.number_text(value)


def ignored_condition(told: Told, found: Ignored, *, strict: bool) -> Finding:
    """Two writes that demanded one version; `strict`: by If-Match, or of an environment that refuses such demands."""
    second, doubt = found.second, told.covered()
    if not doubt and not strict:
        doubt = "whether the environment reads the version in a body as a demand"
    return Finding(
        kind=Kind.LOST_UPDATE, sub="condition-ignored", grade=Grade.SUSPECTED if doubt else Grade.PROVEN,
        blame=Blame.ENVIRONMENT, blame_reason="it changed a version that was not the one demanded",
        run=told.run, episode=told.episode, lane=second.lane, pointer="header/if-match" if second.condition else "",
        values=(412, second.status),
        exchanges=(
            told.witness(found.first, "write", "header/etag", version_of(found.first)),
            told.witness(second, "write", "header/etag", version_of(second)),
        ),
        snapshots=(), assumptions=("a version names one content of the row", told.assumed()),
        ruled_out=("a third write that brought the version back: none", "one write sent again: none"),
        reproduce=told.reproduce(second.env),
        title=f"{second.method} {second.target} and another both demanded version {found.version}, and both were done",
        cannot_say="what of the first write is left" + (f"; {doubt}" if doubt else ""),
        times=seconds(rival=interval(found.first), write=interval(second)),
        effect={"demanded": found.version}, scope=told.scope,
        covers=frozenset({(second.episode, second.seq)}), at=second.fwd,
    )  # fmt: skip


def crossed_writes(told: Told, found: Crossed, last: Op) -> Finding:
    """Writes of one row of which none saw the others."""
    doubt = told.covered()
    if not doubt and not found.same_version:
        doubt = "whether one of them is lost: it was overwritten before a snapshot showed the row"
    first = next(op for op in found.ops if op is not last)
    return Finding(
        kind=Kind.LOST_UPDATE, sub=found.anomaly.name, grade=Grade.SUSPECTED if doubt else Grade.PROVEN,
        blame=Blame.ENVIRONMENT, blame_reason="each was answered with a row without the other's change",
        run=told.run, episode=told.episode, lane=last.lane, pointer=pointer(found.row, ""),
        values=("one after the other", "neither after the other"),
        exchanges=tuple(told.witness(op, "write") for op in (first, last)), snapshots=told.at([found.before]),
        assumptions=("an answer shows the row as it was when the write took effect, or later", told.assumed()),
        ruled_out=("another write of these columns: none beside them",) + (
            ("two versions: both answers bear the same one",) if found.same_version else ()),
        reproduce=told.reproduce(last.env),
        title=f"two writes of {found.row.table}/{found.row.key} did not see each other ({', '.join(found.columns)})",
        cannot_say="which of them is left" + (f"; {doubt}" if doubt else ""),
        times=seconds(rival=interval(first), write=interval(last)),
        effect={"cycle": circle(found)}, scope=told.scope, covers=frozenset({(last.episode, last.seq)}), at=last.fwd,
    )  # fmt: skip


def put_over(told: Told, found: Returned) -> Finding:
    """An acknowledged change that is gone in a later version of the row; it falls on the write that shows so."""
    op, over, doubt = found.by, found.over, told.covered()
    doubt = doubt or "whether the answer shows the row as it was left, or as it had been read before"
    at = jsonvalue.pointer(found.column)
    due, shown = over.said.get(found.column, over.asked.get(found.column)), op.said.get(found.column)
    return Finding(
        kind=Kind.LOST_UPDATE, sub="lost-update", grade=Grade.SUSPECTED, blame=Blame.ENVIRONMENT,
        blame_reason="it had acknowledged the change", run=told.run, episode=told.episode, lane=op.lane,
        pointer=pointer(found.row, found.column), values=(plain(due), plain(shown)),
        exchanges=(told.witness(over, "witness", at, due), told.witness(op, "write", at, shown)), snapshots=(),
        assumptions=(
            "a version counts the changes of a row", "a PATCH sets the members that it names and no others",
            told.assumed(),
        ),
        ruled_out=("another write that brought the value back: none can have acted between the two versions",),
        reproduce=told.reproduce(op.env),
        title=f"{op.method} {op.target} put back {found.column}, which {over.method} {over.target} had just changed",
        cannot_say=f"what is left of it: it was overwritten before a snapshot showed the row; {doubt}",
        times=seconds(rival=interval(over), write=interval(op)), effect={"versions": list(found.versions)},
        scope=told.scope, covers=frozenset({(op.episode, op.seq)}), at=op.fwd,
    )  # fmt: skip


def torn_read(told: Told, found: Crossed) -> Finding:
    """A read that shows one write half: one of its columns and not the other."""
    reader, doubt = found.reader, told.covered()
    assert reader is not None
    writer = next(op for op in found.ops if op is not reader)
    return Finding(
        kind=Kind.RACE, sub="torn-read", grade=Grade.SUSPECTED if doubt else Grade.PROVEN, blame=Blame.ENVIRONMENT,
        blame_reason="it showed a row that never was", run=told.run, episode=told.episode, lane=reader.lane,
        pointer=pointer(found.row, ""), values=("all of the write or nothing of it", "a part of it"),
        exchanges=(told.witness(writer, "write"), told.witness(reader, "read")), snapshots=told.at([found.before]),
        assumptions=("one request changes a row at once, and one read shows it at once", told.assumed()),
        ruled_out=("another write of these columns: none beside them",),
        reproduce=told.reproduce(reader.env),
        title=f"{reader.target} shows half of {writer.method} {writer.target} ({', '.join(found.columns)})",
        cannot_say="which of the two was not done at once" + (f"; {doubt}" if doubt else ""),
        times=seconds(write=interval(writer), read=interval(reader)), effect={"cycle": circle(found)},
        scope=told.scope, covers=frozenset({(reader.episode, reader.seq)}), at=reader.fwd,
    )  # fmt: skip


def circle(found: Crossed) -> str:
    names = {edge.a: f"#{op.seq}" for edge, op in zip(found.anomaly.cycle, found.ops, strict=True)}
    return graph.told(found.anomaly, lambda number: names[number])


def written_back(told: Told, found: PutBack) -> Finding:
    """A row put back whole over another's change; it falls on who put it back, and is at most suspected."""
    op = found.write
    due = found.rival.said.get(found.column, found.rival.asked.get(found.column))
    return Finding(
        kind=Kind.LOST_UPDATE, sub="G-single", grade=Grade.SUSPECTED,
        blame=Blame.AGENT if found.versioned else Blame.UNDECIDED,
        blame_reason="the read gave a version, and the write demanded none" if found.versioned
        else "nothing that was read could be demanded",
        run=told.run, episode=told.episode, lane=op.lane, pointer=pointer(found.row, found.column),
        values=(plain(due), plain(op.asked.get(found.column))),
        exchanges=(
            told.witness(found.read, "read", jsonvalue.pointer(found.column), op.asked.get(found.column)),
            told.witness(found.rival, "witness", jsonvalue.pointer(found.column), due),
            told.witness(op, "write", jsonvalue.pointer(found.column), op.asked.get(found.column)),
        ),
        snapshots=(), assumptions=("what a PUT repeats of what was read, it does not mean to change", told.assumed()),
        ruled_out=("overlap of the rival's write with either: none",), reproduce=told.reproduce(op.env),
        title=f"{op.method} {op.target} put back {found.column}, which another had changed since it was read",
        cannot_say="whether the old value was meant",
        times=seconds(read=interval(found.read), rival=interval(found.rival), write=interval(op)),
        effect={"cycle": f"#{found.read.seq} -rw {found.column}-> #{found.rival.seq} -ww {found.column}-> #{op.seq}"},
        scope=told.scope, covers=frozenset({(op.episode, op.seq)}), at=op.fwd,
    )  # fmt: skip
