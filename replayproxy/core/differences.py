"""What differs between two exchanges, each difference at its place. Whether it is explained is decided elsewhere.

| place | pointer | compared |
|---|---|---|
| method, path, query | `request/method`, `request/path`, `request/query/NAME` | exactly; the query as a multimap |
| request headers | `request/header/NAME` | those of `REQUEST_HEADERS`; cookies one by one |
| request body, answer's body | `request/body/..`, `body/..` | see `bodies` |
| how it ended | `outcome` | exactly; of an answer that broke off, what both sides have |
| status | `status` | exactly |
| answer's headers | `header/NAME`, `header/set-cookie/COOKIE` | those of `RESPONSE_HEADERS` |
| WebSocket | `request/websocket/N/..`, `websocket/env/N/..`, `websocket/close` | each direction in its order, from 0 |

Headers outside the lists are recorded and shown, and counted here when they differ (`beside`), never judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.align import align
from replayproxy.core.bodies import TREES, Content, content, multimaps, summary
from replayproxy.core.canonical import split_query, split_target
from replayproxy.core.difference import Difference, from_change
from replayproxy.core.headerdiff import REQUEST_HEADERS, RESPONSE_HEADERS, count_beside, headers, text_of
from replayproxy.core.shown import count
from replayproxy.core.tokens import skeleton
from replayproxy.core.treediff import ABSENT, Soften, tree_diff
from replayproxy.core.values import Body, Exchange, Fields, Outcome, WebSocket

_BROKEN = frozenset({Outcome.CLIENT_GONE, Outcome.CUT, Outcome.OPEN_AT_END, Outcome.TIMED_OUT})


def between(
    a: Exchange, b: Exchange, soften: Soften | None = None, beside: Counter[str] | None = None
) -> list[Difference]:
    """Every difference of a pair. `beside` counts the headers that differ and are not compared."""
    out = list(_asked(a, b, soften))
    if a.outcome is not b.outcome:
        out.append(Difference(tokens=("outcome",), kind="outcome", a=str(a.outcome), b=str(b.outcome)))
    out += _answered(a, b, soften)
    if a.websocket or b.websocket:
        out += _websockets(a, b, soften)
    if beside is not None:
        count_beside(a, b, beside)
    return out


def _asked(a: Exchange, b: Exchange, soften: Soften | None) -> Iterator[Difference]:
    x, y = a.request, b.request
    if x.method != y.method:
        yield Difference(tokens=("request", "method"), kind="value", a=text_of(x.method), b=text_of(y.method))
    if x.target != y.target:
        (path_a, query_a), (path_b, query_b) = split_target(x.target), split_target(y.target)
        if path_a != path_b:
            yield Difference(tokens=("request", "path"), kind="value", a=text_of(path_a), b=text_of(path_b), role="url")
        if query_a != query_b:
            maps = multimaps(*[() if raw is None else split_query(raw) for raw in (query_a, query_b)])
            yield from _tree(("request", "query"), *maps, soften)
    if x.fields != y.fields:
        yield from headers(("request", "header"), x.fields, y.fields, REQUEST_HEADERS)
    yield from _bodies(("request", "body"), (x.fields, x.body), (y.fields, y.body), soften)


def _answered(a: Exchange, b: Exchange, soften: Soften | None) -> Iterator[Difference]:
    x, y = a.response, b.response
    if x is None or y is None:
        if a.outcome is b.outcome and (x is None) != (y is None):
            # Both broke off, one before its answer's head: that a head came is no chance, how much after it is.
            left, right = (side.status if side else ABSENT for side in (x, y))
            yield Difference(tokens=("status",), kind="status", a=left, b=right)
        return
    if x.status != y.status:
        yield Difference(tokens=("status",), kind="status", a=x.status, b=y.status)
    if x.fields != y.fields:
        yield from headers(("header",), x.fields, y.fields, RESPONSE_HEADERS)
    if a.outcome in _BROKEN and b.outcome in _BROKEN:
        yield from _prefixes(x.body, y.body)
    else:
        yield from _bodies(("body",), (x.fields, x.body), (y.fields, y.body), soften)


def _prefixes(a: Body | None, b: Body | None) -> Iterator[Difference]:
    """Of two answers that broke off, the shorter is to be the beginning of the longer, line by whole line."""
    if a is None or b is None or a.inline is None or b.inline is None:
        return
    left, right = a.inline.splitlines(keepends=True), b.inline.splitlines(keepends=True)
    whole = min(len(left), len(right)) - 1
    if whole > 0:
        yield from _lines(("body",), text_of(b"".join(left[:whole])), text_of(b"".join(right[:whole])))
    elif a.inline[: b.size] != b.inline[: a.size]:
        yield Difference(tokens=("body",), kind="value", a=text_of(a.inline), b=text_of(b.inline))


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


def _websockets(x: Exchange, y: Exchange, soften: Soften | None) -> Iterator[Difference]:
    a, b = x.websocket, y.websocket
    if a is None or b is None:
        yield Difference(tokens=("websocket",), kind="removed" if a else "added", a=_shown(a), b=_shown(b))
        return
    if a.is_apart or b.is_apart:
        yield from _long_talks(a, b)
    else:
        for direction, from_agent in (("agent", True), ("env", False)):
            sides = [
                [_message(m.text, m.payload) for m in one.messages if m.from_agent is from_agent] for one in (a, b)
            ]
            at = ("request", "websocket") if from_agent else ("websocket", direction)
            for one in _tree(at, sides[0], sides[1], soften):
                yield _numbered(one, len(at), b if one.kind == "added" else a, from_agent)
    if (a.close_code, a.closed_by_agent, a.close_reason) != (b.close_code, b.closed_by_agent, b.close_reason):
        yield Difference(tokens=("websocket", "close"), kind="value", a=_close(a, x), b=_close(b, y))


def _numbered(one: Difference, at: int, talk: WebSocket, from_agent: bool) -> Difference:
    """With the number that `show` gives the message, which counts both directions from 1."""
    index = str(one.tokens[at]).partition("#")[0] if len(one.tokens) > at else ""
    numbers = [number for number, message in enumerate(talk.messages, 1) if message.from_agent is from_agent]
    if one.note or not index.isdigit() or int(index) >= len(numbers):
        return one
    return replace(one, note=f"message {numbers[int(index)]} of show")


def _long_talks(a: WebSocket, b: WebSocket) -> Iterator[Difference]:
    """Conversations too long to be held are compared by the digest of what was said."""
    if a.log is None or b.log is None or a.log.said != b.log.said:
        yield Difference(tokens=("websocket",), kind="value", a=_shown(a), b=_shown(b))


def _shown(websocket: WebSocket | None) -> Any:
    if websocket is None:
        return ABSENT
    said = count(websocket.count, "message")
    return f"{said}, digest {websocket.log.said.hex()[:16]}" if websocket.is_apart and websocket.log else said


def _close(websocket: WebSocket, exchange: Exchange) -> str:
    if websocket.close_code is None:
        return "not known" if exchange.outcome is Outcome.LOST else "open at the end"
    by = "the agent" if websocket.closed_by_agent else "the environment"
    return f"{websocket.close_code} by {by} {websocket.close_reason}".rstrip()


def _message(text: bool, payload: bytes) -> Any:
    if not text:
        return summary(payload)
    try:
        tree = jsonvalue.parse(payload)
        jsonvalue.canonical(tree)
        return tree
    except jsonvalue.NotJson:
        return text_of(payload)
