"""The recorder's mitmproxy add-on: puts heads right, takes both messages down, and lets the scribe wait its turn.

Rules of this file: what the traffic needs is apart from what the recording needs, so that a recorder that fails
changes nothing on the wire. Every hook has an outer guard.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Protocol

from mitmproxy import http, tls
from mitmproxy.connection import Client

from replayproxy.core.limits import Limits
from replayproxy.core.links import to_agent
from replayproxy.core.values import Fields, Outcome, Request, Response
from replayproxy.proxy import head as heads
from replayproxy.proxy import problems
from replayproxy.proxy.buffering import is_long, is_open_ended, may_buffer
from replayproxy.proxy.connections import Connections
from replayproxy.proxy.faults import delayed, ends_here, puts_in
from replayproxy.proxy.install import install
from replayproxy.proxy.live import Clock, Live
from replayproxy.proxy.routes import Route, Upstream, parse_upstream
from replayproxy.proxy.scribe import Scribe, Ticket
from replayproxy.proxy.stream import attach, live_of
from replayproxy.proxy.under_way import UnderWay


class Routes(Protocol):
    """Where requests go. None: this flow is none of ours and is left alone."""

    def route(self, flow: http.HTTPFlow) -> Route | None: ...


type _Hook = Callable[[RecordAddon, http.HTTPFlow], Coroutine[Any, Any, None]]


def _hook(method: _Hook) -> _Hook:
    """The outer guard: whatever a hook raises is a fault of the recorder, and the traffic goes on."""

    @functools.wraps(method)
    async def call(self: RecordAddon, flow: http.HTTPFlow) -> None:
        live = None
        try:
            live = live_of(flow)
            await method(self, flow)
        except Exception as error:
            self.fault(live, method.__name__, error)

    return call


class RecordAddon:
    """Also for a user's own mitmproxy (`routes` then is `standalone.ModeRoutes`). `keep_messages`: WebSocket
    messages stay in the flow too, for other add-ons; memory then grows with the conversation."""

    name = "replayproxy-record"

    def __init__(
        self, scribe: Scribe, clock: Clock, routes: Routes, *, keep_messages: bool = False, limits: Limits | None = None
    ) -> None:
        self.scribe, self.clock, self._routes, self._keep_messages = scribe, clock, routes, keep_messages
        self.connections = Connections(scribe, clock, limits.connect if limits else None)
        self.addons: list[object] = [self.connections]  # mitmproxy calls their hooks too
        self.open = UnderWay(clock)
        install()

    def fault(self, live: Live | None, where: str, error: BaseException) -> None:
        if live is not None:
            live.fault(where, error)
            return
        try:
            self.scribe.fault(None, where, error)
        except Exception:  # by contract it never raises; if it does, traffic still comes first
            pass

    # The request

    @_hook
    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        at = self.clock.now()
        route = self._routes.route(flow)
        if route is None:
            return
        data = flow.request.data
        marks = heads.take_marks(
            data.path, data.headers.fields, port_episode=route.port_episode, prefixed=bool(route.origin)
        )
        fields, offered_h2c = heads.without_h2c(marks.fields)
        data.path = marks.target
        _put(data, fields)
        if (route.reroute or route.forward) and not flow.request.is_http2:
            data.authority = b""  # environments get origin form
        if route.proxy_user is not None:
            marks = replace(marks, claims=replace(marks.claims, proxy_user=route.proxy_user))
        ticket = await self._arrive(route, marks, data.method, at)
        try:
            upstream = self._upstream(route, ticket)
            live = self._begin(flow, route, ticket, marks, upstream, at)
        except Exception as error:
            self._lost(ticket, error)
            return
        if offered_h2c:
            live.notes.append("h2c-offer-removed")
        if flow.error:
            return  # mitmproxy refuses the request by itself
        if self._answers_itself(flow, live, ticket, upstream, route) or puts_in(flow, live):
            return
        if is_long(data.headers.fields) or (flow.request.is_http2 and is_open_ended(data.method, data.headers.fields)):
            flow.request.stream = live.request_tee
            if await delayed(flow, live):
                await self._before_forward(live, live.head)

    async def _arrive(self, route: Route, marks: heads.Marks, method: bytes, at: int) -> Ticket | None:
        try:
            ticket = self.scribe.arrive(
                marks.claims,
                env=route.env,
                listener=route.listener,
                method=method,
                target=marks.target,
                at=at,
                fields=marks.fields,
            )
            return await ticket if isinstance(ticket, asyncio.Future) else ticket
        except Exception as error:
            self.fault(None, "arrive", error)
            return None

    def _lost(self, ticket: Ticket | None, error: Exception) -> None:
        """No exchange can be made for a ticket that was given out: its episode, at least, is to say so."""
        try:
            self.scribe.fault(ticket, "requestheaders", error)
        except Exception:  # by contract it never raises; if it does, traffic still comes first
            pass

    @staticmethod
    def _upstream(route: Route, ticket: Ticket | None) -> Upstream | None:
        if not route.reroute or ticket is None:
            return route.fixed
        return parse_upstream(ticket.upstream) if ticket.upstream else None

    def _begin(
        self,
        flow: http.HTTPFlow,
        route: Route,
        ticket: Ticket | None,
        marks: heads.Marks,
        upstream: Upstream | None,
        at: int,
    ) -> Live:
        data = flow.request.data
        host = upstream.authority.encode() if upstream and not route.keep_host else None
        fields, agent_host = heads.with_host(data.headers.fields, host)
        _put(data, fields)
        if flow.request.is_http2:
            agent_host = data.authority or agent_host
            data.authority = host or data.authority
        if upstream and route.reroute:
            data.scheme, data.host, data.port = upstream.scheme.encode(), upstream.host, upstream.port
        head = Request(
            method=data.method,
            target=marks.target,
            version=data.http_version,
            fields=heads.without_expect(fields),
            body=None,
            agent_host=agent_host,
        )
        live = Live(self.scribe, self.clock, ticket, head=head, at=at, agent_connection=flow.client_conn.id)
        if upstream:
            live.upstream = upstream.origin
        live.forward = route.forward
        if upstream and route.origin:
            live.prefix = marks.prefix.decode("latin-1")
            live.origins = (upstream.origin,)
            if route.keep_host and agent_host:
                live.origins += tuple(f"{scheme}://{agent_host.decode('latin-1')}" for scheme in ("http", "https"))
            live.base = route.agent_base(agent_host, tls=flow.client_conn.tls)
        attach(flow, live)
        self.open.add(live, flow)
        self.connections.arrived(flow.client_conn.id, ticket)
        return live

    @staticmethod
    def _answers_itself(
        flow: http.HTTPFlow, live: Live, ticket: Ticket | None, upstream: Upstream | None, route: Route
    ) -> bool:
        """Sets our own answer where the request can go nowhere."""
        if flow.request.data.method == b"PRI":
            status, why = 505, "HTTP/2 without TLS is not carried"
        elif ticket is not None and ticket.stopped:
            status, why = problems.STOPPED, ticket.stopped
        elif upstream is None and route.reroute:
            status, why = 502, (ticket.note if ticket else "") or "no upstream is known for this request"
        else:
            return False
        live.local = why
        fields, body = problems.problem(status, Outcome.LOCAL, why)
        now = time.time()
        reason = problems.phrase(status)
        content = problems.content(flow.request.data.method, body)
        flow.response = http.Response(b"HTTP/1.1", status, reason, http.Headers(fields), content, None, now, now)
        return True

    async def _before_forward(self, live: Live, request: Request) -> None:
        if live.ticket is None or live.ended:
            return
        live.busy = True
        try:
            await self.scribe.before_forward(live.ticket, request)
        except Exception as error:
            live.fault("before_forward", error)
        finally:
            live.busy = False

    @_hook
    async def request(self, flow: http.HTTPFlow) -> None:
        live = live_of(flow)
        if live is None:
            return
        streamed = bool(flow.request.stream)
        if not streamed:
            live.request_block(flow.request.raw_content or b"")
        live.request_complete(flow.request.trailers.fields if flow.request.trailers else ())
        if _loses_trailers(flow):
            live.notes.append("request-trailers-not-carried")
        if not streamed and live.local is None and not await delayed(flow, live):
            return
        if ends_here(flow, live):
            return
        if not streamed and live.local is None:
            await self._before_forward(live, live.request())

    # The answer

    @_hook
    async def responseheaders(self, flow: http.HTTPFlow) -> None:
        live, response = live_of(flow), flow.response
        if live is None or response is None or live.local is not None:
            return
        if live.fwd is None:
            live.local = "answered by another add-on"
            return
        data = response.data
        fields = data.headers.fields
        live.answer_head(
            Response(status=data.status_code, reason=data.reason, version=data.http_version, fields=fields, body=None)
        )
        reads = live.ticket.reads if live.ticket else ()
        request = live.request() if live.request_whole else live.head
        if not response.stream and not may_buffer(request, reads, data.status_code, fields):
            live.streamed = True
            response.stream = live.answer_tee
        if live.base:
            seen = heads.without_alt_svc(fields)
            _put(data, to_agent(seen, origins=live.origins, base_url=live.base, prefix=live.prefix))
        elif live.forward:
            _put(data, heads.without_alt_svc(fields))

    @_hook
    async def response(self, flow: http.HTTPFlow) -> None:
        live, response = live_of(flow), flow.response
        if live is None or response is None or live.answer is None:
            return
        if not live.streamed:
            if response.raw_content is None:
                live.answer_lost("another add-on streamed the answer past the recorder")
            else:
                live.answer_block(response.raw_content)
        live.answer_trailers(response.trailers.fields if response.trailers else ())
        if live.local is not None:
            return  # an answer that was put in
        # An answer that is here before its request has ended is not held: the request's body is still being kept.
        if live.request_whole and not live.streamed and not live.ended and response.status_code != 101:
            await self._hold(live)

    async def _hold(self, live: Live) -> None:
        assert live.ticket is not None
        live.busy = True
        try:
            live.held = live.exchange(Outcome.ANSWERED)
            live.held_ns = await self.scribe.hold(live.ticket, live.held)
        finally:
            live.busy = False

    # WebSocket

    @_hook
    async def websocket_message(self, flow: http.HTTPFlow) -> None:
        live = live_of(flow)
        assert flow.websocket is not None
        message = flow.websocket.messages[-1]
        if not self._keep_messages:
            flow.websocket.messages.clear()
        if live is not None:
            live.message(from_agent=message.from_client, text=message.is_text, payload=message.content)

    @_hook
    async def websocket_end(self, flow: http.HTTPFlow) -> None:
        live, end = live_of(flow), flow.websocket
        if live is None or end is None:
            return
        by_agent, abnormal = bool(end.closed_by_client), end.close_code == 1006
        live.answer_complete()
        live.handed_over()
        outcome = Outcome.ANSWERED if not abnormal else Outcome.CLIENT_GONE if by_agent else Outcome.CUT
        conversation = live.conversation(end.close_code, end.close_reason or "", by_agent=by_agent)
        live.end(outcome, closed_by_agent=by_agent, websocket=conversation)

    # Connections

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        # Lazy connections would offer the agent protocols that the environment does not speak.
        data.establish_server_tls_first = data.context.server.tls

    def client_disconnected(self, client: Client) -> None:
        self.open.connection_ended(client.id)


def _put(data: Any, fields: Fields) -> None:
    """Most heads are left as they came: to make `Headers` of them anew costs more than to look."""
    if data.headers.fields is not fields:
        data.headers = http.Headers(fields)


def _loses_trailers(flow: http.HTTPFlow) -> bool:
    """HTTP/2 has trailers also behind a body whose length was told; HTTP/1.1 has them behind chunks only."""
    over_both = flow.request.is_http2 and flow.server_conn.alpn != b"h2"
    return bool(over_both and flow.request.trailers and "content-length" in flow.request.headers)
