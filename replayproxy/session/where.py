"""The filter language of `ls --where`: `verdict=poisoned reward<0.2 meta.step=400 why~stale`.

Terms stand one after the other and must all hold. A term is FIELD OP VALUE; OP is = != < <= > >= or ~ (holds a text,
in any case). Commas give alternatives (`verdict=poisoned,suspect`), quotes keep a value whole (`task="a, b"`), and a
value that is left out means that nothing is known (`reward=`, `reward!=`). What is not known meets only that and `!=`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from replayproxy.errors import WrongUsage

type Value = str | float | int | bool | tuple[str, ...] | None
type Fields = Mapping[str, Value]
"""What an episode has, by the names of the language. A tuple is several values, of which any may be meant."""

_TERM = re.compile(
    r"""\s*(?P<field>[^\s=!<>~"']+)\s*(?P<op><=|>=|!=|=|<|>|~)\s*(?P<value>(?:"[^"]*"|'[^']*'|[^\s"'])*)"""
)
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|[^,"'])+|(?<=,)(?=,|\Z)""")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
HINT = 'such as "verdict=poisoned reward<0.2 meta.step=400"; = != < <= > >= and ~ (holds)'

NUMBERS = frozenset({"seed", "attempt", "exchanges", "writes", "reward", "took", "findings"})
"""The fields that are numbers; `meta.X` is one where both sides are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """`values`: the alternatives; empty: nothing is known."""

    field: str
    op: str
    values: tuple[str, ...]

    def holds(self, fields: Fields) -> bool:
        value = fields.get(self.field)
        of = tuple(one for one in (value if isinstance(value, tuple) else (value,)) if one is not None)
        if not self.values:
            return bool(of) == (self.op == "!=")
        if self.op == "!=":
            return not any(_meets("=", one, wanted) for one in of for wanted in self.values)
        return any(_meets(self.op, one, wanted) for one in of for wanted in self.values)


def parse(text: str) -> tuple[Term, ...]:
    """The terms of a filter. Raises WrongUsage; that a field exists is `check_names`'s to say."""
    terms: list[Term] = []
    at = 0
    while text[at:].strip():
        found = _TERM.match(text, at)
        if found is None or (found.end() < len(text) and not text[found.end()].isspace()):
            raise WrongUsage(f"--where: {text[at:].strip()!r} is no FIELD OP VALUE", hint=HINT)
        values = tuple(_unquoted(part) for part in _PART.findall(found["value"]))
        term = Term(field=found["field"], op=found["op"], values=values)
        _check(term)
        terms.append(term)
        at = found.end()
    if not terms:
        raise WrongUsage("--where names nothing", hint=HINT)
    return tuple(terms)


def _check(term: Term) -> None:
    if term.op not in ("=", "!=") and not term.values:
        raise WrongUsage(f"--where: {term.field}{term.op} compares with nothing", hint=HINT)
    if term.field in NUMBERS and term.op != "~":
        for value in term.values:
            if number(value) is None:
                raise WrongUsage(f"--where: {term.field} is a number, not {value!r}", hint=HINT)


def check_names(names: Iterable[str], known: Iterable[str], option: str) -> None:
    """Raises WrongUsage for a field that no episode of the run can have, with those that there are."""
    all_known = sorted(set(known))
    for name in names:
        if name not in all_known:
            near = get_close_matches(name, all_known, n=1)
            guess = f"did you mean {near[0]!r}? " if near else ""
            raise WrongUsage(f"{option}: no field {name!r}", hint=f"{guess}known: {', '.join(all_known)}")


def number(text: Any) -> float | None:
    """A number, or a time with its unit in seconds (`38s`, `2m`); None: it is none."""
    if isinstance(text, bool) or text is None:
        return None
    if isinstance(text, int | float):
        return float(text)
    unit = re.search(r"(?<=[0-9.])(ms|s|m|h|d)\Z", text)
    try:
        value = float(text[: unit.start()] if unit else text)
    except ValueError:
        return None
    return value * (_UNITS[unit[0]] if unit else 1.0) if value == value else None


def _unquoted(part: str) -> str:
    return re.sub(r""""([^"]*)"|'([^']*)'""", lambda m: m[1] if m[1] is not None else m[2], part)


_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def _meets(op: str, value: Any, wanted: str) -> bool:
    """As numbers where both are, else as texts; true and false are written so."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if op == "~":
        return wanted.lower() in text.lower()
    a, b = number(value), number(wanted)
    if a is not None and b is not None:
        return _ORDER[op](a, b)
    return _ORDER[op](text, wanted)


def sort_key(value: Value) -> tuple[int, float, str]:
    """Numbers by size, then texts; what is not known comes last."""
    if value is None or value == ():
        return 2, 0.0, ""
    as_number = number(value) if not isinstance(value, tuple) else None
    return (1, 0.0, str(value)) if as_number is None else (0, as_number, "")
