"""However sixteen episodes are interleaved, each gets its own answers in its own order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replayproxy.core.receipt import episode_receipt
from replayproxy.core.replayer import Miss, Replayer, Serve
from replayproxy.core.script import Script
from replayproxy.core.scriptbuild import build
from replayproxy.core.values import Exchange
from replayproxy.testing import exchange, request, trace

EPISODES = 16
WITH_LANES = (3, 11)
PATHS = ("/counter", "/deals", "/deals/7", "/poll")


def episode(number: int) -> list[Exchange]:
    """About twenty exchanges, many of them equal requests; in two of the episodes they come from two lanes at once."""
    chosen = random.Random(number)
    lanes = ["left", "right"] if number in WITH_LANES else ["main"]
    at = dict.fromkeys(lanes, 0.0)
    made = []
    for step in range(20):
        lane = chosen.choice(lanes)
        took = chosen.uniform(1, 15)
        # A lane is sequential; lanes overlap.
        begun = at[lane] + chosen.uniform(0.1, 5)
        at[lane] = begun + took
        method = "POST" if chosen.random() < 0.3 else "GET"
        body = {"episode": number, "step": step}
        made.append(exchange(method, chosen.choice(PATHS), at_ms=begun, took_ms=took, lane=lane, body=body))
    return made


def scripts() -> list[Script]:
    return [build(trace(episode(number)).exchanges, run="r", episode=f"e{number}") for number in range(EPISODES)]


SCRIPTS = scripts()


def asked_by(script: Script, lane: str) -> list[Exchange]:
    return [script.entries[at].exchange for at in script.lanes[lane]]


class Agent:
    """One lane of one episode: asks what it asked when recorded, one request at a time."""

    def __init__(self, replayer: Replayer, lane: str) -> None:
        self.replayer, self.lane = replayer, lane
        self.todo = asked_by(replayer.script, lane)
        self.got: list[Exchange] = []
        self.waiting: Serve | None = None

    @property
    def finished(self) -> bool:
        return not self.todo and self.waiting is None

    def step(self) -> bool:
        """Asks the next, or takes the answer that is waited for. False: it has to wait."""
        if self.waiting is None:
            wanted = self.todo.pop(0)
            asked = self.replayer.script.identify(wanted.env, wanted.request)
            found = self.replayer.ask(asked, self.lane)
            assert isinstance(found, Serve), (self.replayer.script.episode, wanted.seq)
            self.waiting = found
        if not self.replayer.may_go(self.waiting):
            return False
        self.got.append(self.waiting.entry.exchange)
        self.replayer.done(self.waiting)
        self.waiting = None
        return True


def play(scripts: Sequence[Script], choose: random.Random) -> list[Agent]:
    agents: list[Agent] = []
    for script in scripts:
        replayer = Replayer(script)
        agents += [Agent(replayer, lane) for lane in script.lanes]
    stuck = 0
    while not all(agent.finished for agent in agents):
        agent = choose.choice([agent for agent in agents if not agent.finished])
        stuck = 0 if agent.step() else stuck + 1
        assert stuck < 10_000, "nobody may go on"
    return agents


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(min_value=0, max_value=2**32))
def test_sixteen_episodes_are_reproduced_in_any_interleaving(seed: int) -> None:
    agents = play(SCRIPTS, random.Random(seed))
    for agent in agents:
        assert [one.seq for one in agent.got] == [one.seq for one in asked_by(agent.replayer.script, agent.lane)]
        assert episode_receipt(agent.replayer)["reproduced"] is True


@settings(max_examples=40, deadline=None)
@given(st.integers(min_value=0, max_value=2**32), st.integers(min_value=0, max_value=15))
def test_an_episode_alone_is_reproduced_in_any_order_of_its_lanes(seed: int, number: int) -> None:
    agents = play([SCRIPTS[number]], random.Random(seed))
    assert episode_receipt(agents[0].replayer)["reproduced"] is True


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=2**32))
def test_conflicting_answers_come_in_the_recorded_order(seed: int) -> None:
    from replayproxy.core.effects import may_conflict

    script = SCRIPTS[WITH_LANES[seed % 2]]
    replayer = Replayer(script)
    agents = [Agent(replayer, lane) for lane in script.lanes]
    choose, given_order = random.Random(seed), []
    while not all(agent.finished for agent in agents):
        agent = choose.choice([agent for agent in agents if not agent.finished])
        if agent.step():
            given_order.append(agent.got[-1])
    place = {one.seq: index for index, one in enumerate(given_order)}
    writes = {entry.seq: entry.write for entry in script.entries}
    for a in given_order:
        for b in given_order:
            ended_before = (a.times.up_end or 0) < (b.times.fwd or 0)
            if a.lane != b.lane and ended_before and may_conflict(a, b, writes[a.seq], writes[b.seq]):
                assert place[a.seq] < place[b.seq]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.5, 20)), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_overlapping_equal_requests_of_one_lane_are_never_called_reproduced(
    spans: list[tuple[float, float]], choose: random.Random
) -> None:
    recorded = [exchange("GET", "/x", at_ms=at + index / 1000, took_ms=took) for index, (at, took) in enumerate(spans)]
    script = build(trace(recorded).exchanges, run="r", episode="e")
    ordered = sorted(recorded, key=lambda one: one.times.head)
    overlap = any((a.times.c_out or 0) > b.times.head for a, b in pairwise(ordered))
    replayer = Replayer(script)
    asked = script.identify("app", request("GET", "/x"))
    for _ in recorded:
        found = replayer.ask(asked, "main")
        assert isinstance(found, Serve)
        replayer.done(found)
    assert isinstance(replayer.ask(asked, "main"), Miss)
    fresh = Replayer(script)
    under_way: list[Serve] = []
    for _ in recorded:
        found = fresh.ask(asked, "main")
        assert isinstance(found, Serve)
        under_way.append(found)
        if choose.random() < 0.5 or not overlap:
            fresh.done(under_way.pop())
    assert episode_receipt(fresh)["reproduced"] is (not overlap)
