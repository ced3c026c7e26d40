from __future__ import annotations

from replayproxy.core.values import Episode
from replayproxy.detect.spans import Span, in_time, span_of
from replayproxy.testing import run

HOUR = 3600 * 1_000_000_000


def span(name: str, opened: int, ended: int, wall: int | None = None, **instances: str) -> Span:
    return Span(
        name=name, opened=opened, ended=ended, opened_wall=opened if wall is None else wall,
        instances=instances or {"app": "i"},
    )  # fmt: skip


def test_episodes_overlap_when_one_was_opened_before_the_other_ended() -> None:
    a, b, c = span("a", 0, 10), span("b", 5, 20), span("c", 11, 30)
    assert a.overlaps(b)
    assert b.overlaps(c)
    assert not a.overlaps(c)
    assert a.before(c)
    assert not a.before(b)


def test_a_clock_that_began_anew_makes_no_overlap() -> None:
    before, after = span("a", 0, 10 * HOUR, wall=0), span("b", 5, 20, wall=24 * HOUR)
    assert not before.overlaps(after)
    assert before.before(after)
    assert [one.name for one in in_time([after, before])] == ["a", "b"]


def test_an_instance_is_what_the_harness_says_else_where_the_traffic_went() -> None:
    named = Episode(key=1, run_key=1, name="a", instance={"app": "pod-7"}, envs={"app": "http://x"})
    sent = Episode(key=1, run_key=1, name="b", envs={"app": "http://x"})
    plain = Episode(key=1, run_key=1, name="c")
    assert [dict(span_of(run(), one).instances) for one in (named, sent, plain)] == [
        {"app": "pod-7"}, {"app": "http://x"}, {"app": "http://app.test"},
    ]  # fmt: skip
    assert span_of(run(), plain).shares(span_of(run(), plain), ["app"])
    assert not span_of(run(), named).shares(span_of(run(), sent), ["app"])
