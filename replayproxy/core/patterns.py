"""Patterns that a user writes: where a rule applies, and regular expressions that cannot run away.

Python's `re` backtracks. A repeat inside a repeat can take exponential time on a value of thirty characters, so such a
pattern is refused when it is read; what is left is polynomial, and the values it sees are bounded by the caller.
"""

from __future__ import annotations

import re
from re import _constants, _parser  # type: ignore[attr-defined]  # the parser is the only exact reader of a pattern
from typing import Any

UNBOUNDED_AT_MOST = 3
"""Unbounded repeats in one pattern: each multiplies the time by the length of the value."""

_REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT}
_METHOD = re.compile(r"\*|[A-Z0-9_-]+")


def one_group(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled. ValueError, saying why, unless it has one group and cannot run away."""
    try:
        compiled = re.compile(pattern)
        parsed = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    if compiled.groups != 1:
        raise ValueError(f"{pattern!r} has {compiled.groups} groups, and must have one")
    if (unbounded := _unbounded(parsed, inside=False)) > UNBOUNDED_AT_MOST:
        raise ValueError(f"{pattern!r} has {unbounded} unbounded repeats, at most {UNBOUNDED_AT_MOST} are taken")
    return compiled


def _unbounded(parsed: Any, *, inside: bool) -> int:
    """How many unbounded repeats there are. ValueError for a repeat, or a choice, inside of one."""
    found = 0
    for op, argument in parsed:
        if op in _REPEATS:
            least, most, body = argument
            if inside and most != least:
                raise ValueError("a repeat inside a repeat can take for ever")
            many = most is _constants.MAXREPEAT or most > 64
            found += many + _unbounded(body, inside=inside or many)
        elif op is _constants.BRANCH:
            if inside:
                raise ValueError("a choice inside a repeat can take for ever")
            found += sum(_unbounded(branch, inside=inside) for branch in argument[1])
        elif op is _constants.SUBPATTERN:
            found += _unbounded(argument[-1], inside=inside)
        elif op in (_constants.ASSERT, _constants.ASSERT_NOT):
            found += _unbounded(argument[1], inside=inside)
        elif op is _constants.ATOMIC_GROUP:
            found += _unbounded(argument, inside=inside)
        elif op is _constants.POSSESSIVE_REPEAT:
            found += 1 + _unbounded(argument[2], inside=inside)
        elif op is _constants.GROUPREF_EXISTS:
            found += sum(_unbounded(branch, inside=inside) for branch in argument[1:] if branch is not None)
    return found


def endpoint(at: str) -> re.Pattern[str]:
    """`METHOD TEMPLATE`, for `METHOD /path` without a query: `{x}` is one segment, `*` anything, "" everywhere.
    ValueError when it can be neither."""
    text = at.strip()
    if text in ("", "*"):
        return re.compile("", re.DOTALL)
    method, blank, template = text.partition(" ")
    if not blank and method.startswith("/"):
        method, template = "*", method
    template = template.strip() or "*"
    if not _METHOD.fullmatch(method) or not template.startswith(("/", "*")) or " " in template:
        raise ValueError(f'{at!r} is no METHOD TEMPLATE, as "POST /step" or "* /sessions/{{id}}"')
    return re.compile(_one(method) + " " + template_pattern(template) + r"\Z", re.DOTALL)


def _one(method: str) -> str:
    return "[^ ]*" if method == "*" else re.escape(method)


def template_pattern(template: str, group: str | None = None) -> str:
    """A path template as a regular expression; the parameter named `group` becomes its group."""
    out = []
    for part in re.split(r"(\*|\{[^}/]*\})", template):
        if part == "*":
            out.append(".*")
        elif part.startswith("{") and part.endswith("}"):
            out.append("([^/]+)" if part[1:-1] == group else "[^/]+")
        else:
            out.append(re.escape(part))
    return "".join(out)


def glob(name: str) -> re.Pattern[str]:
    """A name in which `*` stands for any run of characters."""
    return re.compile(".*".join(map(re.escape, name.split("*"))) + r"\Z", re.DOTALL)
