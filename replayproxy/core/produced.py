"""Where an answer gives names that later requests may use: one walk over a recorded answer and its live counterpart.

`pairs` yields every place at which both answers hold an id, equal or not. Only what stands at the same place in both
is paired; where two documents have different shapes nothing is learned from the part that differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import VIEW_LIMIT, all_fields, decoded, is_json_type, media_type
from replayproxy.core.opaque import collection_of, is_opaque
from replayproxy.core.rewrite import VALUE, Scope, bare_tag, header, segment_scopes, subject, validator_scopes
from replayproxy.core.values import Request, Response

_TOKENS = re.compile(r"[A-Za-z0-9_-]+")
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]+)?/[^\s\"<>\\^`{|}]*\Z")
_BY_ROLE = frozenset({"etag", "last-modified", "set-cookie", "mcp-session-id", "location", "content-location", "date",
                      "content-length", "content-type", "server", "connection"})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One name: `recorded` and `live` stood at the same `place`, within `scope`. `newest`: a later one replaces it
    (validators, cookies); otherwise a recorded name keeps its one live name."""

    place: str
    scope: Scope
    recorded: str
    live: str
    newest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An answer and what it answers. `own` are the environment's authorities on this side (`host:port`)."""

    request: Request
    response: Response
    own: frozenset[str] = frozenset()


def pairs(env: str, recorded: Source, live: Source) -> Iterator[Pair]:
    """Every name that both answers give."""
    yield from _by_role(env, recorded, live)
    yield from _other_fields(env, recorded, live)
    yield from _bodies(env, recorded, live)


# -- header fields ---------------------------------------------------------------------------------------------------


def _by_role(env: str, recorded: Source, live: Source) -> Iterator[Pair]:
    a, b = recorded.response.fields, live.response.fields
    for name, kind in ((b"etag", "etag"), (b"last-modified", "last-modified")):
        left, right = header(a, name), header(b, name)
        if left is None or right is None:
            continue
        for scope in validator_scopes(kind, env, recorded.request.target)[:2]:
            yield Pair(place=f"header/{kind}", scope=scope, recorded=left, live=right, newest=True)
        if kind == "etag" and is_opaque(bare_tag(left)) and is_opaque(bare_tag(right)):
            yield Pair(place="header/etag", scope=VALUE, recorded=bare_tag(left), live=bare_tag(right))
    yield from _set_cookies(a, b)
    left, right = header(a, b"mcp-session-id"), header(b, b"mcp-session-id")
    if left is not None and right is not None:
        yield Pair(place="header/mcp-session-id", scope=("session", env), recorded=left, live=right)
    for name in (b"location", b"content-location"):
        left, right = header(a, name), header(b, name)
        if left is not None and right is not None:
            place = f"header/{name.decode()}"
            yield from _location(place, env, own_target(left, recorded), own_target(right, live))


def _set_cookies(a: Any, b: Any) -> Iterator[Pair]:
    theirs: dict[str, list[str]] = {}
    for name, value in _cookies(b):
        theirs.setdefault(name, []).append(value)
    for name, left in _cookies(a):
        if theirs.get(name):
            right = theirs[name].pop(0)
            place = f"header/set-cookie/{name}"
            yield Pair(place=place, scope=("cookie", name), recorded=left, live=right, newest=True)
            if is_opaque(left) and is_opaque(right):
                yield Pair(place=place, scope=VALUE, recorded=left, live=right)


def _cookies(fields: Any) -> Iterator[tuple[str, str]]:
    for raw in all_fields(fields, b"set-cookie"):
        name, equals, value = raw.decode("latin-1").partition(";")[0].strip().partition("=")
        if equals:
            yield name.strip(), value.strip()


def own_target(reference: str, source: Source) -> str | None:
    """What a client would request next if it followed the reference: None when that leads to another host."""
    try:
        parts = urlsplit(reference)
        if parts.netloc and parts.netloc.lower() not in source.own:
            return None
        if parts.netloc or reference.startswith("/"):
            path = parts.path or "/"
        else:
            base = source.request.target.decode("latin-1")
            path = urlsplit(urljoin("http://host" + base, reference)).path
    except ValueError:
        return None
    return path + (f"?{parts.query}" if "?" in reference else "")


def _location(place: str, env: str, left: str | None, right: str | None) -> Iterator[Pair]:
    if left is None or right is None:
        return
    yield Pair(place=place, scope=("location", env), recorded=left, live=right, newest=True)
    yield from _components(place, env, left, right)


def _components(place: str, env: str, left: str, right: str) -> Iterator[Pair]:
    """The segments and parameters of two URLs of one shape."""
    (a_path, _, a_query), (b_path, _, b_query) = left.partition("?"), right.partition("?")
    a_parts, b_parts = a_path.split("/"), b_path.split("/")
    if len(a_parts) == len(b_parts):
        for index, (x, y) in enumerate(zip(a_parts, b_parts, strict=True)):
            if x and y:
                yield from _named(f"{place}#path/{index}", segment_scopes(a_parts, index, env), unquote(x), unquote(y))
    theirs = dict(pair.partition("=")[::2] for pair in b_query.split("&"))
    for pair in a_query.split("&"):
        name, _, value = pair.partition("=")
        if value and theirs.get(name):
            x, y = unquote(value), unquote(theirs[name])
            owner = collection_of((unquote(name),), "")
            own: tuple[Scope, ...] = (("id", env, owner),) if owner else ()
            yield from _named(f"{place}#query/{name}", (*own, VALUE), x, y)


def _named(place: str, scopes: tuple[Scope, ...], left: str, right: str) -> Iterator[Pair]:
    """One token on both sides: by value where both are opaque, else as an id of its collection."""
    if is_opaque(left) and is_opaque(right):
        yield Pair(place=place, scope=VALUE, recorded=left, live=right)
        return
    for scope in scopes:
        if scope[0] == "id" and len(left) <= 64 and len(right) <= 64:
            yield Pair(place=place, scope=scope, recorded=left, live=right)


def _other_fields(env: str, recorded: Source, live: Source) -> Iterator[Pair]:
    """A field of any other name whose whole value is opaque (a CSRF token, a request id), or a URL."""
    theirs: dict[str, list[str]] = {}
    for name, value in live.response.fields:
        theirs.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    for raw, value in recorded.response.fields:
        low, left = raw.decode("latin-1").lower(), value.decode("latin-1")
        if low in _BY_ROLE or not theirs.get(low):
            continue
        yield from _text(f"header/{low}", env, left, theirs[low].pop(0))


# -- bodies ----------------------------------------------------------------------------------------------------------


def _bodies(env: str, recorded: Source, live: Source) -> Iterator[Pair]:
    a, b = recorded.response, live.response
    kind = media_type(a.fields)
    left, right = _plain(a), _plain(b)
    if not left or not right or max(len(left), len(right)) > VIEW_LIMIT:
        return
    about = subject(recorded.request)
    if is_json_type(kind):
        try:
            yield from _json("body", env, about, (), jsonvalue.parse(left), jsonvalue.parse(right))
        except jsonvalue.NotJson:
            pass  # whatever its type says: nothing is learned from it
    elif kind == b"text/event-stream":
        yield from _events(env, about, left.decode("utf-8", "replace"), right.decode("utf-8", "replace"))
    elif kind.startswith(b"text/") or kind.endswith((b"/xml", b"+xml")):
        yield from _prose(left.decode("latin-1"), right.decode("latin-1"))


def _plain(response: Response) -> bytes:
    return decoded(response.fields, response.body.inline or b"") or b"" if response.body else b""


def _json(place: str, env: str, about: str, path: tuple[str | int, ...], left: Any, right: Any) -> Iterator[Pair]:
    if isinstance(left, dict) and isinstance(right, dict):
        for name in left:
            if name in right:
                yield from _json(place, env, about, (*path, name), left[name], right[name])
        yield from _member_names(place, env, about, path, left, right)
    elif isinstance(left, list) and isinstance(right, list):
        for index, other in _aligned(left, right):
            yield from _json(place, env, about, (*path, index), left[index], right[other])
    elif not isinstance(left, dict | list) and not isinstance(right, dict | list):
        yield from _leaf(place, env, about, path, left, right)


def _leaf(place: str, env: str, about: str, path: tuple[str | int, ...], left: Any, right: Any) -> Iterator[Pair]:
    owner = collection_of(path, about)
    if owner is not None and _is_name(left) and _is_name(right):
        yield from _named(place + jsonvalue.pointer(*path), (("id", env, owner),), str(left), str(right))
    elif isinstance(left, str) and isinstance(right, str) and len(left) >= 8 and len(right) >= 8:
        where = place + jsonvalue.pointer(*path)
        yield from _text(where, env, left, right)
        if left[0] in "{[" and right[0] == left[0]:
            try:
                yield from _json(f"{where}#", env, about, (), jsonvalue.parse(left), jsonvalue.parse(right))
            except jsonvalue.NotJson:
                pass  # a text that only begins like JSON


def _is_name(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, str) and 0 < len(value) <= 4096 and not re.search(r"\s", value))


def _text(place: str, env: str, left: str, right: str) -> Iterator[Pair]:
    if is_opaque(left) and is_opaque(right):
        yield Pair(place=place, scope=VALUE, recorded=left, live=right)
    elif _URL.match(left) and _URL.match(right):
        yield from _components(place, env, _without_origin(left), _without_origin(right))


def _without_origin(url: str) -> str:
    return "/" + url.partition("://")[2].partition("/")[2] if "://" in url else url


def _member_names(
    place: str, env: str, about: str, path: tuple[str | int, ...], left: dict[str, Any], right: dict[str, Any]
) -> Iterator[Pair]:
    """Objects whose members are named by ids: paired by position where as many are new on both sides."""
    ours = [name for name in left if name not in right]
    theirs = [name for name in right if name not in left]
    if len(ours) == len(theirs) and all(map(is_opaque, ours)) and all(map(is_opaque, theirs)):
        for name, other in zip(ours, theirs, strict=True):
            yield Pair(place=place + jsonvalue.pointer(*path, name), scope=VALUE, recorded=name, live=other)
            yield from _json(place, env, about, (*path, name), left[name], right[other])


def _aligned(left: list[Any], right: list[Any]) -> Iterator[tuple[int, int]]:
    """Which elements belong together: by what they hold beside ids if that tells them apart, else by position."""
    if len(left) != len(right):
        return
    if left == right:
        yield from ((index, index) for index in range(len(left)))
        return
    shapes_a, shapes_b = [_masked(item) for item in left], [_masked(item) for item in right]
    if shapes_a != shapes_b and len(set(shapes_a)) == len(left) and set(shapes_a) == set(shapes_b):
        where = {shape: index for index, shape in enumerate(shapes_b)}
        yield from ((index, where[shape]) for index, shape in enumerate(shapes_a))
    else:
        yield from ((index, index) for index in range(len(left)))


def _masked(value: Any, name: str = "") -> bytes:
    return jsonvalue.canonical(_without_ids(value, name))


def _without_ids(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _without_ids(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_ids(item, name) for item in value]
    if collection_of((name,), "x") is not None and _is_name(value):
        return None
    return None if isinstance(value, str) and is_opaque(value) else value


def _events(env: str, about: str, left: str, right: str) -> Iterator[Pair]:
    """Server-sent events, the n-th with the n-th: their ids, and their data where it is JSON."""
    for index, (a, b) in enumerate(zip(events(left), events(right), strict=False)):
        place = f"body/{index}"
        for name in ("id", "data"):
            x, y = a.get(name), b.get(name)
            if not x or not y:
                continue
            yield from _text(f"{place}/{name}", env, x, y)
            if name == "data" and x[:1] in ("{", "["):
                try:
                    yield from _json(f"{place}/data", env, about, (), jsonvalue.parse(x), jsonvalue.parse(y))
                except jsonvalue.NotJson:
                    pass  # not every stream speaks JSON


def events(text: str) -> list[dict[str, str]]:
    """The events of a `text/event-stream` that are whole, each with its fields joined as the standard says."""
    found = []
    for block in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n")[:-1]:
        event: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if name:
                value = value.removeprefix(" ")
                event[name] = f"{event[name]}\n{value}" if name in event else value
        if event:
            found.append(event)
    return found


def _prose(left: str, right: str) -> Iterator[Pair]:
    """HTML, XML and plain text: token by token, if there are as many on both sides."""
    ours, theirs = _TOKENS.findall(left), _TOKENS.findall(right)
    if len(ours) == len(theirs):
        for index, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            if x != y and is_opaque(x) and is_opaque(y):
                yield Pair(place=f"body#{index}", scope=VALUE, recorded=x, live=y)
