"""Which texts are ids that a machine made up: how much chance is in a token, and whose id a member's name means.

The estimate is of the *form* only, and cautious: a word of a language counts nothing, however long, because a
sentence that changed is a difference and must never pass for a renamed id. Times are no ids either.
"""

from __future__ import annotations

import re
from functools import lru_cache

OPAQUE_BITS = 46
"""From this many bits on, one value among a million meets another by accident less than once in a hundred runs."""

LONGEST = 4096
"""A longer token is content (a file in base64), not a name."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=:|$!%-]+\Z")
_RUN = re.compile(r"[A-Za-z0-9]+")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\Z")
_HEX = re.compile(r"[0-9a-f]+\Z|[0-9A-F]+\Z")
_TIME = re.compile(
    r"""(?: \d{4}-?\d\d-?\d\d (?: [T_ -] \d\d:?\d\d (?: :?\d\d (?: [.,]\d+ )? )? \s* (?: Z | UTC | [+-]\d\d:?\d\d )? )?
    | 1[0-9]{9} (?: [0-9]{3} ){0,3}                                   # seconds to nanoseconds since the epoch
    | -?\d+ [.,] \d+ (?: [eE][+-]?\d+ )?                               # a measured number
    )\Z""",
    re.VERBOSE,
)
_CONSONANTS = re.compile(r"[bcdfghjklmnpqrstvwxz]{6}", re.IGNORECASE)
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PARTS = re.compile(r"\d+|[A-Za-z]+")


@lru_cache(maxsize=65536)
def bits(token: str) -> float:
    """How much chance is in a token; 0 for prose, numbers with a fraction, times and URLs."""
    if not token or len(token) > LONGEST or not _TOKEN.match(token) or "://" in token or _TIME.match(token):
        return 0.0
    if len(set(token)) <= 4:
        return 0.0  # 00000000-0000-0000-0000-000000000000 is no id
    return 122.0 if _UUID.match(token) else sum(_run_bits(run) for run in _RUN.findall(token))


def _run_bits(run: str) -> float:
    parts = _PARTS.findall(run)
    if len(parts) == 1 and run.isdigit():
        return len(run) * 3.32
    if len(parts) == 1:
        return _letters_bits(run)
    if len(parts) == 2 and not (_HEX.match(run) and len(run) >= 12):
        # `deal42` and `v2`: a word and a number
        return sum(len(part) * 3.32 if part.isdigit() else _letters_bits(part) for part in parts)
    if _HEX.match(run):
        return len(run) * 4.0
    mixed = run.lower() != run and run.upper() != run
    return len(run) * (5.95 if mixed else 5.17)


def _letters_bits(run: str) -> float:
    """0 for words, also camelCased; chance where no tongue would speak it."""
    humps = _HUMP.findall(run)
    if len(run) >= 8 and (_CONSONANTS.search(run) or len(run) / len(humps) < 2.2):
        return len(run) * (5.7 if len(humps) > 1 else 4.7)
    return 0.0


def is_opaque(token: str) -> bool:
    """Whether the token is an id by its form alone: at least `OPAQUE_BITS` of chance, no time, no prose, no URL."""
    return bits(token) >= OPAQUE_BITS


_GENERIC = frozenset({"data", "item", "result", "record", "row", "object", "entry", "node", "value", "response", "hit",
                      "payload", "body", "content", "text", "structuredcontent", "attribute", "output", "argument",
                      "param", "embedded", "element", "event", "new", "created", "message"})  # fmt: skip
_ID_NAME = re.compile(r"(?:(?P<snake>[A-Za-z0-9_-]*?)[_-]ids?|(?P<camel>[A-Za-z0-9_]*?)I[dD]s?)\Z")
_VERBS = frozenset({"create", "add", "get", "list", "update", "delete", "remove", "search", "find", "make", "set",
                    "put", "post", "fetch", "read", "write", "edit", "new", "all", "by", "id"})  # fmt: skip


def singular(word: str) -> str:
    """One form for `deals`, `Deal` and `deal`; `status` stays what it is."""
    low = word.lower().replace("-", "_")
    if low.endswith("ies") and len(low) > 4:
        return low[:-3] + "y"
    if low.endswith(("sses", "shes", "ches", "xes", "zes")):
        return low[:-2]
    return low[:-1] if low.endswith("s") and not low.endswith(("ss", "us", "is")) and len(low) > 2 else low


def collection_of(path: tuple[str | int, ...], default: str) -> str | None:
    """Whose id a JSON member holds: `deal` for `/deal_id`, `/dealIds/0` and `/deals/0/id`; None: it is no id.

    `default` is whose resources the request is about; it stands where the document does not say (`/data/0/id`).
    """
    names = [name for name in path if isinstance(name, str)]
    if not names:
        return None
    last = names[-1]
    if last.lower() in ("id", "_id", "ids"):
        return next((singular(name) for name in reversed(names[:-1]) if singular(name) not in _GENERIC), default)
    match = _ID_NAME.match(last)
    return singular(match["snake"] or match["camel"] or default) if match else None


def noun(tool: str) -> str:
    """What a tool is about: `note` for `create_note`, `listNotes` and `notes.get`."""
    words = [part for part in re.split(r"[^A-Za-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", tool)) if part]
    left = [word for word in words if word.lower() not in _VERBS]
    return singular((left or words or [tool])[-1])
