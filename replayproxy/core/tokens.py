"""What a text is made of: ids, instants, and the words between them.

`bits` estimates how much chance a token holds. Words hold none: a slug of seven words is long and no id. A token
that holds at least `FRESH_BITS` was surely not chosen twice by accident, so it can be renamed by its value alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from math import log2

from replayproxy.core.redact_token import TOKEN

FRESH_BITS = 46.0
"""Two of a million independent values are equal with probability below 1 %."""

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_TIME = (
    r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?(?![\w-])"
    r"|\d{8}T\d{6}Z?(?!\w)"
    r"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2}[ -][A-Z][a-z]{2}[ -]\d{4} \d{2}:\d{2}:\d{2} GMT"
)
_DOTTED = r"(?:[A-Za-z0-9_-]{16,}\.)+[A-Za-z0-9_-]{16,}"  # JWT and signed cookies: one token, dots and all
_TOKENS = re.compile(rf"(?<!\w)(?:{_TIME})|(?<![0-9A-Za-z])(?:{_UUID})(?![0-9A-Za-z])|{_DOTTED}|[A-Za-z0-9_-]+=*")
_WHOLE_UUID = re.compile(_UUID + r"\Z")
_SECRET = re.compile(TOKEN.pattern.decode() + r"\Z")
_RUNS = re.compile(r"[A-Za-z0-9]+")
_WORD = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)(\d{0,6})\Z")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CAMEL = re.compile(r"(?:[A-Z]?[a-z]{2,}|[A-Z]{2,})+(\d{0,6})\Z")


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A text taken apart: `tokens` are its tokens in order, `rest` what stands around them."""

    tokens: tuple[str, ...]
    rest: tuple[str, ...]


def skeleton(text: str) -> Skeleton:
    """`tokens[i]` stands between `rest[i]` and `rest[i + 1]`."""
    found, rest, at = [], [], 0
    for match in _TOKENS.finditer(text):
        found.append(match.group())
        rest.append(text[at : match.start()])
        at = match.end()
    return Skeleton(tuple(found), (*rest, text[at:]))


@lru_cache(maxsize=65536)
def bits(token: str) -> float:
    """The chance in a token, in bits; 0 for words, and for a token that repeats one or two characters."""
    if len(token) < 8 or len(set(token)) < 4:
        return 0.0
    if _WHOLE_UUID.match(token):
        return 122.0
    if _SECRET.match(token):
        return 120.0  # one in a hundred and fifty holds no digit and would pass for words
    return sum(_run_bits(run) for run in _RUNS.findall(token))


def _run_bits(run: str) -> float:
    if run.isdigit():
        return len(run) * log2(10)
    if word := _WORD.match(run) or _CAMEL.match(run):
        return len(word.group(1)) * log2(10)
    if run.isalpha() and len(run) >= 2.2 * len(_HUMPS.findall(run)):
        return 0.0  # InProgressByUser is a word of words, whatever the length of each
    if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", run):
        return len(run) * 4.0
    kinds = (26 if re.search("[a-z]", run) else 0) + (26 if re.search("[A-Z]", run) else 0)
    return len(run) * log2(kinds + (10 if re.search("[0-9]", run) else 0))


def alphabet(token: str) -> str:
    """The form of an id: two ids of one origin have one form."""
    if _WHOLE_UUID.match(token):
        return "uuid"
    if token.isdigit():
        return f"digits:{len(token)}"
    for name, pattern in (("hex", r"[0-9a-f]+"), ("HEX", r"[0-9A-F]+")):
        if re.fullmatch(pattern, token):
            return f"{name}:{len(token)}"
    return "mixed"


def fresh_alike(a: str, b: str) -> bool:
    """Whether two tokens can be two fresh values of one origin: enough chance in each, and one form."""
    if bits(a) < FRESH_BITS or bits(b) < FRESH_BITS or a.isdigit() != b.isdigit():
        return False
    form = alphabet(a)
    if form == alphabet(b):
        return form != "mixed" or abs(len(a) - len(b)) <= max(4, len(a) // 3)
    # By chance a token of a wide alphabet may hold only hex digits; its length tells that it is no other kind.
    return "uuid" not in (form, alphabet(b)) and "mixed" in (form, alphabet(b)) and abs(len(a) - len(b)) <= 2


@lru_cache(maxsize=65536)
def short_form(token: str) -> tuple[str, ...] | None:
    """The form of a short id, `D-9f41` -> ("D-", "#"), `17` -> ("#",); None: it does not look like one."""
    match = re.fullmatch(r"((?:[A-Za-z]{1,16}[-_:#]?)?)([0-9a-f]*\d[0-9a-f]*|[0-9A-F]*\d[0-9A-F]*)", token)
    if match is None:
        return None
    # `a1f3` begins with a hex digit that is no prefix: without a separator only what precedes a decimal is one.
    prefix = match.group(1)
    return (prefix, "#") if not prefix or not prefix[-1].isalnum() or match.group(2).isdigit() else ("", "#")


def tokens_among(text: str, wanted: Collection[str]) -> list[str]:
    """The tokens of a text that are among the wanted ones, each once."""
    return [token for token in dict.fromkeys(_TOKENS.findall(text)) if token in wanted]


def long_tokens(text: str) -> list[str]:
    """The tokens of a text that may be renamed by value."""
    return [token for token in _TOKENS.findall(text) if len(token) >= 8 and bits(token) >= FRESH_BITS]
