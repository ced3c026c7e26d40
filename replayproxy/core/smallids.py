"""Small ids: `17`, `D-9f41`. They are renamed only as what they name, and introduced only where the thing stands.

A mere number is an identifier only where it is seen to serve as one in both runs: in a path, a Location, as the key
of a row. A balance that moved is never one. Nor is an id renamed where both runs began with the same keys and it is
one of them: there it is another row, and no other name of the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from replayproxy.core.difference import Difference
from replayproxy.core.renaming import Identifiers, Names, owners, row_id, table_noun
from replayproxy.core.tokens import FRESH_BITS, bits, short_form
from replayproxy.core.where import COUNTER, FRESH, Classes, Where

type Standing = Callable[[Collection[str] | None, str, str], bool]
"""Whether one of two ids is that of a row that both runs began with; see `Seeds.standing`."""


def _nothing_stood(nouns: Collection[str] | None, a: str, b: str) -> bool:
    return False


class SmallIds:
    """Judges small ids by what has been learned of both runs."""

    def __init__(
        self, names: Names, identifiers: tuple[Identifiers, Identifiers], standing: Standing | None = None
    ) -> None:
        self._names = names
        self._identifiers = identifiers
        self._standing = standing or _nothing_stood

    def explain(self, a: str, b: str, difference: Difference, where: Where) -> Classes | None:
        """Whether the place of a difference is that of an id, and `a` is `b` there."""
        if difference.role == "row":
            return self.of_noun(row_id(a), row_id(b), (table_noun(where.path),), defining=True)
        if difference.tokens[0] not in ("body", "request", "state", "websocket"):
            return None
        if difference.tokens[:2] == ("request", "path"):
            return None
        nouns, defining = owners(difference.tokens, where.path)
        return self.of_noun(a, b, nouns, defining=defining and not difference.asked)

    def of_noun(self, a: str, b: str, nouns: tuple[str, ...], *, defining: bool) -> Classes | None:
        """Whether `a` is `b` as the id of one of these nouns. Only a defining place may say so first."""
        form = short_form(a)
        if not nouns or form is None or form != short_form(b):
            return None
        number = a.isdigit()
        kind = COUNTER if number and len(a) < 14 else FRESH
        if any(self._names.of(noun).knows(a, b) for noun in nouns):
            return kind
        if not defining:
            return None
        served = [noun for noun in nouns if self._serves(noun, a, b)]
        if number and not served and bits(a) < FRESH_BITS:
            return None  # a number is an identifier only where it is seen to serve as one
        if bits(a) >= FRESH_BITS and not number:
            return None  # long ids are renamed by value, in the whole episode
        if self._standing(served if number else None, a, b):
            return None
        return kind if self._names.of((served or list(nouns))[0]).admit(a, b) else None

    def _serves(self, noun: str, a: str, b: str) -> bool:
        return self._identifiers[0].has(noun, a) and self._identifiers[1].has(noun, b)
