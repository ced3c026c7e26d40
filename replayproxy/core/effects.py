"""What a request does to the environment: whether it is a write, and which two exchanges conflict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from replayproxy.core.canonical import Kind, field, split_target, view
from replayproxy.core.values import Exchange, Request

SAFE_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PROPFIND", b"REPORT"})


def is_write(request: Request, reads: Sequence[str] = ()) -> bool:
    """Whether the request may change state.

    Any method but the safe ones is a write. Of JSON-RPC calls only MCP's `tools/call` is. `reads` overrides:
    `"POST /search"` names requests by method and path (a path ending in `*` is a prefix), `"tools/call NAME"` an
    MCP tool.
    """
    path, _ = split_target(request.target)
    if any(_declared(line, request.method, path) for line in reads):
        return False
    if request.method in SAFE_METHODS:
        return False
    calls = json_rpc_calls(request)
    if calls is None:
        return True
    return any(call.get("method") == "tools/call" and f"tools/call {_tool_name(call)}" not in reads for call in calls)


def acts_within(request: Request, eventual: Mapping[str, float]) -> float | None:
    """The seconds after its answer within which the write is declared to have acted; None: nothing is declared.

    `eventual` names requests as `reads` does. Where several lines match, the longest time counts.
    """
    path, _ = split_target(request.target)
    times = [seconds for line, seconds in eventual.items() if _declared(line, request.method, path)]
    return max(times, default=None)


def _declared(line: str, method: bytes, path: bytes) -> bool:
    wanted_method, _, wanted = line.partition(" ")
    if wanted_method.encode() != method or not wanted:
        return False
    raw = wanted.encode()
    return path.startswith(raw[:-1]) if raw.endswith(b"*") else path == raw


def _tool_name(call: dict[str, Any]) -> str:
    params = call.get("params")
    return str(params.get("name", "")) if isinstance(params, dict) else ""


def json_rpc_calls(request: Request) -> list[dict[str, Any]] | None:
    """The calls of a JSON-RPC 2.0 POST (one, or a batch); None when the request is none."""
    if request.method != b"POST":
        return None
    plain = request.body.inline if request.body is not None else None
    if plain is not None and b"jsonrpc" not in plain and field(request.fields, b"content-encoding") is None:
        return None  # most bodies are no calls, and need not be parsed to know it
    seen = view(request.fields, request.body)
    if seen.kind is not Kind.JSON:
        return None
    calls = seen.value if isinstance(seen.value, list) else [seen.value]
    whole = calls and all(isinstance(call, dict) and call.get("jsonrpc") == "2.0" for call in calls)
    return calls if whole else None


def segments(target: bytes) -> tuple[bytes, ...]:
    """The raw path segments of a target, a trailing slash left out."""
    path, _ = split_target(target)
    return tuple(path.strip(b"/").split(b"/")) if path.strip(b"/") else ()


def may_conflict(a: Exchange, b: Exchange, a_writes: bool, b_writes: bool) -> bool:
    """Whether their order can matter: same environment, one a write, one path a segment prefix of the other."""
    if a.env != b.env or not (a_writes or b_writes):
        return False
    left, right = segments(a.request.target), segments(b.request.target)
    short = min(len(left), len(right))
    return left[:short] == right[:short]


def lane_ambiguities(exchanges: Sequence[Exchange], key_of: Any) -> int:
    """How many exchanges share lane and key with one that they overlap: which was first cannot be known.

    `key_of(exchange)` is its request key. O(n log n).
    """
    open_until: dict[Any, int] = {}
    ambiguous = 0
    for exchange in sorted(exchanges, key=lambda e: e.order):
        slot = (exchange.lane, key_of(exchange))
        ended = exchange.times.c_out or exchange.times.up_end or (1 << 63)
        if slot in open_until and exchange.times.head < open_until[slot]:
            ambiguous += 1
        open_until[slot] = max(ended, open_until.get(slot, 0))
    return ambiguous
