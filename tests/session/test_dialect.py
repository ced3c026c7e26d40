"""A replay treats heads as the recorder does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replayproxy.core.values import EnvWiring, Fields
from replayproxy.proxy.head import take_marks
from replayproxy.serve.doors import Door, Entrance
from replayproxy.session.dialect import RecordedDialect
from replayproxy.testing import exchange, run

HEADS: list[tuple[bytes, Fields, str | None]] = [
    (b"/x", (), None),
    (b"/x?rp=/rp/e", ((b"Host", b"h"),), None),
    (b"/rp/e", (), None),
    (b"/rp/e/", (), None),
    (b"/rp/e?a=1", (), None),
    (b"/rp/e/x/y?a=/", (), None),
    (b"/rp/b%20c/x", (), None),
    (b"/rp/%ff/x", (), None),
    (b"/rp//x", (), None),
    (b"/rp/e/x", ((b"X-Replay-Lane", b"left"),), None),
    (b"/x", ((b"x-replay-episode", b"e%2F"), (b"Accept", b"*/*")), None),
    (b"/x", ((b"Baggage", b"a=1,replay.episode=e;p=1"),), None),
    (b"/rp/e/x", (), "own"),
    (b"*", (), None),
]


@pytest.mark.parametrize(("target", "fields", "port_episode"), HEADS)
def test_marks_are_read_as_the_recorder_reads_them(target: bytes, fields: Fields, port_episode: str | None) -> None:
    wanted = take_marks(target, fields, port_episode=port_episode)
    door = Door(env="app", origin="http://127.0.0.1:1", port=1, port_episode=port_episode)
    got = RecordedDialect(run()).take_marks(target, fields, Entrance(door=door))
    assert (got.claims, got.target, got.prefix) == (wanted.claims, wanted.target, wanted.prefix)


def test_links_lead_to_the_door_by_the_name_that_the_agent_used() -> None:
    door = Door(env="app", origin="http://127.0.0.1:81", port=81)
    wired = run(envs=())
    dialect = RecordedDialect(wired)
    answered = exchange(
        headers={"Location": "http://app.test/next", "Alt-Svc": "h2=x", "X-Other": "http://else.test/"},
        upstream="http://app.test",
    )
    seen = dialect.agent_fields(door, answered, b"localhost:81", b"/rp/e")
    assert seen == ((b"Location", b"http://localhost:81/rp/e/next"), (b"X-Other", b"http://else.test/"))
    assert dialect.agent_fields(door, answered, b"elsewhere:9", b"")[0] == (b"Location", b"http://127.0.0.1:81/next")


def test_an_environment_that_kept_the_agents_host_may_link_by_it() -> None:
    wiring = EnvWiring(name="app", upstream="http://app.test", options={"host": "keep"})
    answered = exchange(headers={"Location": "http://agent.host:5/next"})
    answered = replace(answered, request=replace(answered.request, agent_host=b"agent.host:5"))
    dialect = RecordedDialect(run(envs=()))
    door = Door(env="app", origin="http://127.0.0.1:81", port=81)
    assert dialect.agent_fields(door, answered, None, b"")[0][1] == b"http://agent.host:5/next"
    kept = RecordedDialect(replace(run(envs=()), envs={"app": wiring}))
    assert kept.agent_fields(door, answered, None, b"")[0][1] == b"http://127.0.0.1:81/next"
