"""The values that every part of replayproxy speaks in: what was sent, what came of it, and what state was seen.

Rules of this file: a value is frozen and never half-made; bytes that were on the wire stay bytes (targets, header
names and values, bodies); instants are integers of nanoseconds on the machine's monotonic clock unless the name
says `wall` (nanoseconds since the epoch). `None` is "not known"; it is never the same as empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any

type Fields = tuple[tuple[bytes, bytes], ...]
"""Header fields in the order, case and number in which they were sent."""

MAIN_LANE = "main"
"""The lane of an exchange that carries no lane mark."""

UNATTRIBUTED = "unattributed"
"""The visible bucket of traffic that no carrier gave an episode. Reserved as a name; never replayed."""


INJECTED = "injected:"
"""How a note of an exchange begins that says which fault the proxy put in (`core.chaos`)."""


def changed[V](value: V, **members: Any) -> V:
    """`dataclasses.replace` for values with slots and without `__post_init__`, at half its cost: each exchange that
    passes is changed several times."""
    names, get, setters = _members(type(value))  # type: ignore[arg-type]  # a class is hashable
    made = object.__new__(type(value))
    for name, put, item in zip(names, setters, get(value), strict=True):
        put(made, members.pop(name) if name in members else item)
    if members:
        raise TypeError(f"{type(value).__name__} has no {', '.join(members)}")
    return made


@cache
def _members(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], tuple[Callable[..., None], ...]]:
    names = tuple(one.name for one in fields(kind))
    return names, attrgetter(*names), tuple(getattr(kind, name).__set__ for name in names)


class Outcome(StrEnum):
    """How an exchange ended, seen from the proxy. Only ANSWERED is a whole answer of the environment."""

    ANSWERED = "answered"
    CLIENT_GONE = "client-gone"  # the agent left before the answer had ended; what came so far is kept
    REFUSED = "refused"  # no connection to the environment could be made; nothing was sent
    CUT = "cut"  # the environment ended the connection in the middle of its answer, or before it
    INVALID = "invalid"  # what the environment sent is not HTTP that can be carried
    TIMED_OUT = "timed-out"
    LOCAL = "local"  # answered by the proxy itself; never the environment's word
    HALF_SENT = "half-sent"  # the request itself never arrived whole; never matched, never re-driven
    OPEN_AT_END = "open-at-end"  # a stream or WebSocket still open when its episode ended
    LOST = "lost"  # the proxy process that carried it is gone: whether and how it was answered is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a streamed body as it passed: its size in bytes and when it passed."""

    size: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A body as it was on the wire, content coding kept, transfer coding removed.

    `inline` holds all the bytes, or is None when they are stored apart as `pieces` (content addresses in order):
    then ask the store's reader for them. `chunks` is empty for a body that was passed on as one block.
    """

    size: int
    digest: bytes
    inline: bytes | None
    pieces: tuple[bytes, ...] = ()
    chunks: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as the environment was to see it: identity marks already taken off, nothing else changed.

    `target` is the raw request target in origin form. `version` is b"HTTP/1.1" and the like. `host` in `fields` is
    the environment's; the agent's own is `agent_host`. `body` None: not captured (never the same as empty).
    """

    method: bytes
    target: bytes
    version: bytes
    fields: Fields
    body: Body | None
    agent_host: bytes | None = None
    trailers: Fields = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The environment's answer as it was sent, 1xx left out (`informational` keeps them: status and fields)."""

    status: int
    reason: bytes
    version: bytes
    fields: Fields
    body: Body | None
    trailers: Fields = ()
    informational: tuple[tuple[int, Fields], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One WebSocket message, whole. `from_agent` tells its direction; `text` its type."""

    from_agent: bool
    text: bool
    payload: bytes
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The messages of a long conversation, stored apart: `body` is read by `core.messagelog`, best through the
    store's reader (`Reader.messages`). `said`: a digest of what was said, without its times."""

    body: Body
    count: int
    said: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocket:
    """What passed after a WebSocket handshake. `close_code` 1006: the connection ended without a close frame, 1005:
    with one that held no code; None: it was still open.

    `messages` are all of them, or none where they are in `log` and were not loaded (`is_apart`).
    """

    messages: tuple[Message, ...]
    close_code: int | None
    close_reason: str = ""
    closed_by_agent: bool | None = None
    log: Log | None = None

    @property
    def is_apart(self) -> bool:
        return self.log is not None and not self.messages

    @property
    def count(self) -> int:
        """How many messages there were."""
        return self.log.count if self.log is not None else len(self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The instants of one exchange.

    `head`: the request's head arrived (this orders an episode). `c_in`: the request was fully received from the
    agent. `fwd`: not later than the first byte sent to the environment. `up_end`: not earlier than the
    environment's last byte. `c_out`: the last byte was handed to the agent. The environment's effect lies inside
    [fwd, up_end]. `first`: the answer's head came. None: that never happened.
    """

    head: int
    wall: int
    c_in: int | None = None
    fwd: int | None = None
    first: int | None = None
    up_end: int | None = None
    c_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and what came of it.

    `seq` counts from 1 in its episode, by arrival of the request's head; it is given when the episode is read
    (0: not yet numbered). `order` is the arrival key (ns, worker) that `seq` is made from. `cut_at`: body bytes
    that had come when the answer was cut. `carrier`: what gave it its episode (`port`, `prefix`, `header`,
    `baggage`, `proxy-user`, `rule`, `option`) or, unattributed, the reason why none did. `agent_connection` and
    `env_connection` name the connections (random, for people; matching never looks at them). `held_ns`: how long
    the answer waited for a snapshot.
    """

    seq: int
    order: tuple[int, int]
    env: str
    lane: str
    request: Request
    response: Response | None
    outcome: Outcome
    times: Times
    carrier: str
    websocket: WebSocket | None = None
    error: str = ""
    cut_at: int | None = None
    upstream: str = ""
    agent_connection: str = ""
    env_connection: str = ""
    held_ns: int = 0
    closed_by_agent: bool | None = None
    notes: tuple[str, ...] = ()
    is_reset: bool = False
    is_probe: bool = False

    @property
    def injected(self) -> str:
        """The fault that the proxy put in (`--chaos`), "" where it put in none: `reset`, `status 503`, .."""
        return next((note.removeprefix(INJECTED) for note in self.notes if note.startswith(INJECTED)), "")

    @property
    def is_the_environments(self) -> bool:
        """Whether its environment answered at all. False: it was refused, or the proxy itself said what was said."""
        came = self.response is not None or self.websocket is not None
        return came and self.outcome not in (Outcome.LOCAL, Outcome.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened beside the exchanges: a connection opened or refused, a mark of the harness."""

    at: int
    wall: int
    kind: str
    detail: Mapping[str, Any]


class EpisodeState(StrEnum):
    OPEN = "open"
    SEALED = "sealed"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What a sealed episode holds: counts, and a hash chain over its records in order. A missing record shows."""

    exchanges: int
    snapshots: int
    chain: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One rollout. `key` is its number in the store, `name` what people type.

    `state` as read: an episode whose recorder died without a seal, or that carries a fault, is INCOMPLETE.
    `faults`: why evidence is missing (a recorder fault, a full queue). `declared`: opened by the control API or
    `--episode`, not by a first request. `ended_by`: end, idle or stop. `aliases`: the ids that rules found for it
    (space of the rule, value; of a secret its token). `annotated`: what was changed after the seal (`core.annotation`):
    `said` (member -> what the recording was told), `source` and `wall` of the last change; empty: nothing was.
    """

    key: int
    run_key: int
    name: str
    task: str | None = None
    seed: int | None = None
    attempt: int | None = None
    group: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict)
    instance: Mapping[str, str] = field(default_factory=dict)
    declared: bool = True
    opened: int = 0
    opened_wall: int = 0
    ended: int | None = None
    ended_wall: int | None = None
    ended_by: str | None = None
    state: EpisodeState = EpisodeState.OPEN
    reward: float | None = None
    outcome: str | None = None
    faults: tuple[str, ...] = ()
    escaping_links: int = 0
    seal: Seal | None = None
    aliases: tuple[tuple[str, str], ...] = ()
    annotated: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvWiring:
    """How an environment was wired: enough that a printed command needs `--env NAME=URL` and nothing else."""

    name: str
    upstream: str  # URL, or "dynamic"
    listener: str = ""  # the URL agents were given, without a trailing slash
    reset: tuple[str, str, str] | None = None  # method, URL, body
    reads: tuple[str, ...] = ()  # "POST /search": requests declared to be reads
    eventual: Mapping[str, float] = field(
        default_factory=dict
    )  # "POST /x": seconds after its answer until it has acted
    claims: tuple[str, ...] = ()  # "desks.steward": columns that name who has the row, one at a time
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One recording with a name. `snapshots` maps a snapshot's name to its spec with secrets left out."""

    key: int
    name: str
    opened_wall: int
    closed_wall: int | None = None
    envs: Mapping[str, EnvWiring] = field(default_factory=dict)
    snapshots: Mapping[str, str] = field(default_factory=dict)
    snapshot_when: tuple[str, ...] = ("start", "write", "end")
    snapshot_mode: str = "hold:250ms"
    url_style: str = "path"
    meta: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    origin: str = "record"  # or "redrive", "import"
    version: str = ""
    faults: tuple[str, ...] = ()


class SnapshotStatus(StrEnum):
    TAKEN = "taken"
    MISSING = "missing"  # no state: `reason` says why
    TORN = "torn"  # read while exchanges of its episode were in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The environment's state at an instant, read from its system of record.

    `n` counts from 0 in its episode (address RUN/EPISODE/sN). `when`: start, write, end, mark, probe or
    before-restore. `after` is the arrival key of the write it followed, and `in_flight` those of exchanges of its
    episode that overlapped the reading; `after_seq` and `in_flight_seq` are the same by number, given when read.
    [`begun`, `done`] is the interval of the reading. `root` is the content address of the rows (None: missing);
    `aside` that of what a restore writes back and no comparison looks at (file times and contents; None: nothing).
    `shared_with`: other episodes open on the same instance while it was read. `late`: it came after hold's limit.
    """

    n: int
    name: str
    env: str | None
    when: str
    label: str = ""
    status: SnapshotStatus
    reason: str = ""
    late: bool = False
    mode: str = "hold"
    atomic: bool = False
    can_restore: bool = False
    scope: str = "instance"
    root: bytes | None = None
    aside: bytes | None = None
    rows: int = 0
    begun: int = 0
    done: int = 0
    wall: int = 0
    after: tuple[int, int] | None = None
    after_seq: int | None = None
    in_flight: tuple[tuple[int, int], ...] = ()
    in_flight_seq: tuple[int, ...] = ()
    shared_with: tuple[str, ...] = ()


type Row = Any
"""A JSON value: dict, list, str, bool, None, int, or Decimal for a number that is not an integer."""

type Rows = Mapping[str, Mapping[str, Row]]
"""A state: table -> key -> row. An opaque document is one row, table "document", key ""."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """One row that differs between two states. `before` or `after` None: the row is not there; JSON null is no row."""

    table: str
    key: str
    before: Row | None
    after: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """An episode with all that a judgement may look at: what `Reader.trace` gives. Bodies are loaded (see there)."""

    run: Run
    episode: Episode
    exchanges: Sequence[Exchange]
    snapshots: Sequence[Snapshot]
    events: Sequence[Event] = ()

    @property
    def address(self) -> str:
        return f"{self.run.name}/{self.episode.name}"
