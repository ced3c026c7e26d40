from __future__ import annotations

from dataclasses import replace

from replayproxy.core import prolly
from replayproxy.core.sides import Side, overlapping
from replayproxy.core.values import EnvWiring
from replayproxy.testing import exchange, snapshot, trace


def test_the_own_addresses_are_upstream_listener_and_what_the_episode_was_given() -> None:
    made = trace([exchange("GET", "/", upstream="http://[::1]:9000")])
    wiring = EnvWiring(name="app", upstream="https://env.test", listener="http://127.0.0.1:8101")
    made = replace(made, run=replace(made.run, envs={"app": wiring, "dyn": EnvWiring(name="dyn", upstream="dynamic")}))
    side = Side(trace=made, load=None, authorities=frozenset({"extra:1"}))
    assert side.own_addresses() == {"extra:1", "env.test:443", "env.test", "127.0.0.1:8101", "[::1]:9000"}


def test_reads_that_were_declared_are_no_writes() -> None:
    made = trace([exchange("POST", "/search"), exchange("POST", "/deals"), exchange("GET", "/deals")])
    wiring = EnvWiring(name="app", upstream="http://app.test", reads=("POST /search",))
    side = Side(trace=replace(made, run=replace(made.run, envs={"app": wiring})), load=None, authorities=frozenset())
    assert [side.is_write(e) for e in made.exchanges] == [False, True, False]


def test_identifiers_come_from_paths_locations_and_rows_that_changed() -> None:
    before, after = prolly.build({"notes": {}}), prolly.build({"notes": {"7": {"x": 1}}})
    nodes = {**before.nodes, **after.nodes}
    made = trace(
        [exchange("GET", "/deals/17"), exchange("POST", "/deals", headers={"Location": "http://h/tickets/5"}, at_ms=5)],
        snapshots=[snapshot(0, before.root, when="start"), snapshot(1, after.root, when="end")],
    )
    found = Side(trace=made, load=nodes.__getitem__, authorities=frozenset()).identifiers()
    assert [found.has(*pair) for pair in (("deal", "17"), ("ticket", "5"), ("note", "7"), ("note", "8"))] == [
        True, True, True, False,
    ]  # fmt: skip


def test_equal_requests_that_overlap_in_a_lane_are_counted() -> None:
    apart = trace([exchange("GET", "/x", at_ms=n * 10) for n in range(3)])
    assert overlapping(apart.exchanges) == 0
    beside = trace([exchange("GET", "/x", at_ms=0, took_ms=50), exchange("GET", "/x", at_ms=10),
                    exchange("GET", "/y", at_ms=20), exchange("GET", "/x", at_ms=21, lane="other")])  # fmt: skip
    assert overlapping(beside.exchanges) == 1
