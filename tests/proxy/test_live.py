"""An exchange ends once, and never raises."""

from __future__ import annotations

from itertools import count

from replayproxy.core.identity import Attribution
from replayproxy.core.values import Episode, Fields, Outcome, Request, Response
from replayproxy.proxy.live import Clock, Live
from replayproxy.proxy.scribe import Ticket
from tests.proxy.wire import BrokenSink, FakeScribe, Sink

HEAD = Request(method=b"GET", target=b"/", version=b"HTTP/1.1", fields=((b"A", b"1"),), body=None)
ANSWER = Response(status=200, reason=b"", version=b"HTTP/1.1", fields=((b"B", b"2"),), body=None)


class Collector(FakeScribe):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[Sink] = []

    def sink(self, ticket: Ticket, fields: Fields, *, answer: bool) -> Sink:
        self.heads.append((answer, fields))
        self._may_break("sink")
        self.made.append(BrokenSink() if "sink.write" in self.breaks else Sink())
        return self.made[-1]

    def _notify(self) -> None:
        pass


def live(scribe: FakeScribe, ticket: Ticket | None = None, *, recorded: bool = True) -> Live:
    ticks = count(1)
    attribution = Attribution(episode=Episode(key=1, run_key=1, name="e"), reason="", carrier="header", lane="left")
    made = ticket or Ticket(order=(1, 2), attribution=attribution, env="app", upstream="http://a")
    scribe.tickets.append(made)
    clock = Clock(now=lambda: next(ticks), wall=lambda: 1000)
    return Live(scribe, clock, made if recorded else None, head=HEAD, at=0, agent_connection="c")


async def test_what_was_gathered_is_handed_over_once() -> None:
    scribe = Collector()
    one = live(scribe)
    one.request_block(b"hi")
    one.request_complete(())
    one.forwarding("env-1")
    one.head_came()
    one.interim(103, ((b"Link", b"x"),))
    one.answer_head(ANSWER)
    one.answer_piece(b"a")
    one.answer_piece(b"b")
    one.answer_complete()
    one.handed_over()
    one.end(Outcome.ANSWERED)
    one.end(Outcome.CUT)
    one.release(Outcome.OPEN_AT_END)
    (exchange,) = scribe.exchanges
    assert (exchange.order, exchange.env, exchange.lane, exchange.carrier) == ((1, 2), "app", "left", "header")
    assert exchange.outcome is Outcome.ANSWERED
    assert exchange.request.body is not None
    assert exchange.request.body.inline == b"hi"
    assert exchange.response is not None
    assert exchange.response.body is not None
    assert exchange.response.body.inline == b"ab"
    assert exchange.response.informational == ((103, ((b"Link", b"x"),)),)
    times = exchange.times
    assert [times.head, times.c_in, times.fwd, times.first] == [0, 1, 2, 3]
    assert (times.up_end, times.c_out, times.wall) == (6, 7, 1000)
    assert (exchange.env_connection, exchange.agent_connection) == ("env-1", "c")
    assert scribe.heads == [(False, HEAD.fields), (True, ANSWER.fields)]


async def test_after_a_release_traffic_leaves_no_trace_and_its_end_is_still_seen() -> None:
    scribe = Collector()
    one = live(scribe)
    over: list[Live] = []
    one.when_over = over.append
    one.answer_head(ANSWER)
    one.answer_piece(b"a")
    one.release(Outcome.OPEN_AT_END, error="open at end")
    assert one.answer_tee(b"more") == b"more"
    assert over == []
    one.end(Outcome.ANSWERED)
    assert over == [one]
    (exchange,) = scribe.exchanges
    assert exchange.response is not None
    assert exchange.response.body is not None
    assert (exchange.outcome, exchange.response.body.inline) == (Outcome.OPEN_AT_END, b"a")


async def test_without_a_ticket_nothing_is_recorded_and_bytes_pass() -> None:
    scribe = Collector()
    one = live(scribe, recorded=False)
    assert one.request_tee(b"x") == b"x"
    one.answer_head(ANSWER)
    assert one.answer_tee(b"y") == b"y"
    one.end(Outcome.ANSWERED)
    assert (scribe.exchanges, scribe.made, scribe.faults) == ([], [], [])


async def test_a_body_whose_sink_breaks_is_not_captured_and_is_told_once() -> None:
    scribe = Collector()
    scribe.breaks = {"sink.write"}
    one = live(scribe)
    one.answer_head(ANSWER)
    for _ in range(3):
        assert one.answer_tee(b"x") == b"x"
    one.end(Outcome.ANSWERED)
    (exchange,) = scribe.exchanges
    assert exchange.response is not None
    assert exchange.response.body is None
    assert [where for _, where, _ in scribe.faults] == ["answer's body"]


async def test_a_body_that_went_past_the_recorder_is_missing_and_says_why() -> None:
    scribe = Collector()
    one = live(scribe)
    one.answer_head(ANSWER)
    one.answer_lost("elsewhere")
    one.end(Outcome.ANSWERED)
    (exchange,) = scribe.exchanges
    assert exchange.response is not None
    assert exchange.response.body is None
    assert exchange.notes == ("answer-not-captured: elsewhere",)


async def test_a_scribe_that_refuses_the_exchange_is_told_of_its_fault() -> None:
    scribe = Collector()
    scribe.breaks = {"finished", "fault"}
    one = live(scribe)
    one.end(Outcome.ANSWERED)
    assert [where for _, where, _ in scribe.faults] == ["finished"]
    assert one.over
