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

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from replayproxy.core.clock import Clock, is_elapsed
from replayproxy.core.difference import Difference
from replayproxy.core.renaming import Identifiers, Names, Renaming, row_id, table_noun
from replayproxy.core.rules import RuleBook
from replayproxy.core.seeds import Seeds
from replayproxy.core.smallids import SmallIds
from replayproxy.core.spelling import bare_address, is_jitter, is_number, own_pattern
from replayproxy.core.texts import Texts
from replayproxy.core.times import parse_number, parse_text
from replayproxy.core.tokens import fresh_alike, skeleton
from replayproxy.core.validators import Validators
from replayproxy.core.where import CLOCK, FRESH, VALIDATOR, Classes, Where

_MASKING = frozenset({"ignore", "mask"})
_ORDER = frozenset({"order-insensitive"})
_BIND = frozenset({"bind"})
_OWN = "\x00"  # stands for the environment's own address


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
        seeds: Seeds | None = None,
    ) -> None:
        self._clock = clock
        self._rules = rules
        self._validators = validators
        self._own = tuple(own_pattern(names) for names in authorities)
        self._hosts = {name.rpartition(":")[0] or name for names in authorities for name in names}
        self._own_names = Renaming(chains=True)
        self._ruled: dict[str, Renaming] = {}
        self.names = Names(bindings, seeds.seeded if seeds else None)
        for recorded, live in bindings.items():
            if fresh_alike(recorded, live):
                self.names.fresh.admit(recorded, live)
        self._small = SmallIds(self.names, identifiers, seeds.standing if seeds else None)
        self._parts = Texts(self.names, clock, validators, self._small)

    def explain(self, difference: Difference, where: Where) -> Classes | None:
        """The classes that together explain it, or None."""
        ruled = self._by_rule(difference, where)
        if ruled is not None:
            return ruled
        if difference.kind not in ("value", "key"):
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
        if difference.asked and self.names.bound.get(str(a)) == str(b):
            return FRESH
        if is_elapsed(member, a, where.a) and is_elapsed(member, b, where.b):
            return CLOCK
        x, y = parse_number(a, where.a[0]), parse_number(b, where.b[0])
        if x and y and self._clock.explains(x, y, where.a, where.b):
            return CLOCK
        if isinstance(a, int) and isinstance(b, int):
            return self._small.explain(str(a), str(b), difference, where)
        return frozenset({"jitter"}) if is_jitter(Decimal(a), Decimal(b)) else None

    # -- texts

    def _texts(self, a: str, b: str, difference: Difference, where: Where) -> Classes | None:
        if difference.asked and self.names.bound.get(a) == b:
            return FRESH
        if difference.role == "validator":
            if self._validators.explains(difference, where.uri):
                return VALIDATOR
            return CLOCK if self._parts.moment(a, b, where) > 0 else None
        left, right, classes = a, b, set[str]()
        if any(map(a.__contains__, self._hosts)) or any(map(b.__contains__, self._hosts)):
            moved = self._addresses(a, b)
            if moved is not None:
                left, right = (own.sub(_OWN, text) for own, text in zip(self._own, (a, b), strict=True))
                classes = {"authority"} if moved else set()
        if left == right:
            return frozenset(classes) if classes else None
        more = self._parts.explain(left, right, difference, where)
        return None if more is None else frozenset(classes | more)

    def _addresses(self, a: str, b: str) -> bool | None:
        """Whether own addresses moved; None when one environment's stands where another's did."""
        sides = zip(self._own, (a, b), strict=True)
        found = [[bare_address(text) for text in own.findall(side)] for own, side in sides]
        if len(found[0]) != len(found[1]):
            return None
        pairs = list(zip(*found, strict=True))
        return any(x != y for x, y in pairs) if all(self._own_names.admit(x, y) for x, y in pairs) else None


def _always(difference: Difference, name: str) -> bool:
    return True


def _same_items(difference: Difference, name: str) -> bool:
    """Whether only the order differs: of an array, or of a list with commas."""
    if difference.kind == "order":
        return True
    a, b = difference.a, difference.b
    return isinstance(a, str) and isinstance(b, str) and "," in a and sorted(a.split(",")) == sorted(b.split(","))
