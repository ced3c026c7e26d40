"""The matcher: who gets which recorded answer."""

from __future__ import annotations

import pytest

from replayproxy.core.nearest import Near, Situation, State, nearest
from replayproxy.core.replayer import Grade, Miss, Order, Replayer, Serve
from replayproxy.core.script import Script
from replayproxy.core.scriptbuild import build
from replayproxy.core.values import Exchange, Outcome
from replayproxy.testing import exchange, request, trace


class Play:
    """A dialogue with the replayer: `ask` gives the number of the exchange served, or the miss."""

    def __init__(self, *exchanges: Exchange, order: Order = Order.LANE) -> None:
        self.replayer = Replayer(build(trace(exchanges).exchanges, run="r", episode="e"), order)

    def claim(self, method: str, target: str, sent: object = b"", *, lane: str = "main", env: str = "app", **more):
        asked = self.replayer.script.identify(env, request(method, target, sent, **more))
        return self.replayer.ask(asked, lane)

    def ask(self, method: str, target: str, sent: object = b"", **more) -> int | None:
        found = self.claim(method, target, sent, **more)
        if isinstance(found, Miss):
            return None
        self.replayer.done(found)
        return found.entry.seq

    def near(self, miss: Miss) -> tuple[Near, ...]:
        now = Situation(
            asked=miss.asked, lane=miss.lane, consumers=dict(self.replayer.consumers), expected=miss.expected
        )
        return nearest(self.replayer.script, now, lambda body: body)

    def missed(self, *args, **more) -> tuple[Near, ...]:
        miss = self.claim(*args, **more)
        assert isinstance(miss, Miss)
        return self.near(miss)


def counter() -> Play:
    return Play(
        exchange("GET", "/counter", body={"n": 1}),
        exchange("POST", "/inc", status=204),
        exchange("GET", "/counter", body={"n": 2}),
        exchange("POST", "/inc", status=204),
        exchange("GET", "/counter", body={"n": 3}),
    )


def test_the_nth_request_gets_the_nth_answer_and_one_more_is_a_miss() -> None:
    play = counter()
    assert [play.ask("GET", "/counter") for _ in range(3)] == [1, 3, 5]
    assert play.ask("GET", "/counter") is None
    assert [play.ask("POST", "/inc") for _ in range(3)] == [2, 4, None]


def test_a_used_up_request_is_consumed_and_one_never_recorded_is_not() -> None:
    play = counter()
    for _ in range(3):
        play.ask("GET", "/counter")
    first = play.missed("GET", "/counter")[0]
    assert (first.state, first.pointer) == (State.CONSUMED, None)
    assert "3 recorded, 3 served" in first.note
    assert all(near.state is not State.CONSUMED for near in play.missed("GET", "/never"))


def test_a_request_never_recorded_is_not_called_consumed_when_all_else_is() -> None:
    play = counter()
    for method, path in [("GET", "/counter"), ("POST", "/inc")] * 2 + [("GET", "/counter")]:
        play.ask(method, path)
    assert {near.state for near in play.missed("GET", "/never")} == {State.ANSWERED}


def test_an_equal_request_in_another_lane_is_named_as_such() -> None:
    play = Play(exchange("GET", "/x", lane="tool-b"), exchange("GET", "/y", lane="main"))
    found = play.missed("GET", "/x", lane="main")[0]
    assert (found.state, found.pointer, found.entry.lane) == (State.OTHER_LANE, None, "tool-b")
    assert "lane mark missing?" in found.note


@pytest.mark.parametrize(
    ("target", "sent", "headers", "pointer", "recorded", "asked"),
    [
        ("/deals/43/notes?a=1", {"t": "x"}, {}, "path/1", "42", "43"),
        ("/deals/42/notes?a=2", {"t": "x"}, {}, "query.a", "1", "2"),
        ("/deals/42/notes", {"t": "x"}, {}, "query.a", "1", None),
        ("/deals/42/notes?a=1", {"t": "x"}, {"Range": "bytes=0-3"}, "header/range", None, "bytes=0-3"),
        ("/deals/42/notes?a=1", {"t": "y"}, {}, "body/t", "x", "y"),
        ("/deals/42/notes?a=1", {"t": "x", "u": None}, {}, "body/u", None, None),
        ("/deals/42/notes?a=1", b"", {}, "body", "json, 10 bytes", "empty"),
    ],
)
def test_a_near_miss_names_the_first_field_that_differs(
    target: str, sent: object, headers: dict, pointer: str, recorded: object, asked: object
) -> None:
    kind = {"Content-Type": "application/json"}
    play = Play(exchange("POST", "/deals/42/notes?a=1", sent={"t": "x"}, request_headers=kind))
    near = play.missed("POST", target, sent, headers=kind | headers)[0]
    assert (near.state, near.pointer, near.recorded, near.asked) == (State.FREE, pointer, recorded, asked)


def test_another_method_is_named_before_anything_else() -> None:
    near = Play(exchange("GET", "/x")).missed("POST", "/y")[0]
    assert (near.pointer, near.recorded, near.asked) == ("method", "GET", "POST")


def test_the_nearest_of_many_comes_first_and_at_most_three_are_named() -> None:
    play = Play(
        exchange("DELETE", "/a/b/c"),
        exchange("GET", "/deals/42?fields=owner,name"),
        exchange("GET", "/deals"),
        exchange("POST", "/deals/42"),
        exchange("GET", "/x", env="cal"),
    )
    found = play.missed("GET", "/deals/42?fields=name,owner")
    assert len(found) == 3
    assert (found[0].entry.seq, found[0].pointer) == (2, "query.fields")
    assert (found[0].recorded, found[0].asked) == ("owner,name", "name,owner")


def test_a_credential_is_never_shown() -> None:
    play = Play(exchange("GET", "/x", request_headers={"Authorization": "Bearer AAA"}))
    near = play.missed("GET", "/x", headers={"authorization": "Bearer BBB"})[0]
    assert near.pointer == "header/authorization"
    assert "AAA" not in repr(near.recorded)
    assert "BBB" not in repr(near.asked)
    assert near.recorded != near.asked


def test_the_same_miss_again_is_one_miss_with_a_count() -> None:
    play = counter()
    misses = {id(play.claim("GET", "/never")) for _ in range(5)}
    assert len(misses) == 1
    assert play.replayer.tally.misses == 1
    assert play.replayer.tally.requests_missed == 5
    assert next(iter(play.replayer.misses.values())).count == 5


@pytest.mark.parametrize(
    ("asked", "grade"),
    [(b'{"a": 1, "b": 2}', Grade.EXACT), (b'{"b":2.0,"a":1e0}', Grade.CANONICAL)],
)
def test_byte_equal_is_exact_and_one_value_is_canonical(asked: bytes, grade: Grade) -> None:
    play = Play(exchange("POST", "/x", sent=b'{"a": 1, "b": 2}'))
    found = play.claim("POST", "/x", asked)
    assert isinstance(found, Serve)
    assert found.grade is grade


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [("/list?tag=", "/list"), ("/list?tag", "/list?tag="), ("/list?", "/list"), ("/files/a%2Fb", "/files/a/b"),
     ("/x/%7Eu", "/x/~u"), ("/x/../y//z", "/x/y/z"), ("/q?a=1&a=2", "/q?a=2&a=1")],
)  # fmt: skip
def test_targets_that_only_look_equal_do_not_match(recorded: str, asked: str) -> None:
    play = Play(exchange("GET", recorded))
    near = play.missed("GET", asked)[0]
    assert near.pointer is not None
    assert near.pointer.startswith(("path", "query"))
    assert play.ask("GET", recorded) == 1


def test_validators_and_range_choose_the_representation() -> None:
    play = Play(
        exchange("GET", "/b", status=200, body=b"body"),
        exchange("GET", "/b", status=304, request_headers={"If-None-Match": '"v1"'}),
        exchange("GET", "/b", status=206, body=b"bo", request_headers={"Range": "bytes=0-1"}),
    )
    assert play.ask("GET", "/b", headers={"range": "bytes=0-1"}) == 3
    assert play.ask("GET", "/b") == 1
    assert play.ask("GET", "/b") is None
    assert play.ask("GET", "/b", headers={"if-none-match": '"v1"'}) == 2


def test_the_empty_body_the_empty_text_and_no_type_are_three_things() -> None:
    kind = {"Content-Type": "application/json"}
    play = Play(
        exchange("DELETE", "/x", sent=b"", request_headers=kind),
        exchange("DELETE", "/x", sent=b'""', request_headers=kind),
        exchange("DELETE", "/x", sent=b"", request_headers={}),
    )
    assert play.ask("DELETE", "/x", b'""', headers=kind) == 2
    assert play.ask("DELETE", "/x", b"", headers={}) == 3
    assert play.ask("DELETE", "/x", b"", headers=kind) == 1


def test_lanes_have_queues_of_their_own() -> None:
    play = Play(
        exchange("GET", "/poll", lane="a"), exchange("GET", "/poll", lane="b"),
        exchange("GET", "/poll", lane="a"), exchange("GET", "/poll", lane="b"),
    )  # fmt: skip
    assert [play.ask("GET", "/poll", lane=lane) for lane in "bbaa"] == [2, 4, 1, 3]


def test_strict_order_takes_the_next_of_its_lane_only() -> None:
    play = Play(exchange("GET", "/a"), exchange("GET", "/b"), order=Order.STRICT)
    near = play.missed("GET", "/b")
    first = near[0]
    assert (first.entry.seq, first.pointer, first.state) == (2, None, State.FREE)
    assert "not the next of its lane" in near[0].note
    assert [play.ask("GET", "/a"), play.ask("GET", "/b"), play.ask("GET", "/b")] == [1, 2, None]


def test_retries_that_do_not_come_leave_answers_unused_and_shift_nothing() -> None:
    play = Play(
        exchange("GET", "/task", status=503), exchange("GET", "/task", status=503), exchange("GET", "/task"),
        exchange("POST", "/done"),
    )  # fmt: skip
    assert [play.ask("GET", "/task"), play.ask("POST", "/done")] == [1, 4]
    assert [entry.seq for entry in play.replayer.unused()] == [2, 3]


def test_an_answer_across_lanes_waits_for_the_write_it_saw() -> None:
    play = Play(
        exchange("POST", "/deals", lane="a", at_ms=0), exchange("GET", "/deals", lane="b", at_ms=10),
    )  # fmt: skip
    read = play.claim("GET", "/deals", lane="b")
    assert isinstance(read, Serve)
    assert not play.replayer.may_go(read)
    write = play.claim("POST", "/deals", lane="a")
    assert isinstance(write, Serve)
    assert play.replayer.may_go(write)
    assert not play.replayer.may_go(read)
    assert play.replayer.done(write)
    assert play.replayer.may_go(read)


def test_an_answer_that_waited_too_long_is_counted_with_what_it_waited_for() -> None:
    play = Play(exchange("POST", "/deals", lane="a", at_ms=0), exchange("GET", "/deals", lane="b", at_ms=10))
    read = play.claim("GET", "/deals", lane="b")
    assert isinstance(read, Serve)
    play.replayer.overdue(read)
    first = play.replayer.tally.first
    assert play.replayer.tally.order_divergences == 1
    assert first is not None
    assert first.other is not None
    assert (first.kind, first.other.seq) == ("order", 1)


def test_equal_requests_at_once_in_one_lane_are_counted_while_they_overlap_only() -> None:
    play = counter()
    one = play.claim("GET", "/counter")
    play.ask("GET", "/counter")
    assert isinstance(one, Serve)
    assert play.replayer.tally.overlapping == 1
    play.replayer.done(one)
    play.ask("GET", "/counter")
    assert play.replayer.tally.overlapping == 1


def test_a_half_sent_request_uses_up_a_recorded_one() -> None:
    play = Play(exchange("POST", "/step", sent=b"abc", status=None, outcome=Outcome.HALF_SENT), exchange("GET", "/x"))
    play.replayer.half_sent("app", b"POST", b"/step", "main")
    assert [entry.seq for entry in play.replayer.unused()] == [2]
    assert play.replayer.tally.first is None
    play.replayer.half_sent("app", b"POST", b"/step", "main")
    assert play.replayer.tally.first is not None
    assert play.replayer.tally.half_sent == 1


def test_resets_are_served_and_not_owed() -> None:
    play = Play(exchange("POST", "/reset", is_reset=True), exchange("GET", "/x"))
    assert [entry.seq for entry in play.replayer.unused()] == [2]
    assert play.ask("POST", "/reset") == 1


def test_what_is_set_aside_keeps_one_script_with_nothing_in_it_and_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Script] = []
    real = Script.emptied

    def emptied(self: Script) -> Script:
        made.append(real(self))
        return made[-1]

    monkeypatch.setattr(Script, "emptied", emptied)
    play = counter()
    whole = play.replayer.script
    assert play.ask("GET", "/counter") == 1
    play.replayer.set_aside()
    assert made == [play.replayer.script]
    assert (made[0].address, made[0].entries, made[0].exact) == (whole.address, (), {})
    play.replayer.go_on(whole)
    assert play.ask("GET", "/counter") == 3
