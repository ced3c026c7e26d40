"""What the proxy tells the recorder, and what the recorder may answer: the one seam between the two.

Rules of this seam: everything is called on the event-loop thread. For every `arrive` that returned a ticket there is
exactly one `finished` with that ticket, however the exchange ended (only a fault of the proxy itself may put a `fault`
with the ticket in its place). Nothing here may change traffic: whatever a method raises is caught at the call and
given to `fault`, and the traffic goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from replayproxy.core.chaos import Fault
from replayproxy.core.identity import Attribution, Claims
from replayproxy.core.values import Body, Exchange, Fields, Log, Message, Request

AGENT_CONNECTED = "agent-connected"
AGENT_CLOSED = "agent-closed"
UPSTREAM_CONNECTED = "upstream-connected"
UPSTREAM_REFUSED = "upstream-refused"
UPSTREAM_CLOSED = "upstream-closed"
UNREADABLE_REQUEST = "unreadable-request"
AGENT_TLS_REFUSED = "agent-tls-refused"
ESCAPING_LINKS = "escaping-links"
"""The kinds of `Scribe.event`. Connection events carry {"connection": id, "env", "listener" or "address", "error"?};
`ESCAPING_LINKS` carries {"count": n}: absolute links to the environment in an answer's body, which the proxy leaves."""


class BodySink(Protocol):
    """Takes a body piece by piece. `storage.BodySink` is one."""

    size: int

    def write(self, data: bytes, at: int | None = None) -> None:
        """`at` given: the piece is kept as a chunk with its time."""

    def close(self) -> Body | None:
        """None: the body is withheld, for a secret in it cannot be taken out."""


class TalkSink(Protocol):
    """Takes the messages of a WebSocket one by one. `storage.TalkSink` is one."""

    def add(self, message: Message) -> None: ...

    def close(self) -> tuple[tuple[Message, ...], Log | None]:
        """The messages, or where they are. May be called again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The recorder's answer to a request's head; the proxy carries it along and gives it back.

    `order` is the arrival key (ns, worker). `upstream` is the URL of the environment for this request (only scheme,
    host and port are looked at); None: the proxy answers 502 itself with `note` as the reason, outcome LOCAL. Where
    the proxy is a user's own mitmproxy, `upstream` is not looked at. `reads` are the requests declared to be reads.
    `stopped`: why nothing more of this episode goes to an environment; "" it does. `fault`: what the proxy is to do to
    this request (`--chaos`).
    """

    order: tuple[int, int]
    attribution: Attribution
    env: str
    upstream: str | None
    reads: tuple[str, ...] = ()
    is_reset: bool = False
    is_probe: bool = False
    note: str = ""
    stopped: str = ""
    fault: Fault | None = None


class Scribe(Protocol):
    """The recorder, as the proxy sees it."""

    def arrive(
        self, claims: Claims, *, env: str, listener: str, method: bytes, target: bytes, at: int, fields: Fields = ()
    ) -> Ticket | asyncio.Future[Ticket | None]:
        """A request's head is here. `listener` is `Listener.url`; `target` has the prefix taken off already,
        and `fields` the marks. The ticket may not know its episode yet: ids in bodies and answers come later. A
        recorder in another process promises one; None: it could take no notice, and the traffic goes on."""

    def sink(self, ticket: Ticket, fields: Fields, *, answer: bool) -> BodySink:
        """Where the bytes of one body go. `fields` are the head's: of the answer, or of the request.

        What it closes with may hold all the bytes: nothing of them is in the store before `finished`.
        """

    def talk(self, ticket: Ticket) -> TalkSink:
        """Where the messages of a WebSocket go, from its handshake on."""

    async def before_forward(self, ticket: Ticket, request: Request) -> None:
        """Before the first byte goes to the environment. `request.body` is None when it is streamed on."""

    async def hold(self, ticket: Ticket, exchange: Exchange) -> int:
        """After a whole buffered answer, before the agent gets it. Returns how many ns it waited (0: not at all).

        Called for every buffered answer, reads too: the recorder decides what is held. `exchange` lacks `c_out`.
        """

    def finished(self, ticket: Ticket, exchange: Exchange) -> None:
        """The exchange is complete, and this is the one time it is handed over."""

    def event(self, ticket: Ticket | None, kind: str, detail: Mapping[str, Any], at: int) -> None:
        """Something beside the exchanges. `ticket` is the exchange that was under way on that connection, if any."""

    def fault(self, ticket: Ticket | None, where: str, error: BaseException) -> None:
        """The recording has a hole: `where` names the step. The episode is incomplete from here on. Never raises."""

    def room(self) -> bool:
        """False: the queue to the disk is full, and the proxy is to read slower."""

    async def wait_room(self) -> None:
        """Returns when there is room again. The proxy waits for it for a bounded time only."""
