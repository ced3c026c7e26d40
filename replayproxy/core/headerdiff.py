"""Header fields: which are compared, and how.

Only the listed ones are compared; each cookie is an item of its own, sets (`Allow`, `Vary`) have no order, the
boundary of an upload is no content. The others are recorded and shown, and counted when they differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from replayproxy.core.difference import Difference, from_change
from replayproxy.core.treediff import ABSENT, tree_diff
from replayproxy.core.values import Exchange, Fields

RESPONSE_HEADERS = frozenset({
    b"content-type", b"content-encoding", b"content-range", b"location", b"content-location", b"etag",
    b"last-modified", b"cache-control", b"age", b"retry-after", b"set-cookie", b"link", b"www-authenticate", b"allow",
    b"vary", b"mcp-session-id",
})  # fmt: skip
REQUEST_HEADERS = frozenset({
    b"range", b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range",
    b"content-type", b"authorization", b"x-api-key", b"api-key", b"cookie", b"mcp-session-id", b"idempotency-key",
})  # fmt: skip
SECRET_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "cookie", "set-cookie", "mcp-session-id"})
VALIDATORS = frozenset({
    "etag", "last-modified", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range",
})  # fmt: skip
_URLS = frozenset({"location", "content-location"})
_SETS = frozenset({b"allow", b"vary"})


def headers(at: tuple[str, ...], a: Fields, b: Fields, listed: frozenset[bytes]) -> Iterator[Difference]:
    """What differs in the listed header fields; `at` is where they stand."""
    left, right = _listed(a, listed), _listed(b, listed)
    if left == right:
        return
    for raw in sorted(left.keys() | right.keys()):
        name = raw.decode("ascii")
        x, y = left.get(raw, []), right.get(raw, [])
        if x == y:
            continue
        if raw == b"set-cookie":
            yield from _cookies_set(at, x, y)
        elif raw == b"cookie":
            yield from _by_name((*at, name), _cookies_sent(x), _cookies_sent(y))
        else:
            yield from _values((*at, name), name, x, y)


def _listed(fields: Fields, listed: frozenset[bytes]) -> dict[bytes, list[str]]:
    out: dict[bytes, list[str]] = {}
    for name, value in fields:
        lower = name.lower()
        if lower in listed:
            out.setdefault(lower, []).append(_header_text(lower, value))
    return out


def _header_text(name: bytes, value: bytes) -> str:
    if name == b"content-type":
        head, *parameters = [part.strip() for part in value.split(b";")]
        parts = head.lower().startswith(b"multipart/")
        kept = [p for p in parameters if p and not (parts and p[:9].lower() == b"boundary=")]
        return text_of(b"; ".join([head.lower(), *sorted(kept)]))
    if name in _SETS:
        return ", ".join(sorted(part.strip() for part in text_of(value).split(",")))
    return text_of(value)


def _values(at: tuple[str, ...], name: str, a: list[str], b: list[str]) -> Iterator[Difference]:
    role = "url" if name in _URLS else "validator" if name in VALIDATORS else "text"
    secret = name in SECRET_HEADERS
    single = len(a) <= 1 and len(b) <= 1
    for index in range(max(len(a), len(b))):
        x = a[index] if index < len(a) else ABSENT
        y = b[index] if index < len(b) else ABSENT
        if x != y:
            kind = "added" if x is ABSENT else "removed" if y is ABSENT else "value"
            tokens: tuple[str | int, ...] = at if single else (*at, index)
            yield Difference(tokens=tokens, kind=kind, a=x, b=y, role=role, secret=secret)


def _cookies_sent(lines: list[str]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for part in ";".join(lines).split(";"):
        name, _, value = part.strip().partition("=")
        if name:
            out.setdefault(name, []).append(value)
    return out


def _by_name(at: tuple[str, ...], a: Mapping[str, list[str]], b: Mapping[str, list[str]]) -> Iterator[Difference]:
    for name in dict.fromkeys((*a, *b)):
        for difference in _values((*at, name), "cookie", a.get(name, []), b.get(name, [])):
            yield replace(difference, role="cookie", secret=True)


def _cookies_set(at: tuple[str, ...], a: list[str], b: list[str]) -> Iterator[Difference]:
    """Each cookie is an item of its own: its value, and each of its attributes."""
    left, right = _cookies_given(a), _cookies_given(b)
    values = [{name: [value for value, _ in cookies] for name, cookies in side.items()} for side in (left, right)]
    yield from _by_name((*at, "set-cookie"), values[0], values[1])
    for name in sorted(left.keys() & right.keys()):
        for (_, x), (_, y) in zip(left[name], right[name], strict=False):
            for change in tree_diff(x, y):
                yield from_change((*at, "set-cookie", name), change)


def _cookies_given(lines: list[str]) -> dict[str, list[tuple[str, dict[str, str]]]]:
    out: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for line in lines:
        head, *attributes = line.split(";")
        name, _, value = head.strip().partition("=")
        pairs = [attribute.strip().partition("=") for attribute in attributes if attribute.strip()]
        out.setdefault(name, []).append((value, {key.lower(): text for key, _, text in pairs}))
    return out


def count_beside(a: Exchange, b: Exchange, beside: Counter[str]) -> None:
    """Counts by name the headers of a pair that differ and are on no list, and every trailer that differs."""
    for x, y, listed in (
        (a.request.fields, b.request.fields, REQUEST_HEADERS),
        (a.response.fields if a.response else (), b.response.fields if b.response else (), RESPONSE_HEADERS),
    ):
        if x == y:
            continue
        left, right = _others(x, listed), _others(y, listed)
        for name in left.keys() | right.keys():
            if left.get(name) != right.get(name):
                beside[name.decode("ascii", "backslashreplace")] += 1
    for ends in ((a.request.trailers, b.request.trailers), _trailers(a, b)):
        if ends[0] == ends[1]:
            continue
        left, right = (_others(fields, frozenset()) for fields in ends)
        for name in left.keys() | right.keys():
            if left.get(name) != right.get(name):
                beside[f"trailer {name.decode('ascii', 'backslashreplace')}"] += 1


def _trailers(a: Exchange, b: Exchange) -> tuple[Fields, Fields]:
    return a.response.trailers if a.response else (), b.response.trailers if b.response else ()


def _others(fields: Fields, listed: frozenset[bytes]) -> dict[bytes, list[bytes]]:
    out: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        lower = name.lower()
        if lower not in listed:
            out.setdefault(lower, []).append(value)
    return out


def text_of(raw: bytes) -> str:
    """Bytes of the wire as text that stands for these bytes and no others."""
    return raw.decode("utf-8", "surrogateescape")
