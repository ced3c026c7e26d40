"""The canonical form of requests and bodies: what makes two requests one, in one table.

| part of a request | in the key | rule |
|---|---|---|
| environment, method | yes | as they are |
| path | yes | raw bytes: percent-encoding, dots and doubled slashes are kept |
| query | yes | order between names ignored, within one name kept; `tag`, `tag=` and no `tag` are three things |
| body, JSON | yes | by exact value: member order and white space ignored, 1 = 1.0 = 1e0, strings as they are |
| body, form | yes | like a query |
| body, other, undecodable, or larger than `VIEW_LIMIT` | yes | byte for byte |
| Range, If-*, Authorization, X-Api-Key, Api-Key | yes | value as sent |
| Content-Type | yes | media type without regard to case, parameters in any order |
| Upgrade to a WebSocket, Sec-WebSocket-Protocol | yes | a handshake is no plain GET of the same path |
| any other header | no | recorded, shown, never matched |
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from replayproxy.core import jsonvalue
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
    return next((value for key, value in fields if key.lower() == wanted), None)


def all_fields(fields: Fields, name: bytes) -> tuple[bytes, ...]:
    """Every value of a header field, in order."""
    wanted = name.lower()
    return tuple(value for key, value in fields if key.lower() == wanted)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A body as judgements see it. `value`: the JSON tree, the form's pairs, or the decoded bytes; `key` equal
    exactly when two views are one value."""

    kind: Kind
    value: Any
    key: bytes


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
    if is_json_type(kind):
        try:
            tree = jsonvalue.parse(data)
            return View(kind=Kind.JSON, value=tree, key=b"json:" + digest(jsonvalue.canonical(tree)))
        except jsonvalue.NotJson:
            pass  # a body that is not what its header says is compared as bytes
    if kind == b"application/x-www-form-urlencoded":
        pairs = split_query(data)
        return View(kind=Kind.FORM, value=pairs, key=b"form:" + digest(_multimap_bytes(pairs)))
    sort = Kind.TEXT if kind.startswith(b"text/") or kind.endswith((b"/xml", b"+xml")) else Kind.BYTES
    return View(kind=sort, value=data, key=b"bytes:" + digest(data))


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
    """The key of the table above."""
    path, query = split_target(request.target)
    return RequestKey(
        env=env,
        method=request.method,
        path=path,
        query=None if query is None else _multimap(split_query(query)),
        fields=_key_fields(request.fields),
        body=view(request.fields, request.body).key,
    )


def _key_fields(fields: Fields) -> tuple[tuple[bytes, bytes], ...]:
    out = []
    for name in KEY_FIELDS:
        values = all_fields(fields, name)
        if name == b"upgrade":
            # Whether h2c or anything else was offered is the connection's business.
            values = tuple(b"websocket" for value in values if value.strip().lower() == b"websocket")
        out += [(name, _content_type(value) if name == b"content-type" else value) for value in values]
    return tuple(out)


def _content_type(value: bytes) -> bytes:
    head, *parameters = [part.strip() for part in value.split(b";")]
    named = []
    for parameter in parameters:
        name, equals, text = parameter.partition(b"=")
        named.append(name.strip().lower() + equals + text.strip())
    return b";".join([head.lower(), *sorted(filter(None, named))])


def same_bytes(a: Request, b: Request) -> bool:
    """Whether target, body and key headers are byte-equal: the grade `exact`."""
    raw_a = [(n.lower(), v) for n, v in a.fields if n.lower() in KEY_FIELDS]
    raw_b = [(n.lower(), v) for n, v in b.fields if n.lower() in KEY_FIELDS]
    digest_a = a.body.digest if a.body else None
    digest_b = b.body.digest if b.body else None
    return (a.method, a.target, sorted(raw_a), digest_a) == (b.method, b.target, sorted(raw_b), digest_b)
