"""Which exchange of A is which of B: per lane, by what was asked, so that one extra step is one insertion.

Two requests are one step when they are equal but for what chance and clock put into them (ids, instants, the
environment's own address). Between such steps a near miss - the same kind of request - is a pair too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.align import align, match_lanes
from replayproxy.core.canonical import Kind, media_type, split_query, split_target, view
from replayproxy.core.effects import json_rpc_calls
from replayproxy.core.templates import request_template, template_of
from replayproxy.core.times import parse_text
from replayproxy.core.tokens import FRESH_BITS, bits, skeleton
from replayproxy.core.values import Exchange, Request

type SeqPairs = list[tuple[int | None, int | None]]

_LONG = 64 * 1024  # a longer request body is one step only with its equal
_EPOCH = re.compile(r"1\d{9}(?:\d{3})?\Z")


def pair(a: Sequence[Exchange], b: Sequence[Exchange]) -> SeqPairs:
    """Pairs of sequence numbers in the order of time; None where a side has no such step.

    Probes and resets are no steps of the agent, and are left out.
    """
    lanes_a, lanes_b = _lanes(a), _lanes(b)
    names = match_lanes(
        {name: () if name in lanes_b else [_key(e) for e in lane] for name, lane in lanes_a.items()},
        {name: () if name in lanes_a else [_key(e) for e in lane] for name, lane in lanes_b.items()},
    )
    rows: list[tuple[tuple[int, int, int], int | None, int | None]] = []
    for left, right in names:
        lane_a = lanes_a[left] if left is not None else []
        lane_b = lanes_b[right] if right is not None else []
        before = 0
        for x, y in _lane(lane_a, lane_b):
            seq_a = None if x is None else lane_a[x].seq
            seq_b = None if y is None else lane_b[y].seq
            before = before if seq_a is None else seq_a
            rows.append(((before, 0 if seq_a is not None else 1, seq_b or 0), seq_a, seq_b))
    return [(seq_a, seq_b) for _, seq_a, seq_b in sorted(rows, key=lambda row: row[0])]


def _lanes(exchanges: Sequence[Exchange]) -> dict[str, list[Exchange]]:
    out: dict[str, list[Exchange]] = {}
    for exchange in exchanges:
        if not exchange.is_probe and not exchange.is_reset:
            out.setdefault(exchange.lane, []).append(exchange)
    return out


def _lane(a: list[Exchange], b: list[Exchange]) -> SeqPairs:
    """Index pairs. What is byte-equal at both ends is paired without a look inside."""
    start, short = 0, min(len(a), len(b))
    while start < short and _raw(a[start]) == _raw(b[start]):
        start += 1
    end = 0
    while end < short - start and _raw(a[-1 - end]) == _raw(b[-1 - end]):
        end += 1
    middle_a, middle_b = a[start : len(a) - end], b[start : len(b) - end]
    out: SeqPairs = [(x, x) for x in range(start)]
    if middle_a and middle_b:
        keys = [_key(e) for e in middle_a], [_key(e) for e in middle_b]

        def likeness(x: int, y: int) -> float:
            return _likeness(middle_a[x], middle_b[y], keys[0][x] == keys[1][y])

        out += [(x if x is None else x + start, y if y is None else y + start) for x, y in align(*keys, likeness)]
    else:
        out += [(x + start, None) for x in range(len(middle_a))]
        out += [(None, y + start) for y in range(len(middle_b))]
    return out + [(len(a) - end + n, len(b) - end + n) for n in range(end)]


def _raw(exchange: Exchange) -> Any:
    request = exchange.request
    return exchange.env, request.method, request.target, request.body.digest if request.body else None


def _key(exchange: Exchange) -> Any:
    request = exchange.request
    return exchange.env, request.method, _masked_target(request.target), _body_key(request)


def _body_key(request: Request) -> str | bytes:
    body = request.body
    if body is None or body.size == 0:
        return b"missing" if body is None else b""
    if body.inline is None or body.size > _LONG:
        return body.digest
    seen = view(request.fields, body)
    if seen.kind is Kind.JSON:
        value = seen.value
        if isinstance(value, dict) and value.get("jsonrpc") == "2.0":
            value = {name: member for name, member in value.items() if name != "id"}  # the agent's own count of calls
        return masked(jsonvalue.canonical(value).decode("utf-8", "surrogatepass"))
    if seen.kind in (Kind.FORM, Kind.TEXT):
        return masked(body.inline.decode("latin-1"))
    return b"multipart" if media_type(request.fields).startswith(b"multipart/") else body.digest


def masked(text: str) -> str:
    """The text with ids and instants taken out: equal for two requests that differ in nothing else."""
    parts = skeleton(text)
    tokens = [
        "*" if bits(token) >= FRESH_BITS or parse_text(token) or _EPOCH.match(token) else token
        for token in parts.tokens
    ]
    return parts.rest[0] + "".join(token + rest for token, rest in zip(tokens, parts.rest[1:], strict=True))


@lru_cache(maxsize=16384)
def _masked_target(target: bytes) -> str:
    path, query = split_target(target)
    pairs = sorted(split_query(query)) if query else []
    text = b"&".join(name if value is None else name + b"=" + value for name, value in pairs)
    return masked((path + (b"?" + text if query is not None else b"")).decode("latin-1"))


def _likeness(a: Exchange, b: Exchange, equal: bool) -> float:
    """How much two requests are one step: 2 for one key, 1 and a little for one kind, 0 for two kinds."""
    if equal:
        return 2.0
    if a.env != b.env or a.request.method != b.request.method:
        return 0.0
    if template_of(a.request.target) != template_of(b.request.target):
        return 0.0
    calls = [_call(e.request) for e in (a, b)]
    if calls[0] != calls[1]:
        return 0.0
    return 1.5 if split_target(a.request.target)[0] == split_target(b.request.target)[0] else 1.0


def _call(request: Request) -> str:
    """What a JSON-RPC request calls, with the tool's name; "" when it is none."""
    calls = json_rpc_calls(request)
    if not calls:
        return ""
    params = calls[0].get("params")
    name = params.get("name") if isinstance(params, dict) else None
    return " ".join([str(calls[0].get("method", "")), *([name] if isinstance(name, str) else [])])


def kind_of(request: Request) -> str:
    """`GET /deals/{id}`, and of a JSON-RPC call what it calls: `POST /mcp tools/call add_note`."""
    call = _call(request)
    return f"{request_template(request)} {call}" if call else request_template(request)
