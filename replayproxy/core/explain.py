"""What explains a difference. Nothing else does: whatever is left is a finding.

| class | explained when |
|---|---|
| `clock` | both are instants of one form and fit the runs' own exchanges (see `clock`), or how long those took |
| `fresh-id` | at least 46 bits of chance, or the id of a thing, under one injective renaming in the whole episode |
| `counter` | a number that serves as an identifier (path, Location, key of a row), renamed likewise; nothing else |
| `validator` | ETag, Last-Modified and their conditions, under one injective renaming for each URI |
| `authority` | the environment's own address |
| `jitter` | floating point noise: below 1e-9 of the value, and only in numbers of 15 digits or more |
| `rule:NAME` | a configured rule with a reason |

A text is taken apart into tokens; each that differs needs an explanation, and the words between must be equal. A
member named `hash`, `digest`, `sha256` and the like is made from content, so it is never a fresh id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from replayproxy.core.clock import Clock, Span, is_elapsed
from replayproxy.core.difference import Difference
from replayproxy.core.renaming import (
    Identifiers,
    Names,
    Renaming,
    Seeded,
    is_digest,
    owners,
    row_id,
    singular,
    table_noun,
)
from replayproxy.core.rules import RuleBook
from replayproxy.core.spelling import is_jitter, is_number, is_url, own_pattern
from replayproxy.core.templates import is_parameter
from replayproxy.core.times import Instant, parse_number, parse_text
from replayproxy.core.tokens import FRESH_BITS, alphabet, bits, fresh_alike, short_form, skeleton
from replayproxy.core.validators import Validators

type Classes = frozenset[str]

_CLOCK, _FRESH, _COUNTER = frozenset({"clock"}), frozenset({"fresh-id"}), frozenset({"counter"})
_MASKING = frozenset({"ignore", "mask"})
_ORDER = frozenset({"order-insensitive"})
_BIND = frozenset({"bind"})
_OPAQUE = re.compile(r"[A-Za-z0-9+/=_.~:-]{12,}\Z")
_OWN = "\x00"  # stands for the environment's own address


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The pair that a difference belongs to: its template, path (as A has it), URI, and the two intervals.

    A row of a snapshot has its table as path and the snapshot's reading as interval.
    """

    template: str
    path: str
    uri: str
    a: Span
    b: Span


class Explainer:
    """Judges differences in the order in which they happened; what it learns from one holds for the next."""

    def __init__(
        self,
        *,
        clock: Clock,
        rules: RuleBook,
        validators: Validators,
        identifiers: tuple[Identifiers, Identifiers],
        authorities: tuple[Iterable[str], Iterable[str]],
        bindings: Mapping[str, str],
        seeded: Seeded | None = None,
    ) -> None:
        self._clock = clock
        self._rules = rules
        self._validators = validators
        self._identifiers = identifiers
        self._own = tuple(own_pattern(names) for names in authorities)
        self._hosts = {name.rpartition(":")[0] or name for names in authorities for name in names}
        self._ruled: dict[str, Renaming] = {}
        self.names = Names(bindings, seeded)
        for recorded, live in bindings.items():
            if fresh_alike(recorded, live):
                self.names.fresh.admit(recorded, live)

    def explain(self, difference: Difference, where: Where) -> Classes | None:
        """The classes that together explain it, or None."""
        ruled = self._by_rule(difference, where)
        if ruled is not None:
            return ruled
        if difference.kind != "value":
            return None
        a, b = difference.a, difference.b
        if isinstance(a, str) and isinstance(b, str):
            return self._texts(a, b, difference, where)
        if is_number(a) and is_number(b):
            return self._numbers(a, b, difference, where)
        return None

    def soften(self, leaf: Any, of_a: bool) -> Any:
        """What a leaf is but for its spelling; see `treediff`."""
        if isinstance(leaf, str):
            if parse_text(leaf) is not None:
                return "\x00time"
            return self.names.fresh.to.get(leaf, leaf) if of_a else leaf
        if is_number(leaf) and (10**9 < leaf < 4 * 10**9 or 10**12 < leaf < 4 * 10**12):
            return "\x00time"
        return leaf

    def renamed_key(self, table: str, key: str) -> str | None:
        """The key that a row of A has in B, as far as traffic has told."""
        bare = row_id(key)
        small = self.names.of(table_noun(table)).to.get(bare)
        if small is not None:
            return key.replace(bare, small, 1)
        parts = skeleton(key)
        tokens = [self.names.fresh.to.get(token, token) for token in parts.tokens]
        if tuple(tokens) == parts.tokens:
            return None
        return parts.rest[0] + "".join(token + rest for token, rest in zip(tokens, parts.rest[1:], strict=True))

    # -- rules

    def _by_rule(self, difference: Difference, where: Where) -> Classes | None:
        if not self._rules:
            return None
        for actions, holds in ((_MASKING, _always), (_ORDER, _same_items), (_BIND, self._bound_by)):
            places = dict.fromkeys((difference.general, difference.pointer))
            found = (self._rules.find(where.template, place, actions) for place in places)
            rule = next((rule for rule in found if rule is not None), None)
            if rule is not None and holds(difference, rule.name):
                self._rules.used(rule)
                return frozenset({f"rule:{rule.name}"})
        return None

    def _bound_by(self, difference: Difference, name: str) -> bool:
        a, b = difference.a, difference.b
        if difference.kind != "value" or isinstance(a, dict | list) or isinstance(b, dict | list):
            return False
        return self._ruled.setdefault(name, Renaming(chains=True)).admit(repr(a), repr(b))

    # -- numbers

    def _numbers(self, a: Any, b: Any, difference: Difference, where: Where) -> Classes | None:
        member = str(difference.tokens[-1])
        if is_elapsed(member, a, where.a) and is_elapsed(member, b, where.b):
            return _CLOCK
        x, y = parse_number(a, where.a[0]), parse_number(b, where.b[0])
        if x and y and self._clock.explains(x, y, where.a, where.b):
            return _CLOCK
        if isinstance(a, int) and isinstance(b, int):
            return self._small_ids(str(a), str(b), difference, where)
        return frozenset({"jitter"}) if is_jitter(Decimal(a), Decimal(b)) else None

    # -- texts

    def _texts(self, a: str, b: str, difference: Difference, where: Where) -> Classes | None:
        if difference.asked and self.names.bound.get(a) == b:
            return _FRESH
        if difference.role == "validator":
            if self._validators.explains(difference, where.uri):
                return frozenset({"validator"})
            return _CLOCK if self._moment(a, b, where) > 0 else None
        left, right, classes = a, b, set[str]()
        if any(map(a.__contains__, self._hosts)) or any(map(b.__contains__, self._hosts)):
            left, right = (own.sub(_OWN, text) for own, text in zip(self._own, (a, b), strict=True))
            classes = {"authority"} if self._own[0].findall(a) != self._own[1].findall(b) else set()
        if left == right:
            return frozenset(classes) if classes else None
        more = self._parts(left, right, difference, where)
        return None if more is None else frozenset(classes | more)

    def _parts(self, a: str, b: str, difference: Difference, where: Where) -> Classes | None:
        if moment := self._moment(a, b, where):
            return _CLOCK if moment > 0 else None
        if not is_digest(str(difference.tokens[-1])):
            if small := self._small_ids(a, b, difference, where):
                return small
            if a.isdigit() and b.isdigit():
                return None  # digits are an id only where `_small_ids` says so
        if difference.role == "url" or (is_url(a) and is_url(b)):
            return self._urls(a, b, difference, where)
        found = self._skeletons(a, b, difference, where)
        if found is None and _OPAQUE.match(a) and _OPAQUE.match(b) and self._fresh(a, b, difference):
            return _FRESH  # base64 and the like, whose slashes and dots fall at random
        return found

    def _moment(self, a: str, b: str, where: Where) -> int:
        """1: the same moment of each run; -1: instants that are not; 0: no instants."""
        x, y = parse_text(a), parse_text(b)
        if x is None and y is None and a.replace(".", "", 1).isdigit() and b.replace(".", "", 1).isdigit():
            return 1 if self._epochs(a, b, where) else 0
        if x is None or y is None:
            return 0
        return 1 if self._clock.explains(x, y, where.a, where.b) else -1

    def _epochs(self, a: str, b: str, where: Where) -> bool:
        x, y = parse_number(a, where.a[0]), parse_number(b, where.b[0])
        return isinstance(x, Instant) and isinstance(y, Instant) and self._clock.explains(x, y, where.a, where.b)

    def _skeletons(self, a: str, b: str, difference: Difference, where: Where) -> Classes | None:
        left, right = skeleton(a), skeleton(b)
        if left.rest != right.rest:
            return None
        classes: set[str] = set()
        for x, y in zip(left.tokens, right.tokens, strict=True):
            if x != y:
                found = self._token(x, y, difference, where)
                if found is None:
                    return None
                classes |= found
        return frozenset(classes)

    def _token(self, a: str, b: str, difference: Difference, where: Where) -> Classes | None:
        if moment := self._moment(a, b, where):
            return _CLOCK if moment > 0 else None
        if self._validators.knows(a, b):
            return frozenset({"validator"})
        if self.names.anywhere(a, b) or self._fresh(a, b, difference):
            return _FRESH
        # `deal_3f2c..` and `sess-..`: a word and an id in one token, as `urn:uuid:..` has them in two.
        for mark in ("_", "-"):
            head_a, _, tail_a = a.partition(mark)
            head_b, _, tail_b = b.partition(mark)
            if tail_a and head_a == head_b and alphabet(tail_a) == "uuid" and self._fresh(tail_a, tail_b, difference):
                return _FRESH
        return None

    def _fresh(self, a: str, b: str, difference: Difference) -> bool:
        if self.names.fresh.knows(a, b):
            return True
        if is_digest(str(difference.tokens[-1])) or a.isdigit():
            return False
        return fresh_alike(a, b) and self.names.fresh.admit(a, b)

    # -- URLs

    def _urls(self, a: str, b: str, difference: Difference, where: Where) -> Classes | None:
        (path_a, *rest_a), (path_b, *rest_b) = (re.split(r"(?=[?#])", text, maxsplit=1) for text in (a, b))
        left, right = path_a.split("/"), path_b.split("/")
        if len(left) != len(right) or len(rest_a) != len(rest_b):
            return None
        classes: set[str] = set()
        before = ""
        for x, y in zip(left, right, strict=True):
            if x != y:
                noun = singular(before) if before and not is_parameter(before) else None
                found = self._segment(x, y, noun, difference, where)
                if found is None:
                    return None
                classes |= found
            before = x
        if rest_a != rest_b:
            found = self._skeletons(rest_a[0], rest_b[0], difference, where)
            if found is None:
                return None
            classes |= found
        return frozenset(classes)

    def _segment(self, a: str, b: str, noun: str | None, difference: Difference, where: Where) -> Classes | None:
        if noun is not None:
            if difference.asked and self.names.bound.get(a) == b:
                self.names.of(noun).admit(a, b)
                return _FRESH
            if found := self._of_noun(a, b, (noun,), defining=not difference.asked):
                return found
        return self._skeletons(a, b, difference, where)

    # -- small ids

    def _small_ids(self, a: str, b: str, difference: Difference, where: Where) -> Classes | None:
        if difference.role == "row":
            return self._of_noun(row_id(a), row_id(b), (table_noun(where.path),), defining=True)
        if difference.tokens[0] not in ("body", "request", "state", "websocket"):
            return None
        if difference.tokens[:2] == ("request", "path"):
            return None
        nouns, defining = owners(difference.tokens, where.path)
        return self._of_noun(a, b, nouns, defining=defining and not difference.asked)

    def _of_noun(self, a: str, b: str, nouns: tuple[str, ...], *, defining: bool) -> Classes | None:
        """Whether `a` is `b` as the id of one of these nouns. Only a defining place may say so first."""
        form = short_form(a)
        if not nouns or form is None or form != short_form(b):
            return None
        number = a.isdigit()
        kind = _COUNTER if number and len(a) < 14 else _FRESH
        if any(self.names.of(noun).knows(a, b) for noun in nouns):
            return kind
        if not defining:
            return None
        served = [noun for noun in nouns if self._serves(noun, a, b)]
        if number and not served and bits(a) < FRESH_BITS:
            return None  # a number is an identifier only where it is seen to serve as one
        if bits(a) >= FRESH_BITS and not number:
            return None  # long ids are renamed by value, in the whole episode
        return kind if self.names.of((served or list(nouns))[0]).admit(a, b) else None

    def _serves(self, noun: str, a: str, b: str) -> bool:
        return self._identifiers[0].has(noun, a) and self._identifiers[1].has(noun, b)


def _always(difference: Difference, name: str) -> bool:
    return True


def _same_items(difference: Difference, name: str) -> bool:
    """Whether only the order differs: of an array, or of a list with commas."""
    if difference.kind == "order":
        return True
    a, b = difference.a, difference.b
    return isinstance(a, str) and isinstance(b, str) and "," in a and sorted(a.split(",")) == sorted(b.split(","))
