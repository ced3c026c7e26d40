"""Resets through a replay."""

from __future__ import annotations

from replayproxy.core.values import UNATTRIBUTED, EnvWiring, Run
from replayproxy.serve.resets import load_resets
from replayproxy.storage import Store
from replayproxy.testing import episode as made_episode
from replayproxy.testing import exchange, trace
from tests.serve.staged import staged

KIND = {"Content-Type": "application/json"}


def record(store: Store) -> Run:
    writer = store.writer()
    wired = EnvWiring(name="app", upstream="http://127.0.0.1:9", reset=("POST", "http://127.0.0.1:9/reset", '{"a": 1}'))
    run = writer.open_run(Run(key=0, name="r", opened_wall=1, envs={"app": wired}))
    bucket = writer.open_episode(made_episode(UNATTRIBUTED, run_key=run.key))
    resets = [
        exchange("POST", "/reset", sent=b'{"a": 1}', request_headers=KIND, body=body, is_reset=True)
        for body in (b"first", b"second")
    ]
    for one in trace([*resets, exchange("GET", "/stray")]).exchanges:
        writer.put_exchange(bucket.key, one)
    opened = writer.open_episode(made_episode("e", run_key=run.key))
    for one in trace([exchange("GET", "/x"), exchange("POST", "/reset", sent=b"{}", request_headers=KIND)]).exchanges:
        writer.put_exchange(opened.key, one)
    writer.seal(opened).result(10)
    writer.close()
    return run


async def test_a_reset_gets_its_recorded_answers_and_then_the_last_and_counts_for_no_episode(store: Store) -> None:
    run, kind = record(store), KIND["Content-Type"]
    async with staged(store, run) as on:
        on.stage.resets = load_resets(store.reader(), run)
        seen = [
            await on.get("/reset", method="POST", body=b'{"a":1.0}', Content_Type=KIND["Content-Type"]) for _ in "123"
        ]
        assert [answer.partition(b"\r\n\r\n")[2] for answer in seen] == [b"first", b"second", b"second"]
        # The same path with another body is the episode's own affair.
        own = await on.get("/reset", method="POST", body=b"{}", Content_Type=kind)
        assert own.startswith(b"HTTP/1.1 200")
        assert (await on.get("/stray")).startswith(b"HTTP/1.1 470")
        receipt = on.receipt()
    assert (receipt["resets"], receipt["served"]["exact"], receipt["requests"]) == (3, 1, 2)


def test_a_run_without_a_reset_has_none(store: Store) -> None:
    writer = store.writer()
    run = writer.open_run(Run(key=0, name="r", opened_wall=1, envs={"app": EnvWiring(name="app", upstream="http://h")}))
    writer.close()
    assert load_resets(store.reader(), run) is None
