"""What a request does to the environment: whether it is a write, and which two exchanges conflict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
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


class Overlaps:
    """How many exchanges share lane and key with one that they overlap: which was first cannot be known.

    They are counted in the order in which they arrived, and that of one that ends is known once all that arrived before
    it have ended (`settle`), so what is kept is what is under way. Of one that is under way for very long (a stream)
    not everything beside it is kept: beyond `PENDING` the order in which they end has to do, which may count one less.
    """

    PENDING = 10_000

    def __init__(self) -> None:
        self.count = 0
        self._pending: list[tuple[tuple[int, int], int, int, int, Any]] = []
        self._added = 0
        self._open_until: dict[Any, int] = {}
        self._room = 256

    def __len__(self) -> int:
        """How many are kept, for themselves or for what may still come."""
        return len(self._pending) + len(self._open_until)

    def add(self, exchange: Exchange, key: Any) -> None:
        """An exchange is over."""
        times = exchange.times
        ended = times.c_out or times.up_end or (1 << 63)
        self._added += 1  # an import may know no order: then as they were added, and keys are never compared
        heappush(self._pending, (exchange.order, self._added, times.head, ended, (exchange.lane, key)))

    def settle(self, before: tuple[int, int] | None) -> None:
        """Nothing that arrived before this place in the order is under way any more; None: nothing at all is."""
        pending = self._pending
        while pending and (before is None or pending[0][0] < before or len(pending) > self.PENDING):
            _, _, head, ended, slot = heappop(pending)
            until = self._open_until.get(slot, 0)
            self.count += head < until
            self._open_until[slot] = max(ended, until)
            if len(self._open_until) > self._room:
                self._forget(head)

    def _forget(self, head: int) -> None:
        """What had ended before the last one came cannot overlap one that came later."""
        self._open_until = {slot: until for slot, until in self._open_until.items() if until > head}
        self._room = max(256, 2 * len(self._open_until))


def lane_ambiguities(exchanges: Sequence[Exchange], key_of: Callable[[Exchange], Any]) -> int:
    """`Overlaps` of exchanges that are all over. `key_of(exchange)` is its request key. O(n log n)."""
    overlaps = Overlaps()
    for exchange in exchanges:
        overlaps.add(exchange, key_of(exchange))
    overlaps.settle(None)
    return overlaps.count
