"""The canonical form of requests and bodies: what makes two requests one, by the rules of one table.

`BODY_RULES` and `KEY_FIELDS` decide; `KEY_TABLE` says the same in words, and docs/matching.md is made from it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from replayproxy.core import jsonvalue
from replayproxy.core.multipart import boundary_of, parts_key, parts_of, without_boundary
from replayproxy.core.values import Body, Fields, Request

VIEW_LIMIT = 8 * 1024 * 1024
"""A body above this many bytes, as sent or decoded, is compared byte for byte and never parsed."""

KEY_FIELDS = (
    b"range", b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range",
    b"content-type", b"authorization", b"x-api-key", b"api-key", b"upgrade", b"sec-websocket-protocol",
)  # fmt: skip
SECRET_KEY_FIELDS = frozenset({b"authorization", b"x-api-key", b"api-key"})


def digest(data: bytes) -> bytes:
    """The content address used everywhere: BLAKE2b with 32 bytes."""
    return blake2b(data, digest_size=32).digest()


def body_of(data: bytes) -> Body:
    """A whole body held in memory."""
    return Body(size=len(data), digest=digest(data), inline=data)


def field(fields: Fields, name: bytes) -> bytes | None:
    """The first value of a header field, by name without regard to case."""
    wanted = name.lower()
    for key, value in fields:
        if key.lower() == wanted:
            return value
    return None


def all_fields(fields: Fields, name: bytes) -> tuple[bytes, ...]:
    """Every value of a header field, in order."""
    wanted = name.lower()
    return tuple([value for key, value in fields if key.lower() == wanted])


def by_name(fields: Fields) -> dict[bytes, list[bytes]]:
    """Every value of every header field, by lower-case name: one pass for whoever looks at several."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        found.setdefault(name.lower(), []).append(value)
    return found


def media_type(fields: Fields) -> bytes:
    """The media type in lower case without parameters; b"" when there is none."""
    return (field(fields, b"content-type") or b"").partition(b";")[0].strip().lower()


def is_json_type(kind: bytes) -> bool:
    return kind in (b"application/json", b"text/json") or kind.endswith(b"+json")


def decoded(fields: Fields, data: bytes) -> bytes | None:
    """The body without its content coding, for people, keys and diffs; None when that cannot be had.

    gzip and deflate are undone, up to `VIEW_LIMIT` bytes of result. Any other coding, a list of two, or bytes that
    do not fit their label give None: the caller then compares the raw bytes.
    """
    coding = b",".join(all_fields(fields, b"content-encoding")).strip().lower()
    if coding in (b"", b"identity"):
        return data
    if not data:
        return data
    wbits = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}.get(coding)
    if wbits is None:
        return None
    try:
        inflate = zlib.decompressobj(wbits)
        out = inflate.decompress(data, VIEW_LIMIT + 1)
    except zlib.error:
        return None
    return out if inflate.eof and not inflate.unused_data and len(out) <= VIEW_LIMIT else None


class Kind(StrEnum):
    """How a body is looked at."""

    MISSING = "missing"  # not captured
    EMPTY = "empty"
    JSON = "json"
    FORM = "form"
    TEXT = "text"
    BYTES = "bytes"


class View:
    """A body as judgements see it. `value`: the JSON tree, the form's pairs, or the decoded bytes; `key` equal
    exactly when two views are one value. Most views are only read, so their key is made when it is asked for."""

    __slots__ = ("_key", "kind", "value")

    def __init__(self, *, kind: Kind, value: Any, key: bytes | Callable[[], bytes]) -> None:
        self.kind, self.value, self._key = kind, value, key

    @property
    def key(self) -> bytes:
        if not isinstance(self._key, bytes):
            self._key = self._key()
        return self._key


def split_query(raw: bytes) -> tuple[tuple[bytes, bytes | None], ...]:
    """The pairs of a query or form, percent-encoding kept; `a` gives (a, None), `a=` gives (a, b"")."""
    pairs: list[tuple[bytes, bytes | None]] = []
    for part in raw.split(b"&"):
        name, equals, value = part.partition(b"=")
        pairs.append((name, value if equals else None))
    return tuple(pairs)


def _multimap(pairs: tuple[tuple[bytes, bytes | None], ...]) -> tuple[tuple[bytes, bytes | None], ...]:
    return tuple(sorted(pairs, key=lambda pair: pair[0]))  # stable: the order within one name stays


def _multimap_bytes(pairs: tuple[tuple[bytes, bytes | None], ...]) -> bytes:
    return b"&".join(n if v is None else n + b"=" + v for n, v in _multimap(pairs))


def view(fields: Fields, body: Body | None) -> View:
    """The body by its content type, decoded if it can be. Never raises."""
    if body is None:
        return View(kind=Kind.MISSING, value=None, key=b"missing")
    if body.size == 0:
        return View(kind=Kind.EMPTY, value=b"", key=b"empty")
    if body.inline is None or body.size > VIEW_LIMIT:
        return View(kind=Kind.BYTES, value=None, key=b"bytes:" + body.digest)
    kind = media_type(fields)
    data = decoded(fields, body.inline)
    if data is None:
        return View(kind=Kind.BYTES, value=body.inline, key=b"bytes:" + body.digest)
    for rule in BODY_RULES:
        if rule.applies(kind) and (seen := rule.read(fields, data)) is not None:
            return seen
    sort = Kind.TEXT if kind.startswith(b"text/") or kind.endswith((b"/xml", b"+xml")) else Kind.BYTES
    return View(kind=sort, value=data, key=b"bytes:" + digest(data))


def _json_view(_: Fields, data: bytes) -> View | None:
    try:
        tree = jsonvalue.parse(data)
        if data.count(b"{") + data.count(b"[") > jsonvalue.MAX_DEPTH:
            jsonvalue.canonical(tree)  # refuses what nests too deeply
    except jsonvalue.NotJson:
        return None  # a body that is not what its header says is compared as bytes
    return View(kind=Kind.JSON, value=tree, key=lambda: b"json:" + digest(jsonvalue.canonical(tree)))


def _form_view(_: Fields, data: bytes) -> View:
    pairs = split_query(data)
    return View(kind=Kind.FORM, value=pairs, key=b"form:" + digest(_multimap_bytes(pairs)))


def _multipart_view(fields: Fields, data: bytes) -> View | None:
    boundary = boundary_of(field(fields, b"content-type") or b"")
    parts = parts_of(data, boundary) if boundary else None
    return None if parts is None else View(kind=Kind.BYTES, value=data, key=MULTIPART + digest(parts_key(parts)))


MULTIPART = b"multipart:"
"""How the key of a multipart body begins whose boundary does not count."""


class BodyRule(NamedTuple):
    """How bodies of some media types are looked at. `read` None: the body is not what its type says."""

    name: str
    applies: Callable[[bytes], bool]
    read: Callable[[Fields, bytes], View | None]
    rule: str


BODY_RULES = (
    BodyRule("JSON", is_json_type, _json_view,
             "by exact value: member order and white space ignored, 1 = 1.0 = 1e0, strings as they are"),
    BodyRule("form", lambda kind: kind == b"application/x-www-form-urlencoded", _form_view, "like a query"),
    BodyRule("multipart", lambda kind: kind.startswith(b"multipart/"), _multipart_view,
             "by its parts in order: their headers and bytes; the boundary counts neither here nor in Content-Type"),
)  # fmt: skip

KEY_TABLE: tuple[tuple[str, str, str], ...] = (
    ("environment, method", "yes", "as they are"),
    ("path", "yes", "raw bytes: percent-encoding, dots and doubled slashes are kept"),
    ("query", "yes",
     ("raw bytes; order between names ignored, within one name kept; `tag`, `tag=` and no `tag` are three things, "
      "`/list?` and `/list` two")),
    *((f"body, {rule.name}", "yes", rule.rule) for rule in BODY_RULES),
    ("body, JSON-RPC 2.0 call", "yes",
     ("like JSON; its `id`, `_meta.progressToken` and the `requestId` of a cancellation bind, and only that they "
      "are there is in the key")),
    ("body, other, undecodable, malformed, or larger than 8 MiB", "yes", "byte for byte"),
    ("body, none", "yes", "\"not captured\", empty, and `\"\"` are three bodies; no parser runs on zero bytes"),
    ("Range, If-*", "yes", "value as sent: they choose the representation"),
    ("Authorization, X-Api-Key, Api-Key", "yes", "by alias: the token that stands for the credential, else as sent"),
    ("Content-Type", "yes", "media type without regard to case, parameters in any order"),
    ("Upgrade to a WebSocket, Sec-WebSocket-Protocol", "yes", "a handshake is no plain GET of the same path"),
    ("any other header", "no", "recorded, shown, never matched"),
)  # fmt: skip
"""Part, whether it is in the key, and the rule: the words for what this module does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """What two requests must have in common to be one. Hashable; `fields` are (name, value), lower-case names."""

    env: str
    method: bytes
    path: bytes
    query: tuple[tuple[bytes, bytes | None], ...] | None
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes


def split_target(target: bytes) -> tuple[bytes, bytes | None]:
    """(raw path, raw query); no `?` gives None, `?` alone gives b""."""
    path, mark, query = target.partition(b"?")
    return path, query if mark else None


def request_key(env: str, request: Request) -> RequestKey:
    """The key of `KEY_TABLE`, with the ids of JSON-RPC calls in it (`core.callids` takes them out for a replay)."""
    return key_of(env, request, view(request.fields, request.body).key)


def key_of(env: str, request: Request, body: bytes) -> RequestKey:
    """The key of a request whose body has that key."""
    path, query = split_target(request.target)
    return RequestKey(
        env=env,
        method=request.method,
        path=path,
        query=None if query is None else _multimap(split_query(query)),
        fields=_key_fields(request.fields, bounded=not body.startswith(MULTIPART)),
        body=body,
    )


_KEY_NAMES = frozenset(KEY_FIELDS)


def _key_fields(fields: Fields, *, bounded: bool) -> tuple[tuple[bytes, bytes], ...]:
    """By name; within one name in their order."""
    out = []
    for name, value in fields:
        lower = name.lower()
        if lower not in _KEY_NAMES:
            continue
        if lower == b"content-type":
            out.append((lower, _content_type(value if bounded else without_boundary(value))))
        elif lower != b"upgrade":
            out.append((lower, value))
        elif value.strip().lower() == b"websocket":
            # Whether h2c or anything else was offered is the connection's business.
            out.append((lower, b"websocket"))
    if len(out) > 1:
        out.sort(key=lambda pair: pair[0])
    return tuple(out)


_PARAMETER = re.compile(rb'(?:[^";]|"[^"]*(?:"|\Z))+')


@lru_cache(maxsize=256)
def _content_type(value: bytes) -> bytes:
    # A semicolon inside quotes separates nothing.
    head, _, parameters = value.partition(b";")
    named = []
    for parameter in _PARAMETER.findall(parameters):
        name, equals, text = parameter.strip().partition(b"=")
        named.append(name.strip().lower() + equals + text.strip())
    return b";".join([head.strip().lower(), *sorted(filter(None, named))])


def same_bytes(a: Request, b: Request) -> bool:
    """Whether target, body and key headers are byte-equal: the grade `exact`."""
    raw_a = [(n.lower(), v) for n, v in a.fields if n.lower() in KEY_FIELDS]
    raw_b = [(n.lower(), v) for n, v in b.fields if n.lower() in KEY_FIELDS]
    digest_a = a.body.digest if a.body else None
    digest_b = b.body.digest if b.body else None
    return (a.method, a.target, sorted(raw_a), digest_a) == (b.method, b.target, sorted(raw_b), digest_b)
