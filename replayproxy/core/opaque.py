"""Which texts are ids that a machine made up, and whose id a member's name means."""

from __future__ import annotations

import re
from functools import lru_cache

from replayproxy.core.tokens import FRESH_BITS, bits

LONGEST = 4096
"""A longer token is content (a file in base64), not a name."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=:|$!%-]+\Z")
_TIME = re.compile(
    r"""(?: \d{4}-?\d\d-?\d\d (?: [T_ -] \d\d:?\d\d (?: :?\d\d (?: [.,]\d+ )? )? \s* (?: Z | UTC | [+-]\d\d:?\d\d )? )?
    | 1[0-9]{9} (?: [0-9]{3} ){0,3}                                   # seconds to nanoseconds since the epoch
    | -?\d+ [.,] \d+ (?: [eE][+-]?\d+ )?                               # a measured number
    )\Z""",
    re.VERBOSE,
)


@lru_cache(maxsize=65536)
def is_opaque(token: str) -> bool:
    """Whether the token is an id by its form alone: at least `FRESH_BITS` of chance, no time, no prose, no URL.

    A sentence that changed is a difference and must never pass for a renamed id.
    """
    if len(token) > LONGEST or not _TOKEN.match(token) or "://" in token or token[:1] == "/" or _TIME.match(token):
        return False
    return bits(token) >= FRESH_BITS


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
    owner = _collection(tuple(name for name in path if isinstance(name, str)))
    return default if owner == "" else owner


@lru_cache(maxsize=65536)
def _collection(names: tuple[str, ...]) -> str | None:
    """As above; "" for an id of what the request is about."""
    if not names:
        return None
    last = names[-1]
    if last.lower() in ("id", "_id", "ids"):
        return next((singular(name) for name in reversed(names[:-1]) if singular(name) not in _GENERIC), "")
    match = _ID_NAME.match(last)
    return singular(match["snake"] or match["camel"]) if match else None


def noun(tool: str) -> str:
    """What a tool is about: `note` for `create_note`, `listNotes` and `notes.get`."""
    words = [part for part in re.split(r"[^A-Za-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", tool)) if part]
    left = [word for word in words if word.lower() not in _VERBS]
    return singular((left or words or [tool])[-1])
