"""Where a request can name something that an earlier answer gave: one walk over all such places, byte for byte.

`rewrite` asks `lookup(place, scopes, text)` at each of them and puts the answer there; None leaves the bytes as they
are. Nothing else of the request changes but, where the body's length did, its Content-Length. Places are
`target`, `path/2` (the second segment), `query/deal_id`, `header/if-match`, `header/cookie/sid`, `body/deal_id`
(a JSON pointer or a form's name), `body` (a token of XML or of a multipart body).
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, all_fields, body_of, decoded, field, media_type, split_target, view
from replayproxy.core.effects import json_rpc_calls
from replayproxy.core.opaque import collection_of, is_opaque, noun, singular
from replayproxy.core.values import Body, Fields, Request

type Scope = tuple[str, ...]
"""Within which a recorded value has one live value: `("value",)`, `("id", env, "deal")`, `("etag", env, path)`."""

type Lookup = Callable[[str, tuple[Scope, ...], str], str | None]

VALUE: Scope = ("value",)
AUTHORITY: Scope = ("authority",)
ENTITY_TAG = re.compile(r'(?:W/)?"[^"]*"')
_VALIDATORS = {b"if-match": "etag", b"if-none-match": "etag", b"if-range": "etag",
               b"if-modified-since": "last-modified", b"if-unmodified-since": "last-modified"}  # fmt: skip
_NEVER = frozenset({b"host", b"content-length", b"transfer-encoding", b"content-type", b"connection", b"user-agent",
                    b"accept", b"accept-encoding", b"content-encoding", b"date", b"expect", b"upgrade"})  # fmt: skip
_URL = re.compile(r"(?P<origin>[A-Za-z][A-Za-z0-9+.-]*://(?P<authority>[^/?#\s]+))?(?P<rest>[^\s\"<>\\^`{|}]*)\Z")
_TEXT_TOKEN = re.compile(r"[A-Za-z0-9_-]{8,}")


def scopes_of(text: str, *more: Scope) -> tuple[Scope, ...]:
    """`more`, and that of values bound by themselves if the text is one that can be."""
    return (*more, VALUE) if is_opaque(text) else more


def subject(request: Request) -> str:
    """Whose resources a request is about: `deal` for `POST /deals` and `GET /deals/42`, `note` for a tool call
    `create_note`. The last path segment that is a word rather than an id."""
    for call in json_rpc_calls(request) or ():
        params = call.get("params")
        if call.get("method") == "tools/call" and isinstance(params, dict):
            return noun(str(params.get("name", "")))
    path, _ = split_target(request.target)
    words = [unquote(part.decode("latin-1")) for part in path.split(b"/") if part]
    return next((singular(word) for word in reversed(words) if not any(c.isdigit() for c in word)), "")


def rewrite(request: Request, env: str, lookup: Lookup) -> Request:
    """The request with each place that `lookup` knew replaced; the same object when it knew none."""
    about = subject(request)
    target = _target(request.target, env, about, lookup)
    fields = tuple((name, _field(name, value, request, env, lookup)) for name, value in request.fields)
    body = _body(request, env, about, lookup)
    if (target, fields, body) == (request.target, request.fields, request.body):
        return request
    if body is not None and request.body is not None and body.size != request.body.size:
        fields = _with_length(fields, body.size)
    return replace(request, target=target, fields=fields, body=body)


def _with_length(fields: Fields, size: int) -> Fields:
    return tuple((n, str(size).encode() if n.lower() == b"content-length" else v) for n, v in fields)


# -- target and URLs -------------------------------------------------------------------------------------------------


def _target(target: bytes, env: str, about: str, lookup: Lookup) -> bytes:
    if not target.startswith(b"/"):
        return target
    text = target.decode("latin-1")
    whole = lookup("target", (("location", env),), text)
    return whole.encode("latin-1") if whole is not None else url_rest(text, env, about, lookup).encode("latin-1")


def url_rest(text: str, env: str, about: str, lookup: Lookup, at: str = "") -> str:
    """Path and query of a URL, by segments and by parameters."""
    path, mark, query = text.partition("?")
    parts = path.split("/")
    for index, part in enumerate(parts):
        if part and (live := lookup(f"{at}path/{index}", segment_scopes(parts, index, env), unquote(part))) is not None:
            parts[index] = quote(live, safe="-._~!$&'()*+,;=:@")
    if not mark:
        return "/".join(parts)
    return "/".join(parts) + "?" + _pairs(query, env, about, lookup, f"{at}query")


def segment_scopes(parts: list[str], index: int, env: str) -> tuple[Scope, ...]:
    """In which scopes a path segment may be bound: as an id of the collection before it, or by value."""
    before = next((part for part in reversed(parts[:index]) if part), "")
    own = (("id", env, singular(unquote(before))),) if before else ()
    return scopes_of(unquote(parts[index]), *own)


def _pairs(text: str, env: str, about: str, lookup: Lookup, at: str) -> str:
    out = []
    for pair in text.split("&"):
        name, equals, value = pair.partition("=")
        new = _scalar(f"{at}/{unquote(name)}", unquote(name), unquote(value.replace("+", " ")), env, about, lookup)
        out.append(pair if new is None else name + equals + quote(new, safe="-._~!$'()*,:@/"))
    return "&".join(out)


def _scalar(place: str, name: str, text: str, env: str, about: str, lookup: Lookup) -> str | None:
    """One named text: whole, or by the components of the URL that it is."""
    owner = collection_of((name,), about)
    own: tuple[Scope, ...] = (("id", env, owner),) if owner is not None and len(text) <= 64 else ()
    scopes = scopes_of(text, *own)
    if scopes and (live := lookup(place, scopes, text)) is not None:
        return live
    return _url(place, text, env, about, lookup)


def _url(place: str, text: str, env: str, about: str, lookup: Lookup) -> str | None:
    """A URL, absolute or beginning with `/`, with its components replaced; None when none was or it is no URL."""
    match = _URL.match(text)
    if not match or not (match["origin"] or text.startswith("/")):
        return None
    origin = match["origin"] or ""
    if match["authority"] and (live := lookup(place, (AUTHORITY,), match["authority"].lower())) is not None:
        origin = origin[: len(origin) - len(match["authority"])] + live
    new = origin + url_rest(match["rest"], env, about, lookup, at=f"{place}#")
    return new if new != text else None


# -- header fields ---------------------------------------------------------------------------------------------------


def validator_scopes(kind: str, env: str, target: bytes) -> tuple[Scope, ...]:
    """The URI itself, its path without the query, the collection that it is in: a validator of the nearest counts."""
    text = target.decode("latin-1")
    path = text.partition("?")[0]
    parent = path.rstrip("/").rpartition("/")[0]
    return tuple(dict.fromkeys((kind, env, uri) for uri in (text, path, parent) if uri))


def _field(name: bytes, value: bytes, request: Request, env: str, lookup: Lookup) -> bytes:
    low = name.lower()
    text = value.decode("latin-1")
    place = f"header/{low.decode('latin-1')}"
    new: str | None = None
    if low in _VALIDATORS:
        new = _validators(place, _VALIDATORS[low], text, request, env, lookup)
    elif low == b"cookie":
        new = _cookies(place, text, lookup)
    elif low == b"mcp-session-id":
        new = lookup(place, scopes_of(text, ("session", env)), text)
    elif low not in _NEVER:
        scheme, space, token = text.rpartition(" ")
        if is_opaque(token) and (not scheme or low in (b"authorization", b"proxy-authorization")):
            live = lookup(place, (VALUE,), token)
            new = None if live is None else scheme + space + live
        else:
            new = _url(place, text, env, "", lookup)
    return value if new is None else new.encode("latin-1", "replace")


def _validators(place: str, kind: str, text: str, request: Request, env: str, lookup: Lookup) -> str | None:
    def one(tag: str) -> str:
        live = lookup(place, validator_scopes(kind, env, request.target), tag)
        bare = bare_tag(tag)
        if live is None and is_opaque(bare) and (inner := lookup(place, (VALUE,), bare)) is not None:
            live = tag.replace(bare, inner)
        return tag if live is None else live

    if kind == "etag" and ENTITY_TAG.search(text):
        new = ENTITY_TAG.sub(lambda match: one(match[0]), text)
    elif kind == "etag" and text.strip() != "*" and not text.endswith("GMT"):
        new = one(text)
    else:  # If-Range may hold a date as well
        found = lookup(place, validator_scopes("last-modified", env, request.target), text)
        new = text if found is None else found
    return new if new != text else None


def bare_tag(tag: str) -> str:
    """An entity tag without its mark of weakness and its quotes."""
    return tag.removeprefix("W/").strip('"')


def _cookies(place: str, text: str, lookup: Lookup) -> str | None:
    parts = re.split(r"(;\s*)", text)
    for index, part in enumerate(parts):
        name, equals, value = part.partition("=")
        if not equals:
            continue
        live = lookup(f"{place}/{name}", scopes_of(value, ("cookie", name)), value)
        if live is not None:
            parts[index] = f"{name}={live}"
    new = "".join(parts)
    return new if new != text else None


# -- bodies ----------------------------------------------------------------------------------------------------------


def _body(request: Request, env: str, about: str, lookup: Lookup) -> Body | None:
    body = request.body
    if body is None or not body.inline:
        return body
    seen = view(request.fields, body)
    raw = decoded(request.fields, body.inline)
    if raw is None:
        return body
    kind = media_type(request.fields)
    if seen.kind is Kind.JSON:
        new = json_text(raw.decode("utf-8"), env, about, lookup).encode("utf-8")
    elif seen.kind is Kind.FORM:
        new = _pairs(raw.decode("latin-1"), env, about, lookup, "body").encode("latin-1")
    elif kind.endswith((b"/xml", b"+xml")) or kind.startswith(b"multipart/"):
        text = raw.decode("latin-1")
        new = _TEXT_TOKEN.sub(lambda match: _token(match[0], lookup), text).encode("latin-1")
    else:
        return body
    if new == raw:
        return body
    return body_of(_encoded(request.fields, new))


def _token(text: str, lookup: Lookup) -> str:
    live = lookup("body", (VALUE,), text) if is_opaque(text) else None
    return text if live is None else live


def _encoded(fields: Fields, data: bytes) -> bytes:
    coding = b",".join(all_fields(fields, b"content-encoding")).strip().lower()
    if coding in (b"gzip", b"x-gzip"):
        return gzip.compress(data, mtime=0)
    return zlib.compress(data) if coding == b"deflate" else data


def json_text(text: str, env: str, about: str, lookup: Lookup, at: str = "body") -> str:
    """A JSON document with scalars replaced in place: white space, member order and number forms stay."""
    out, done = [], 0
    for path, start, end in spans(text):
        new = _json_scalar(path, text[start:end], env, about, lookup, at)
        if new is not None:
            out += [text[done:start], new]
            done = end
    return "".join(out) + text[done:]


def _json_scalar(path: tuple[str | int, ...], raw: str, env: str, about: str, lookup: Lookup, at: str) -> str | None:
    place = at + jsonvalue.pointer(*path)
    owner = collection_of(path, about)
    if raw[0] != '"':
        if owner is None or not raw.lstrip("-").isdigit():
            return None
        live = lookup(place, (("id", env, owner),), raw)
        return live if live is None or live.lstrip("-").isdigit() else json.dumps(live)
    text = json.loads(raw)
    own: tuple[Scope, ...] = (("id", env, owner),) if owner is not None and len(text) <= 64 else ()
    scopes = scopes_of(text, *own)
    new = lookup(place, scopes, text) if scopes else None
    if new is None:
        new = _url(place, text, env, about, lookup)
    if new is None and text[:1] in ("{", "[") and is_json(text):
        inner = json_text(text, env, about, lookup, at=f"{place}#")
        new = inner if inner != text else None
    return None if new is None else json.dumps(new, ensure_ascii=raw.isascii())


def is_json(text: str) -> bool:
    """Whether a text is a JSON document of its own."""
    try:
        jsonvalue.parse(text)
    except jsonvalue.NotJson:
        return False
    return True


_LEXEME = re.compile(r'\s*(?:(?P<scalar>"(?:[^"\\]|\\.)*"|[-+.0-9A-Za-z]+)|(?P<mark>[\[\]{},:]))', re.DOTALL)


def spans(text: str) -> Iterator[tuple[tuple[str | int, ...], int, int]]:
    """(path, start, end) of every scalar of a JSON text that is known to be valid."""
    path: list[Any] = []
    naming = [False]  # whether the next scalar at this depth is a member's name
    for lexeme in _LEXEME.finditer(text):
        mark, scalar = lexeme["mark"], lexeme["scalar"]
        if scalar is not None:
            if naming[-1]:
                path[-1], naming[-1] = json.loads(scalar), False
            else:
                yield tuple(path), lexeme.start("scalar"), lexeme.end("scalar")
        elif mark == "{":
            path.append(None)
            naming.append(True)
        elif mark == "[":
            path.append(0)
            naming.append(False)
        elif mark in "]}":
            path.pop()
            naming.pop()
        elif mark == ",":
            if isinstance(path[-1], int):
                path[-1] += 1
            else:
                naming[-1] = True


def header(fields: Fields, name: bytes) -> str | None:
    """The first value of a field as text."""
    value = field(fields, name)
    return None if value is None else value.decode("latin-1")
