"""`blame`: who last wrote a value, from write sets, snapshots and the values of other episodes of the instance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind as Form
from replayproxy.core.canonical import view
from replayproxy.core.opaque import is_opaque
from replayproxy.core.values import UNATTRIBUTED, Episode, Exchange
from replayproxy.detect.cells import Row
from replayproxy.detect.dirty import distinctive
from replayproxy.detect.lineage import Cell, Wrote, cell_at, held, overlapped, words, wrote
from replayproxy.detect.ops import PRESENCE, Effect, Op
from replayproxy.detect.states import envs_of
from replayproxy.detect.timeline import cell
from replayproxy.errors import UnknownAddress, WrongUsage
from replayproxy.session.blame_source import MOST_EPISODES, Recorded
from replayproxy.session.look import Found

MOST_STEPS = 20

BEFORE = "may have done it late: was answered before, and had done nothing by the snapshot after"
MEANWHILE = "ran when it came"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that wrote the value, or that shows that nobody did. `what`: wrote, perhaps, start, reset, made or
    unknown. `matches`: what it left is the value that was asked about (None: that is not known)."""

    what: str
    address: str
    told: str
    value: str = ""
    wall: int | None = None
    method: str = ""
    target: str = ""
    status: int | None = None
    matches: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True, kw_only=True)
class Blamed:
    """The answer. `verdict`: written, perhaps, start, reset or unknown; `by`: the address of the step it rests on."""

    address: str
    pointer: str
    cell: str = ""
    value: Any = None
    verdict: str = "unknown"
    by: str = ""
    why: str = ""
    steps: list[Step] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "address": self.address, "pointer": self.pointer, "cell": self.cell, "value": self.value,
            "verdict": self.verdict, "by": self.by, "why": self.why, "steps": [step.to_json() for step in self.steps],
        }  # fmt: skip


def blame(found: Found, pointer: str) -> Blamed:
    """Who last wrote what RUN/EPISODE#SEQ was shown at `pointer`, or what the state of RUN/EPISODE held at its end
    at `/TABLE/KEY/COLUMN`. Raises WrongUsage, UnknownAddress."""
    named = found.resolved
    if named.episode is None or named.snapshot is not None:
        raise WrongUsage(
            f"{named.text} shows no value", hint="blame RUN/EPISODE#SEQ POINTER, or RUN/EPISODE /TABLE/KEY/COLUMN"
        )
    if named.episode.name == UNATTRIBUTED:
        raise WrongUsage("traffic without an episode is never judged", hint=f"replayproxy show {named.text}")
    search = _Search(Recorded(found.reader, named.run))
    if named.seq is not None:
        return search.answer(named.episode, named.seq, pointer)
    return search.state(named.episode, pointer)


class _Search:
    """Looks through the episodes of one run, the newest first, and reads as few as it must."""

    def __init__(self, of: Recorded) -> None:
        self._of = of
        self._run = of.run

    # What is asked about

    def answer(self, episode: Episode, seq: int, pointer: str) -> Blamed:
        trace, extract = self._of.read(episode.name)
        exchange = trace.exchanges[seq - 1]
        told = Blamed(address=f"{self._run.name}/{episode.name}#{seq}", pointer=pointer)
        at = pointer.removeprefix("body")
        op = next((op for op in extract.ops if op.seq == seq), None)
        place = cell_at(op, at) if op is not None else None
        told.value = _shown(exchange, at, missing_is_error=place is None)
        if op is None or place is None:
            if op is not None and op.effect is not Effect.NONE and _sent(exchange, told.value):
                return _itself(told, exchange)
            return self._by_value(told, episode, exchange)
        of, value = place
        told.cell = str(of)
        if of.column != PRESENCE and told.value is None:
            told.value = value
        wanted = "absent" if op.absent is not None else words(value)
        told = self._trace_cell(told, episode, op.env, of, wanted, op)
        return self._by_value(told, episode, exchange) if told.verdict == "unknown" and not told.steps else told

    def state(self, episode: Episode, pointer: str) -> Blamed:
        parts = pointer.removeprefix("state").lstrip("/").split("/")
        if len(parts) < 2:
            raise WrongUsage(
                f"{pointer} names no row", hint="/TABLE/KEY or /TABLE/KEY/COLUMN; of an answer: RUN/EPISODE#SEQ"
            )
        table, key, column = (_plain(parts[0]), _plain(parts[1]), _plain("/".join(parts[2:])))
        told = Blamed(address=f"{self._run.name}/{episode.name}", pointer=pointer)
        shots = [s for s in self._of.shots(episode) if s.root is not None]
        for shot in reversed(shots):
            row = self._of.states.row(shot.root or b"", Row(table, key))
            if row is not None or shot is shots[0]:
                of = Cell(row=Row(table, key), column=column)
                told.cell, told.value = str(of), row if not column else (row or {}).get(column)
                env = next(iter(sorted(envs_of(self._run, shot.name))), "")
                return self._trace_cell(told, episode, env, of, cell(row, column), None)
        raise UnknownAddress(f"{told.address} has no snapshot of a state", hint="blame RUN/EPISODE#SEQ POINTER")

    # Back through the episodes

    def _trace_cell(self, told: Blamed, episode: Episode, env: str, of: Cell, wanted: str, read: Op | None) -> Blamed:
        until = read.end if read is not None else 2**63 - 1
        chain = self._of.before(episode, env)
        for depth, name in enumerate([episode.name, *chain]):
            timeline = self._of.timeline(name, env)
            for step in wrote(timeline, of, until if depth == 0 else 2**63 - 1):
                self._note(told, step, wanted, read if depth == 0 else None)
            begun = held(timeline, of)
            if told.verdict != "unknown" or len(told.steps) >= MOST_STEPS:
                return told
            if begun is None:
                continue  # no reading tells what it began with: the one before it may have left it
            if begun != wanted:
                told.why = (
                    told.why
                    or f"{name} began with {_words(begun)}, and nothing that was recorded wrote the value since"
                )
                return self._unknown(told)
            earlier = chain[depth] if depth < len(chain) else None
            if earlier is None:
                return self._start(told, name, env, f"the first recorded episode began with it: {name}", wanted)
            if not self._of.left(earlier, env, of, wanted):
                return self._reset(told, earlier, name, env, wanted)
        if len(chain) == MOST_EPISODES:
            told.why = told.why or f"it was there in each of {MOST_EPISODES} episodes before, and no further was looked"
        told.why = told.why or "no recorded write of the instance set it, and no snapshot says that it was there before"
        return self._unknown(told)

    def _note(self, told: Blamed, step: Wrote, wanted: str, read: Op | None) -> None:
        """Adds one write; the first that left the value decides, unless it is one of several."""
        matches = step.value == wanted
        late = read is not None and any(overlapped(op, read) and op is not read for op in step.ops)
        what = "wrote" if len(step.ops) == 1 and not late and step.late is None else "perhaps"
        how = "shown by snapshots" if step.source == "snapshot" else "by its own words"
        how += ", while it was read" if late else f", one of {len(step.ops)}" if len(step.ops) > 1 else ""
        for op in step.ops:
            address = f"{self._run.name}/{op.episode}#{op.seq}"
            if step.late is not None:
                how = BEFORE if op is step.late else MEANWHILE
            told.steps.append(Step(
                what=what, address=address, told=how, value=_words(step.value), wall=op.wall, method=op.method,
                target=op.target, status=op.status, matches=matches,
            ))  # fmt: skip
            if matches and told.verdict == "unknown":
                told.verdict, told.by = ("written" if what == "wrote" else "perhaps"), address
        if not step.ops:
            told.steps.append(Step(what="unknown", address="", told="changed, and no recorded write ran meanwhile",
                                   value=_words(step.value), matches=matches))  # fmt: skip
            if matches and not told.why:
                told.why = "the state changed to it while no recorded write ran: something writes past the proxy"

    def _start(self, told: Blamed, name: str, env: str, why: str, wanted: str) -> Blamed:
        shot = self._of.first(name, env)
        address = f"{self._run.name}/{name}/s{shot.n}" if shot is not None else f"{self._run.name}/{name}"
        told.steps.append(Step(what="start", address=address, told=why, value=_words(wanted), matches=True,
                               wall=shot.wall if shot else None))  # fmt: skip
        told.verdict, told.by = "start", address
        return told

    def _reset(self, told: Blamed, earlier: str, name: str, env: str, wanted: str) -> Blamed:
        """Not there when the episode before ended, there when this one begins: the reset made it, or the seed."""
        a, b = self._of.episodes[earlier], self._of.episodes[name]
        between = [
            op for op in self._of.resets() if (a.ended or 0) <= op.fwd <= b.opened or a.opened <= op.fwd <= b.opened
        ]
        if not between:
            return self._start(told, name, env, f"not there when {earlier} ended: set up anew for {name}", wanted)
        op = between[-1]
        told.steps.append(Step(
            what="reset", address=f"{self._run.name}/{UNATTRIBUTED}#{op.seq}", told=f"between {earlier} and {name}",
            value=_words(wanted), wall=op.wall, method=op.method, target=op.target, status=op.status, matches=True,
        ))  # fmt: skip
        told.verdict, told.by = "reset", told.steps[-1].address
        return told

    def _unknown(self, told: Blamed) -> Blamed:
        told.verdict = "unknown"
        return told

    # Values that no row holds

    def _by_value(self, told: Blamed, episode: Episode, exchange: Exchange) -> Blamed:
        """By the value itself, if it says enough: the first exchange before that sent it or was given it by a write."""
        text = told.value if isinstance(told.value, str) else None
        if text is None or not (is_opaque(text) or distinctive(text)):
            told.why = (
                told.why or "it stands in no cell of a state, and the value is too common to be followed by itself"
            )
            return told
        for name in [*reversed(self._of.before(episode, exchange.env)), episode.name]:
            trace, extract = self._of.read(name)
            writes = {op.seq for op in extract.ops if op.effect.value != "none"}
            for one in trace.exchanges:
                if name == episode.name and one.seq >= exchange.seq:
                    break
                if one.seq in writes and (_holds(one, text, sent=True) or _holds(one, text, sent=False)):
                    address = f"{self._run.name}/{name}#{one.seq}"
                    how = "sent it first" if _holds(one, text, sent=True) else "was answered with it first"
                    told.steps.append(Step(
                        what="made", address=address, told=how, value=text, wall=one.times.wall, matches=True,
                        method=one.request.method.decode("latin-1"),
                        target=one.request.target.decode("utf-8", "replace"),
                        status=one.response.status if one.response else None,
                    ))  # fmt: skip
                    told.verdict, told.by = "perhaps", address
                    return told
        told.why = told.why or "no recorded write before it sent the value or was answered with it"
        return told


def _shown(exchange: Exchange, pointer: str, *, missing_is_error: bool) -> Any:
    """What an answer holds at a pointer. Raises UnknownAddress where there is nothing, and nothing else explains it."""
    response = exchange.response
    seen = view(response.fields, response.body) if response is not None else None
    if seen is not None and seen.kind is Form.JSON:
        for path, leaf in jsonvalue.leaves(seen.value):
            if jsonvalue.pointer(*path) == pointer:
                return leaf
        below = [jsonvalue.pointer(*path) for path, _ in jsonvalue.leaves(seen.value)]
        if not missing_is_error or any(at.startswith(f"{pointer}/") for at in below):
            return None
        known = ", ".join(below[:6]) + (", .." if len(below) > 6 else "")
        raise UnknownAddress(
            f"the answer of #{exchange.seq} holds nothing at {pointer!r}", hint=f"there is {known or 'nothing'}"
        )
    if not missing_is_error:
        return None
    raise UnknownAddress(
        f"the answer of #{exchange.seq} is no JSON document", hint="blame follows members of JSON answers"
    )


def _sent(exchange: Exchange, value: Any) -> bool:
    """Whether the request's body holds the value."""
    seen = view(exchange.request.fields, exchange.request.body)
    if seen.kind is not Form.JSON or value is None:
        return False
    return any(jsonvalue.same(leaf, value) for _, leaf in jsonvalue.leaves(seen.value))


def _itself(told: Blamed, exchange: Exchange) -> Blamed:
    """A write that was answered with what it had sent."""
    told.steps.append(Step(
        what="wrote", address=told.address, told="sent it itself", value=str(told.value), wall=exchange.times.wall,
        method=exchange.request.method.decode("latin-1"), target=exchange.request.target.decode("utf-8", "replace"),
        status=exchange.response.status if exchange.response else None, matches=True,
    ))  # fmt: skip
    told.verdict, told.by = "written", told.address
    return told


def _holds(exchange: Exchange, text: str, *, sent: bool) -> bool:
    message = exchange.request if sent else exchange.response
    if message is None or message.body is None:
        return sent and text in exchange.request.target.decode("utf-8", "replace")
    seen = view(message.fields, message.body)
    if seen.kind is Form.JSON and any(leaf == text for _, leaf in jsonvalue.leaves(seen.value)):
        return True
    return sent and text in exchange.request.target.decode("utf-8", "replace")


def _plain(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


def _words(normal: str) -> str:
    """A value in its normal form as people write it."""
    return f'"{normal[1:]}"' if normal.startswith("'") else normal.removeprefix("=")
