"""Tries a user's regular expression on texts that are bad for it, before any traffic is.

Python's engine cannot be stopped, and holds the whole process while it runs: so it is tried in another one, which can.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from re import _parser  # type: ignore[attr-defined]  # the standard library's own, and the only one that knows
from typing import Any

from replayproxy.core.redact_rules import WINDOW

SLOWEST = 1.0
"""Seconds for one window: what is slower holds up a recording."""

_LONGEST = 5.0
_CHARS = 5
_CHILD = """
import json, re, sys, time
pattern, texts, limit, of_text = json.load(sys.stdin)
as_is = str if of_text else str.encode
made = re.compile(as_is(pattern))
for text in texts:
    began = time.perf_counter()
    sum(1 for _ in made.finditer(as_is(text)))
    if time.perf_counter() - began > limit:
        sys.exit(1)
"""


def why_too_slow(pattern: str, *, of_text: bool = False) -> str:
    """Why it may not be used, or "". It is one that compiles, for bytes or, `of_text`, for text."""
    parsed = _parser.parse(pattern if of_text else pattern.encode())
    asked = json.dumps([pattern, list(_texts(parsed)), SLOWEST, of_text])
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _CHILD], input=asked.encode(), capture_output=True, timeout=_LONGEST,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "it did not end on a text of 4 KiB"
    return f"it takes more than {SLOWEST:g} s on a text of 4 KiB" if done.returncode == 1 else ""


def _texts(parsed: Any) -> Iterator[str]:
    """Texts made of what the pattern takes, which then do not fit in the end."""
    chars = list(dict.fromkeys([*_chars(parsed), "a", "0", " "]))[:_CHARS]
    for char in chars:
        yield char * (WINDOW - 1) + "\x01"
    for pair in permutations(chars, 2):
        yield "".join(pair) * (WINDOW // 2 - 1) + "\x01"


def _chars(items: Any) -> Iterator[str]:
    """A character for each literal and range, and what a category takes."""
    for one in items:
        if isinstance(one, tuple) and len(one) == 2:
            name, value = str(one[0]), one[1]
            if name == "LITERAL" and 32 <= value < 127:
                yield chr(value)
            elif name == "RANGE" and 32 <= value[0] < 127:
                yield chr(value[0])
            elif isinstance(value, tuple | list | _parser.SubPattern):
                yield from _chars(value)
        elif isinstance(one, tuple | list | _parser.SubPattern):
            yield from _chars(one)
