"""User rules in a replay: what a rule takes out of a request before its key is made.

`ignore` drops the place, `mask` keeps that it is there and its type, `order-insensitive` sorts an array (or the values
of one name), `bind` lets the value stand for another, injectively. A rule speaks of one kind of request by `at`, and
never of the environment, the method, or a lane. Rules come into play only where nothing equal is left to be served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

from replayproxy.core import jsonvalue
from replayproxy.core.callids import replay_key
from replayproxy.core.canonical import KEY_FIELDS, Kind, body_of, split_query, split_target, view
from replayproxy.core.nonces import HOLE, Shape, Slot, shape_of
from replayproxy.core.rules import COMPARING, Rule, compiled, is_under
from replayproxy.core.values import Fields, Request

type Tokens = tuple[str, ...]
type Touched = tuple[str, str, bytes]
"""A rule's name, the place, and what stood there."""

_DROP: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """A request as the rules leave it, and what they took."""

    shape: Shape
    touched: tuple[Touched, ...]

    def used(self, other: Relaxed) -> list[str]:
        """The rules without which the two would not be one."""
        mine, theirs = (set(side.touched) for side in (self, other))
        return sorted({name for name, _, _ in mine ^ theirs})


class Relaxation:
    """The rules of one replay. What of them was used is counted by the replayer."""

    def __init__(self, rules: Sequence[Rule], today: date | None = None) -> None:
        spoken = [rule for rule in rules if rule.action in COMPARING or rule.action == "repeat"]
        self.rules = tuple(rule for rule in spoken if rule.applies(today))
        self.expired = tuple(rule for rule in spoken if not rule.applies(today))
        self._compiled = [(at, _of_request(places), rule) for rule in self.rules for at, places in [compiled(rule)]]
        self.found: set[str] = set()
        """Rules whose place was in a request, recorded or live, whether or not they were needed."""

    def __bool__(self) -> bool:
        return bool(self.rules)

    def repeats(self, request: Request) -> Rule | None:
        """The rule by which an exhausted request of this kind is answered once more."""
        line = _line(request)
        return next((rule for at, _, rule in self._compiled if rule.action == "repeat" and at.match(line)), None)

    def relaxed(self, env: str, request: Request) -> Relaxed | None:
        """None where no rule speaks of requests of this kind. Parses the body."""
        line = _line(request)
        fit = [(places, rule) for at, places, rule in self._compiled if at.match(line)]
        self.found.update(rule.name for _, rule in fit if rule.action == "repeat")
        if not any(rule.action in COMPARING for _, rule in fit):
            return None
        work = _Work(request)
        for places, rule in fit:
            if rule.action in COMPARING and places:
                work.apply(rule, places)
        self.found.update(name for name, _, _ in work.touched)
        changed = work.request()
        shape = shape_of(env, changed) or Shape(replay_key(env, changed)[0], ())
        slots = tuple(sorted((*shape.slots, *work.slots), key=lambda slot: slot.place))
        return Relaxed(shape=Shape(shape.key, slots), touched=tuple(work.touched))


def _of_request(places: Sequence[Tokens]) -> tuple[Tokens, ...]:
    """The request's places. In a replay `body/x` is one, too: a miss says so, and the answer is not compared."""
    own = [place[1:] if place[:1] == ("request",) else place for place in places]
    told = [place[:1] for place in places]
    return tuple(
        dict.fromkeys(place for place, (head,) in zip(own, told, strict=True) if head in ("request", "body", "header"))
    )


def _line(request: Request) -> str:
    path, _ = split_target(request.target)
    return f"{request.method.decode('latin-1')} {path.decode('utf-8', 'backslashreplace')}"


class _Work:
    """One request while rules are applied to it, one after the other."""

    def __init__(self, request: Request) -> None:
        self._request = request
        path, self._query = split_target(request.target)
        self._path = path.split(b"/")
        self._fields: Fields = request.fields
        self._seen = view(request.fields, request.body)
        self._tree: Any = self._seen.value
        self.touched: list[Touched] = []
        self.slots: list[Slot] = []

    def apply(self, rule: Rule, places: Sequence[Tokens]) -> None:
        for place in places:
            kind = place[0] if place else "**"
            if kind in ("path", "*", "**"):
                self._apply_path(rule, place)
            if kind in ("query", "*", "**") and self._query:
                self._query = self._pairs(rule, place, "query", self._query)
            if kind in ("header", "*", "**"):
                self._apply_fields(rule, place)
            if kind in ("body", "*", "**"):
                self._apply_body(rule, place)

    def request(self) -> Request:
        path = b"/".join(self._path)
        target = path if self._query is None else path + b"?" + self._query
        fields, body = self._fields, self._request.body
        if self._tree is not self._seen.value:
            data = self._tree if isinstance(self._tree, bytes) else jsonvalue.canonical(self._tree)
            fields = tuple(field for field in fields if field[0].lower() != b"content-encoding")
            body = body_of(data)
        return replace(self._request, target=target, fields=fields, body=body)

    def _taken(self, rule: Rule, tokens: Tokens, value: bytes, text: str, mask: str) -> str | None:
        """What stands there now; None: nothing. `text` is the value as it binds."""
        place = "/".join(tokens)
        self.touched.append((rule.name, place, value))
        if rule.action == "ignore":
            return None
        if rule.action == "bind":
            self.slots.append(Slot(place, text, rule.name))
            return HOLE
        return mask

    def _apply_path(self, rule: Rule, place: Tokens) -> None:
        for index in range(1, len(self._path)):
            tokens = ("path", str(index - 1))
            if is_under(place, tokens):
                raw = self._path[index]
                self._path[index] = (self._taken(rule, tokens, raw, unquote(raw.decode("latin-1")), "*") or "").encode()

    def _pairs(self, rule: Rule, place: Tokens, lead: str, raw: bytes) -> bytes:
        out: list[tuple[bytes, bytes | None]] = []
        for name, value in split_query(raw):
            tokens = (lead, unquote(name.decode("latin-1").replace("+", " ")))
            if not is_under(place, tokens) or rule.action == "order-insensitive":
                out.append((name, value))
                continue
            text = unquote((value or b"").decode("latin-1").replace("+", " "))
            new = self._taken(rule, tokens, value or b"", text, "*")
            if new is not None:
                out.append((name, None if value is None else quote(new).encode()))
        if rule.action == "order-insensitive":
            named = [pair for pair in out if is_under(place, (lead, unquote(pair[0].decode("latin-1"))))]
            if named:
                self.touched.append((rule.name, lead, b"&".join(value or b"" for _, value in named)))
                queue = iter(sorted(named, key=lambda pair: (pair[0], pair[1] or b"")))
                out = [pair for pair in out if pair not in named] + list(queue)
        return b"&".join(name if value is None else name + b"=" + value for name, value in out)

    def _apply_fields(self, rule: Rule, place: Tokens) -> None:
        kept: list[tuple[bytes, bytes]] = []
        for name, value in self._fields:
            tokens = ("header", name.lower().decode("latin-1"))
            if name.lower() not in KEY_FIELDS or not is_under(place, tokens):
                kept.append((name, value))
                continue
            new = self._taken(rule, tokens, value, value.decode("latin-1"), "*")
            if new is not None:
                kept.append((name, new.encode("latin-1")))
        self._fields = tuple(kept)

    def _apply_body(self, rule: Rule, place: Tokens) -> None:
        if self._seen.kind in (Kind.MISSING, Kind.EMPTY):
            return
        if is_under(place, ("body",)):
            new = self._taken(rule, ("body",), self._seen.key, "", "*") if rule.action in ("ignore", "mask") else "-"
            if new != "-":
                self._tree = b"" if new is None else b"*"
        elif self._seen.kind is Kind.JSON and not isinstance(self._tree, bytes):
            self._tree = self._node(rule, place, self._tree, ("body",))
        elif self._seen.kind is Kind.FORM:
            raw = self._tree if isinstance(self._tree, bytes) else _joined(self._tree)
            new_form = self._pairs(rule, place, "body", raw)
            if new_form != raw:
                self._tree = new_form

    def _node(self, rule: Rule, place: Tokens, node: Any, tokens: Tokens) -> Any:
        """The tree with the rule applied; the same object where it touches nothing in it."""
        if is_under(place, tokens):
            return self._value(rule, node, tokens)
        if isinstance(node, dict):
            members = {
                name: self._node(rule, place, item, (*tokens, jsonvalue.escaped(name))) for name, item in node.items()
            }
            if all(members[name] is item for name, item in node.items()):
                return node
            return {name: item for name, item in members.items() if item is not _DROP}
        if isinstance(node, list):
            items = [self._node(rule, place, item, (*tokens, str(index))) for index, item in enumerate(node)]
            if all(new is old for new, old in zip(items, node, strict=True)):
                return node
            return [item for item in items if item is not _DROP]
        return node

    def _value(self, rule: Rule, node: Any, tokens: Tokens) -> Any:
        scalar = not isinstance(node, dict | list)
        if (rule.action == "order-insensitive" and not isinstance(node, list)) or (
            rule.action == "bind" and not scalar
        ):
            return node
        raw = jsonvalue.canonical(node)
        if rule.action == "order-insensitive":
            self.touched.append((rule.name, "/".join(tokens), raw))
            return sorted(node, key=jsonvalue.canonical)
        text = node if isinstance(node, str) else raw.decode("utf-8", "surrogatepass")
        new = self._taken(rule, tokens, raw, text, "")
        if new is None:
            return _DROP
        return {"~bound" if new == HOLE else "~masked": _kind(node)}


def _kind(node: Any) -> str:
    kinds: tuple[tuple[Callable[[Any], bool], str], ...] = (
        (lambda one: one is None, "null"),
        (lambda one: isinstance(one, bool), "boolean"),
        (lambda one: isinstance(one, int | Decimal), "number"),
        (lambda one: isinstance(one, str), "string"),
        (lambda one: isinstance(one, list), "array"),
    )
    return next((name for fits, name in kinds if fits(node)), "object")


def _joined(pairs: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    return b"&".join(name if value is None else name + b"=" + value for name, value in pairs)
