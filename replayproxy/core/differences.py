"""What differs between two exchanges, each difference at its place. Whether it is explained is decided elsewhere.

| place | pointer | compared |
|---|---|---|
| method, path, query | `request/method`, `request/path`, `request/query/NAME` | exactly; the query as a multimap |
| request headers | `request/header/NAME` | those of `REQUEST_HEADERS`; cookies one by one |
| request body, answer's body | `request/body/..`, `body/..` | see `bodies` |
| how it ended | `outcome` | exactly; of an answer that broke off, what both sides have |
| status | `status` | exactly |
| answer's headers | `header/NAME`, `header/set-cookie/COOKIE` | those of `RESPONSE_HEADERS` |
| WebSocket | `websocket/agent/N/..`, `websocket/env/N/..`, `websocket/close` | each direction in its order |

Headers outside the lists are recorded and shown, and counted here when they differ (`beside`), never judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.align import align
from replayproxy.core.bodies import TREES, Content, content, multimaps, summary
from replayproxy.core.canonical import split_query, split_target
from replayproxy.core.tokens import skeleton
from replayproxy.core.treediff import ABSENT, Change, Soften, tree_diff
from replayproxy.core.values import Body, Exchange, Fields, Outcome, WebSocket

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
_BROKEN = frozenset({Outcome.CLIENT_GONE, Outcome.CUT, Outcome.OPEN_AT_END, Outcome.TIMED_OUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place at which two paired exchanges (or two rows of their states) differ.

    `tokens` is the pointer taken apart, as A has it (as B has it where only B has it). `role` tells what kind of
    text stands there: `url`, `validator`, `cookie`, `row` (a row's key), or `text`. `kind` as of `treediff.Change`,
    or `status`, `outcome`. The values of a `secret` place are never shown.
    """

    tokens: tuple[str | int, ...]
    kind: str
    a: Any
    b: Any
    role: str = "text"
    secret: bool = False
    note: str = ""

    @property
    def pointer(self) -> str:
        return jsonvalue.pointer(*self.tokens)[1:]

    @property
    def general(self) -> str:
        """The pointer with `*` for every array index."""
        return jsonvalue.pointer(*["*" if isinstance(token, int) else token for token in self.tokens])[1:]

    @property
    def asked(self) -> bool:
        """Whether it is the agent's doing, not the environment's."""
        return self.tokens[0] == "request"


def between(a: Exchange, b: Exchange, soften: Soften | None = None, beside: Counter[str] | None = None) -> list[Difference]:
    """Every difference of a pair. `beside` counts the headers that differ and are not compared."""
    out = list(_asked(a, b, soften))
    if a.outcome is not b.outcome:
        out.append(Difference(tokens=("outcome",), kind="outcome", a=str(a.outcome), b=str(b.outcome)))
    out += _answered(a, b, soften)
    if a.websocket or b.websocket:
        out += _websockets(a.websocket, b.websocket, soften)
    if beside is not None:
        _count_beside(a, b, beside)
    return out


def _asked(a: Exchange, b: Exchange, soften: Soften | None) -> Iterator[Difference]:
    x, y = a.request, b.request
    if x.method != y.method:
        yield Difference(tokens=("request", "method"), kind="value", a=_text(x.method), b=_text(y.method))
    if x.target != y.target:
        (path_a, query_a), (path_b, query_b) = split_target(x.target), split_target(y.target)
        if path_a != path_b:
            yield Difference(tokens=("request", "path"), kind="value", a=_text(path_a), b=_text(path_b), role="url")
        if query_a != query_b:
            maps = multimaps(*[() if raw is None else split_query(raw) for raw in (query_a, query_b)])
            yield from _tree(("request", "query"), *maps, soften)
    if x.fields != y.fields:
        yield from _headers(("request", "header"), x.fields, y.fields, REQUEST_HEADERS)
    yield from _bodies(("request", "body"), (x.fields, x.body), (y.fields, y.body), soften)


def _answered(a: Exchange, b: Exchange, soften: Soften | None) -> Iterator[Difference]:
    x, y = a.response, b.response
    if x is None or y is None:
        if a.outcome is b.outcome and (x is None) != (y is None):
            # Both broke off, one before and one after its answer's head: how far it came is chance, that it came is not.
            yield Difference(tokens=("status",), kind="status", a=x.status if x else ABSENT, b=y.status if y else ABSENT)
        return
    if x.status != y.status:
        yield Difference(tokens=("status",), kind="status", a=x.status, b=y.status)
    if x.fields != y.fields:
        yield from _headers(("header",), x.fields, y.fields, RESPONSE_HEADERS)
    if a.outcome in _BROKEN and b.outcome in _BROKEN:
        yield from _prefixes(x.body, y.body)
    else:
        yield from _bodies(("body",), (x.fields, x.body), (y.fields, y.body), soften)


def _prefixes(a: Body | None, b: Body | None) -> Iterator[Difference]:
    """Of two answers that broke off, the shorter is to be the beginning of the longer."""
    if a is None or b is None or a.inline is None or b.inline is None:
        return
    shared = min(a.size, b.size)
    if a.inline[:shared] != b.inline[:shared]:
        yield from _lines(("body",), _text(a.inline[:shared]), _text(b.inline[:shared]))


def _bodies(
    at: tuple[str, ...], a: tuple[Fields, Body | None], b: tuple[Fields, Body | None], soften: Soften | None
) -> Iterator[Difference]:
    (_, x), (_, y) = a, b
    if x is not None and y is not None and x.digest == y.digest and x.size == y.size:
        return
    left, right = content(*a), content(*b)
    if left.kind != right.kind:
        yield Difference(tokens=at, kind="type", a=_described(left, x), b=_described(right, y))
    elif left.kind in TREES:
        yield from _tree(at, left.value, right.value, soften)
    elif left.kind == "form":
        yield from _tree(at, *multimaps(left.value, right.value), soften)
    elif left.kind == "text":
        yield from _lines(at, left.value, right.value)
    elif left.kind == "bytes":
        yield Difference(tokens=at, kind="value", a=_whole(left, x), b=_whole(right, y))


def _described(seen: Content, body: Body | None) -> str:
    return f"{seen}, {body.size} bytes" if body is not None and body.size else str(seen)


def _whole(seen: Content, body: Body | None) -> Any:
    if seen.value is not None:
        return summary(seen.value)
    return {"bytes": body.size, "digest": body.digest.hex()[:16]} if body else ABSENT


def _tree(at: tuple[str, ...], a: Any, b: Any, soften: Soften | None) -> Iterator[Difference]:
    for change in tree_diff(a, b, soften):
        yield from_change(at, change)


def from_change(at: tuple[str, ...], change: Change) -> Difference:
    """A change of a tree that stands at `at`."""
    path = change.b_path if change.kind == "added" else change.a_path
    return Difference(tokens=(*at, *path), kind=change.kind, a=change.a, b=change.b)


def _lines(at: tuple[str, ...], a: str, b: str) -> Iterator[Difference]:
    """Texts line by line; a line that was changed meets its fellow by the words around what may be renamed."""
    left, right = a.splitlines(keepends=True), b.splitlines(keepends=True)

    def likeness(x: int, y: int) -> float:
        return 1.5 if skeleton(left[x]).rest == skeleton(right[y]).rest else 0.25

    pairs = align(left, right, likeness, window=64)
    for x, y in pairs:
        if x is not None and y is not None and left[x] == right[y]:
            continue
        number = (y if x is None else x) or 0
        kind = "added" if x is None else "removed" if y is None else "value"
        yield Difference(
            tokens=(*at[:-1], f"{at[-1]}#line={number + 1}"),
            kind=kind,
            a=ABSENT if x is None else left[x].rstrip("\r\n"),
            b=ABSENT if y is None else right[y].rstrip("\r\n"),
        )


def _headers(at: tuple[str, ...], a: Fields, b: Fields, listed: frozenset[bytes]) -> Iterator[Difference]:
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
        kept = [p for p in parameters if p and not (head.lower().startswith(b"multipart/") and p[:9].lower() == b"boundary=")]
        return _text(b"; ".join([head.lower(), *sorted(kept)]))
    if name in _SETS:
        return ", ".join(sorted(part.strip() for part in _text(value).split(",")))
    return _text(value)


def _values(at: tuple[str, ...], name: str, a: list[str], b: list[str]) -> Iterator[Difference]:
    role = "url" if name in _URLS else "validator" if name in VALIDATORS else "text"
    secret = name in SECRET_HEADERS
    single = len(a) <= 1 and len(b) <= 1
    for index in range(max(len(a), len(b))):
        x = a[index] if index < len(a) else ABSENT
        y = b[index] if index < len(b) else ABSENT
        if x != y:
            kind = "added" if x is ABSENT else "removed" if y is ABSENT else "value"
            tokens = at if single else (*at, index)
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
            yield Difference(
                tokens=difference.tokens, kind=difference.kind, a=difference.a, b=difference.b, role="cookie", secret=True
            )


def _cookies_set(at: tuple[str, ...], a: list[str], b: list[str]) -> Iterator[Difference]:
    """Each cookie is an item of its own: its value, and each of its attributes."""
    left, right = _cookies_given(a), _cookies_given(b)
    yield from _by_name(
        (*at, "set-cookie"), {n: [c[0] for c in cs] for n, cs in left.items()}, {n: [c[0] for c in cs] for n, cs in right.items()}
    )
    for name in left.keys() & right.keys():
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


def _websockets(a: WebSocket | None, b: WebSocket | None, soften: Soften | None) -> Iterator[Difference]:
    if a is None or b is None:
        yield Difference(tokens=("websocket",), kind="removed" if a else "added", a=_shown(a), b=_shown(b))
        return
    for direction, from_agent in (("agent", True), ("env", False)):
        sides = [[_message(m.text, m.payload) for m in side.messages if m.from_agent is from_agent] for side in (a, b)]
        at = ("request", "websocket") if from_agent else ("websocket", direction)
        yield from _tree(at, sides[0], sides[1], soften)
    if (a.close_code, a.closed_by_agent) != (b.close_code, b.closed_by_agent):
        yield Difference(tokens=("websocket", "close"), kind="value", a=_close(a), b=_close(b))


def _shown(websocket: WebSocket | None) -> Any:
    return ABSENT if websocket is None else f"{len(websocket.messages)} messages"


def _close(websocket: WebSocket) -> str:
    return f"{websocket.close_code} by {'the agent' if websocket.closed_by_agent else 'the environment'}"


def _message(text: bool, payload: bytes) -> Any:
    if not text:
        return summary(payload)
    try:
        tree = jsonvalue.parse(payload)
        jsonvalue.canonical(tree)
        return tree
    except jsonvalue.NotJson:
        return _text(payload)


def _count_beside(a: Exchange, b: Exchange, beside: Counter[str]) -> None:
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


def _others(fields: Fields, listed: frozenset[bytes]) -> dict[bytes, list[bytes]]:
    out: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        lower = name.lower()
        if lower not in listed:
            out.setdefault(lower, []).append(value)
    return out


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
