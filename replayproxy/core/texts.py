"""Two texts at one place: taken apart, every part that differs needs an explanation, all the rest must be equal."""

from __future__ import annotations

import re

from replayproxy.core.clock import Clock
from replayproxy.core.difference import Difference
from replayproxy.core.renaming import Names, is_digest, singular
from replayproxy.core.smallids import SmallIds
from replayproxy.core.spelling import is_url
from replayproxy.core.templates import is_parameter
from replayproxy.core.times import parse_number, parse_text
from replayproxy.core.tokens import alphabet, fresh_alike, skeleton
from replayproxy.core.unpack import readable, signed_parts
from replayproxy.core.validators import Validators
from replayproxy.core.where import CLOCK, FRESH, VALIDATOR, Classes, Where

LONGEST_ID = 128
"""What is longer is content (a file in base64), and no id."""

_OPAQUE = re.compile(r"[A-Za-z0-9+/=_.~:-]{12,}\Z")


class Texts:
    """Judges texts by what has been learned of both runs."""

    def __init__(self, names: Names, clock: Clock, validators: Validators, small: SmallIds) -> None:
        self._names = names
        self._clock = clock
        self._validators = validators
        self._small = small

    def explain(self, a: str, b: str, difference: Difference, where: Where) -> Classes | None:
        """What explains that `b` stands where `a` stood; the environment's own address is already taken out."""
        if moment := self.moment(a, b, where):
            return CLOCK if moment > 0 else None
        if not is_digest(str(difference.tokens[-1])):
            if small := self._small.explain(a, b, difference, where):
                return small
            if a.isdigit() and b.isdigit():
                return None  # digits are an id only where `SmallIds` says so
        if difference.role == "url" or (is_url(a) and is_url(b)):
            return self._urls(a, b, difference, where)
        signed = signed_parts(a), signed_parts(b)
        if signed[0] and signed[1]:
            return self._signed(signed[0], signed[1], difference, where)
        found = self._skeletons(a, b, difference, where)
        if found is None and _OPAQUE.match(a) and _OPAQUE.match(b) and self._fresh(a, b, difference):
            return FRESH  # base64 and the like, whose slashes and dots fall at random
        return found

    def moment(self, a: str, b: str, where: Where) -> int:
        """1: the same moment of each run; -1: instants that are not; 0: no instants."""
        x, y = parse_text(a), parse_text(b)
        if x is None and y is None and a.replace(".", "", 1).isdigit() and b.replace(".", "", 1).isdigit():
            return 1 if self._epochs(a, b, where) else 0
        if x is None or y is None:
            return 0
        return 1 if self._clock.explains(x, y, where.a, where.b) else -1

    def _epochs(self, a: str, b: str, where: Where) -> bool:
        x, y = parse_number(a, where.a[0]), parse_number(b, where.b[0])
        return x is not None and y is not None and self._clock.explains(x, y, where.a, where.b)

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

    def _signed(self, a: tuple[str, ...], b: tuple[str, ...], difference: Difference, where: Where) -> Classes | None:
        """What can be read must be explained; what cannot is a signature, or a time before one."""
        if len(a) != len(b):
            return None
        classes: set[str] = set()
        for x, y in zip(a, b, strict=True):
            texts = readable(x), readable(y)
            if texts[0] and texts[1]:
                found = self._skeletons(texts[0], texts[1], difference, where)
                if found is None:
                    return None
                classes |= found
        return frozenset(classes | FRESH)

    def _token(self, a: str, b: str, difference: Difference, where: Where) -> Classes | None:
        if moment := self.moment(a, b, where):
            return CLOCK if moment > 0 else None
        if difference.asked and self._names.bound.get(a) == b:
            return FRESH
        if is_digest(str(difference.tokens[-1])):
            return None  # it changed because its content did, even where a validator is the same digest
        if self._validators.knows(a, b):
            return VALIDATOR
        if (texts := (readable(a), readable(b))) and texts[0] and texts[1]:
            return self._skeletons(texts[0], texts[1], difference, where)
        if (signed := (signed_parts(a), signed_parts(b))) and signed[0] and signed[1]:
            return self._signed(signed[0], signed[1], difference, where)
        if self._names.anywhere(a, b) or self._fresh(a, b, difference):
            return FRESH
        # `deal_3f2c..` and `sess-..`: a word and an id in one token, as `urn:uuid:..` has them in two.
        for mark in ("_", "-"):
            head_a, _, tail_a = a.partition(mark)
            head_b, _, tail_b = b.partition(mark)
            if tail_a and head_a == head_b and alphabet(tail_a) == "uuid" and self._fresh(tail_a, tail_b, difference):
                return FRESH
        return None

    def _fresh(self, a: str, b: str, difference: Difference) -> bool:
        if self._names.fresh.knows(a, b):
            return True
        if is_digest(str(difference.tokens[-1])) or a.isdigit():
            return False
        if max(len(a), len(b)) > LONGEST_ID or readable(a) or readable(b):
            return False
        return fresh_alike(a, b) and self._names.fresh.admit(a, b)

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
        if difference.asked and self._names.bound.get(a) == b:
            if noun is not None:
                self._names.of(noun).admit(a, b)
            return FRESH
        if noun is not None and (found := self._small.of_noun(a, b, (noun,), defining=not difference.asked)):
            return found
        return self._skeletons(a, b, difference, where)
