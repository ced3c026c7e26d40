"""Roots and consequences: of all differences, in the order of time, those that follow from no earlier one.

A later difference follows from a root when (value) a value that differs there, or at what follows from it, stands in
it; (state) it reads a resource that the root's write, or a row that differs, belongs to; (control) it is a request
that comes later in a lane whose requests had changed; (same) it is the same change at the same place of the same kind
of request. Folding leans towards "explained": sending the episode again is what turns it into a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.comparison import Fold, Root
from replayproxy.core.difference import Difference
from replayproxy.core.renaming import row_id, singular, table_noun
from replayproxy.core.templates import is_parameter
from replayproxy.core.tokens import long_tokens
from replayproxy.core.treediff import ABSENT, INNER, type_name

type Hide = Callable[[Difference, Any], Any]

_TOLD = 64  # of one exchange so many differences feed the search for consequences; all are counted
_WORDS_OF = 4096  # and so many characters of one value


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One exchange pair (or one pair of snapshots) that differs, with what its differences may be traced by.

    `paths`: the paths it was about; `writes`: it may have changed state; `alone`: only one side has it.
    """

    a: int | None
    b: int | None
    lane: str
    template: str
    request: str
    differences: tuple[Difference, ...]
    paths: tuple[str, ...] = ()
    writes: bool = False
    state: str = ""
    snapshots: tuple[int, int] | None = None
    grouped: str = ""  # the template that it is counted under, where that is not its own

    @property
    def alone(self) -> bool:
        return not self.differences


@dataclass(slots=True)
class _Rooted:
    step: Step
    head: Difference | None
    count: int = 0
    folds: dict[tuple[str, str, str], list[Any]] = field(default_factory=dict)


class Folding:
    """Feed it steps in the order of time; `roots` says what came of them."""

    def __init__(self) -> None:
        self._roots: list[_Rooted] = []
        self._values: dict[Any, _Rooted] = {}
        self._same: dict[tuple[str, str, str], _Rooted] = {}
        self._paths: dict[tuple[str, ...], _Rooted] = {}  # every beginning of a tainted path, and the path itself
        self._whole: dict[tuple[str, ...], _Rooted] = {}
        self._things: dict[str, dict[str, _Rooted]] = {}  # noun -> key of one thing, or "" for all of them
        self._keys: dict[tuple[str, ...], _Rooted] = {}  # parts of row keys that are paths themselves, as of files
        self._lanes: dict[str, _Rooted] = {}

    def add(self, step: Step) -> None:
        """Takes a step with its unexplained differences (none: only one side has the exchange)."""
        traces = tuple(_traces(step))
        root, by = self._cause(step, traces)
        if root is None:
            root = _Rooted(step, min(step.differences, key=_weight, default=None))
            self._roots.append(root)
            by = "exchange"
            rest: Iterable[Difference | None] = [d for d in step.differences if d is not root.head]
        else:
            rest = step.differences or (None,)
        for difference in rest:
            _fold(root, step, difference, by)
        self._learn(step, root, traces)

    def _cause(self, step: Step, traces: Iterable[Any]) -> tuple[_Rooted | None, str]:
        asked = step.alone or any(d.asked for d in step.differences)
        for trace in traces:
            if trace in self._values:
                return self._values[trace], "value"
        if step.lane in self._lanes and asked:
            return self._lanes[step.lane], "control"
        for root in self._read(step):
            return root, "state"
        for difference in step.differences:
            if (key := _likeness(step, difference)) in self._same:
                return self._same[key], "same"
        return None, ""

    def _learn(self, step: Step, root: _Rooted, traces: Iterable[Any]) -> None:
        for trace in traces:
            self._values.setdefault(trace, root)
        for difference in step.differences:
            self._same.setdefault(_likeness(step, difference), root)
        if step.alone or any(d.asked and d.tokens[1] != "header" for d in step.differences):
            self._lanes.setdefault(step.lane, root)
        for path in step.paths if step.writes else ():
            place = _place(path)
            self._whole.setdefault(place, root)
            for end in range(1, len(place) + 1):
                self._paths.setdefault(place[:end], root)
            for noun, key in _things(place):
                self._things.setdefault(noun, {}).setdefault(key, root)
        for noun, key in _rows(step):
            self._things.setdefault(noun, {}).setdefault(key, root)
        for part in _parts_of_keys(step):
            self._keys.setdefault(part, root)

    def _read(self, step: Step) -> Iterator[_Rooted]:
        """The roots that changed a resource which this step is about."""
        for path in step.paths:
            place = _place(path)
            if place in self._paths:
                yield self._paths[place]
            for end in range(1, len(place)):
                if place[:end] in self._whole:
                    yield self._whole[place[:end]]
            if place in self._keys:
                yield self._keys[place]
            yield from self._thing(_things(place))
        yield from self._thing(_rows(step))

    def _thing(self, things: Iterable[tuple[str, str]]) -> Iterator[_Rooted]:
        for noun, key in things:
            known = self._things.get(noun, {})
            if key in known or "" in known:
                yield known.get(key) or known[""]
            elif key == "" and known:
                yield next(iter(known.values()))

    def roots(self, hide: Hide) -> tuple[Root, ...]:
        """`hide(difference, value)`: the value as it may be shown there."""
        return tuple(_as_root(rooted, hide) for rooted in self._roots)


def _fold(root: _Rooted, step: Step, difference: Difference | None, by: str) -> None:
    pointer = difference.general if difference is not None else ""
    root.count += 1
    entry = root.folds.setdefault((step.grouped or step.template, pointer, by), [0, step.a, step.b])
    entry[0] += 1


def _weight(difference: Difference) -> tuple[int, int]:
    """What a reader has to see first: what was asked, how it ended, its status, then the body, then headers. Of a
    conversation the message that came first, and its close last."""
    tokens = difference.tokens
    if tokens[0] == "websocket" and len(tokens) > 1:
        return (4, 0) if tokens[1] == "close" else (3, int(tokens[2]) if len(tokens) > 2 else 0)
    order = {"request": 0, "outcome": 1, "status": 2, "body": 3, "websocket": 3, "state": 3, "header": 4}
    return order.get(str(tokens[0]).partition("#")[0], 3), len(tokens)


def _likeness(step: Step, difference: Difference) -> tuple[str, str, str]:
    """The same change again: what it is for a type or a status, that there is one for a plain value."""
    sort = difference.kind
    if sort == "type":
        sort = f"{type_name(difference.a)} {type_name(difference.b)}"
    elif sort in ("status", "outcome"):
        sort = f"{difference.a} {difference.b}"
    return step.template, difference.general, sort


def _traces(step: Step) -> Iterator[Any]:
    """What the differing values of a step can be recognised by: long tokens by themselves, others with their name."""
    for difference in step.differences[:_TOLD]:
        for value in (difference.a, difference.b):
            if isinstance(value, str) and not difference.secret:
                yield from long_tokens(value[:_WORDS_OF])
        member = next((t for t in reversed(difference.tokens) if isinstance(t, str) and t != INNER), "")
        if difference.kind in ("value", "type") and not isinstance(difference.a, dict | list):
            yield member, _known_by(difference.a), _known_by(difference.b)
        elif difference.kind in ("added", "removed") and not difference.asked:
            value = difference.b if difference.a is ABSENT else difference.a
            yield difference.kind, member, _known_by(value)


def _known_by(value: Any) -> Any:
    """Equal exactly for one JSON value; None for none. A text speaks for itself."""
    return None if value is ABSENT else value if isinstance(value, str) else jsonvalue.canonical(value)


def _place(path: str) -> tuple[str, ...]:
    return tuple(segment for segment in path.split("?")[0].split("/") if segment)


def _things(place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What a path is about: (`deal`, `17`) and (`note`, "") for `/deals/17/notes`."""
    for segment, after in pairwise((*place, "")):
        if not is_parameter(segment):
            yield singular(segment), after if is_parameter(after) else ""


def _rows(step: Step) -> Iterator[tuple[str, str]]:
    for difference in step.differences:
        if difference.tokens[0] == "state":
            yield table_noun(str(difference.tokens[1])), row_id(str(difference.tokens[2]))


def _parts_of_keys(step: Step) -> Iterator[tuple[str, ...]]:
    """Of `files/root/work/a.ics` the parts that a request's path may be: (`root`, `work`), .., (`a.ics`,)."""
    for difference in step.differences[:_TOLD]:
        if difference.tokens[0] == "state" and "/" in str(difference.tokens[2]):
            key = _place(str(difference.tokens[2]))[-8:]
            yield key[-1:]
            yield from (key[start:end] for start in range(len(key)) for end in range(start + 2, len(key) + 1))


def _as_root(rooted: _Rooted, hide: Hide) -> Root:
    step, head = rooted.step, rooted.head
    folds = tuple(Fold(template=template, pointer=pointer, count=count, a=a, b=b, by=by)
                  for (template, pointer, by), (count, a, b) in rooted.folds.items())  # fmt: skip
    if head is None:
        kind, pointer, note = ("deleted" if step.b is None else "inserted"), "", ""
        values: tuple[Any, Any] = (ABSENT, ABSENT)
    else:
        kind, pointer, note = head.kind, head.pointer, _note(head)
        values = hide(head, _listed(head, head.a)), hide(head, _listed(head, head.b))
    if head is not None and head.tokens[0] == "state":
        kind = "state"
    return Root(a=step.a, b=step.b, pointer=pointer, values=values, kind=kind, consequences=rooted.count,
                folded=folds, lane=step.lane, template=step.template, request=step.request, note=note,
                state=step.state, snapshots=step.snapshots)  # fmt: skip


def _listed(difference: Difference, value: Any) -> Any:
    """Of an array in another order, the names of its elements: what they hold is not what differs."""
    name = _named_by(difference) if difference.kind == "order" else None
    return value if name is None else [item[name] for item in value]


def _named_by(difference: Difference) -> str | None:
    """The member that names the elements of both arrays."""
    items = [*difference.a, *difference.b]
    for name in ("id", "_id", "uuid", "key", "name"):
        if all(isinstance(item, dict) and isinstance(item.get(name), str | int) for item in items):
            return name
    return None


def _note(difference: Difference) -> str:
    """What there is to say of it, behind which message of a conversation it is about."""
    said = _said(difference)
    where = difference.note if "websocket" in difference.tokens[:2] and difference.kind != "renaming" else ""
    return "; ".join(filter(None, (where, said)))


def _said(difference: Difference) -> str:
    a, b = difference.a, difference.b
    if difference.kind == "order":
        name = _named_by(difference)
        by_name = name and all(value == sorted(value, key=str) for value in
                               (_listed(difference, difference.a), _listed(difference, difference.b)))  # fmt: skip
        return f"the same elements in another order{f', sorted by their fresh {name}' if by_name else ''}"
    if difference.kind == "renaming":
        return str(difference.note)
    if difference.secret:
        return "a credential; it differs and is not shown"
    if difference.kind == "type":
        words = {"string": "text", "boolean": "true/false"}
        return " became ".join(words.get(name, name) for name in (type_name(a), type_name(b)))
    if difference.kind == "value" and (a is None or b is None):
        return "null on one side"
    if difference.kind in ("added", "removed"):
        return "only in B" if difference.kind == "added" else "only in A"
    return ""
