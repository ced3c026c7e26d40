from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.canonical import digest
from replayproxy.core.values import Episode, EpisodeState, Run
from replayproxy.errors import DamagedRecord, Exit, StoreTrouble, UnknownAddress
from replayproxy.storage import Reader, Store
from replayproxy.storage.layout import episode_key, exchange_key, snapshot_key, u64
from replayproxy.testing import episode, exchange, run, snapshot


def recorded(store: Store, **contents: list[Any]) -> dict[str, tuple[Run, Episode]]:
    """Sealed episodes: `run__episode=[exchanges and snapshots]`."""
    writer, found = store.writer(), {}
    for name, items in contents.items():
        run_name, _, episode_name = name.partition("__")
        made = writer.open_run(run(run_name), append=True)
        rollout = writer.open_episode(episode(episode_name, run_key=made.key))
        for item in items:
            put = writer.put_exchange if hasattr(item, "request") else writer.put_snapshot
            put(rollout.key, item)
        found[name] = made, writer.seal(rollout).result(5)
    writer.close()
    return found


def change(store: Store, db: str, key: bytes, to: Callable[[bytes], bytes | None]) -> None:
    """Changes a stored value behind everybody's back; None deletes it."""
    with store.env.writing() as txn:
        new = to(txn.get(key, db=store.env.dbs[db]))
        if new is None:
            txn.delete(key, db=store.env.dbs[db])
        else:
            txn.put(key, new, db=store.env.dbs[db])


def flipped(raw: bytes) -> bytes:
    return raw[:-1] + bytes((raw[-1] ^ 1,))


def test_runs_and_episodes_whose_names_begin_alike_never_mix(store: Store) -> None:
    found = recorded(
        store,
        run1__x=[exchange(target="/1x")],
        run10__x=[exchange(target="/10x")],
        run1__xx=[exchange(target="/1xx"), exchange(target="/1xx/2", at_ms=1)],
        run10__1=[exchange(target="/10-1")],
    )
    reader = store.reader()
    names = {r.name: [e.name for e in reader.episodes(r)] for r in reader.runs()}
    assert names == {"run1": ["x", "xx"], "run10": ["x", "1"]}
    targets = {
        name: [e.request.target for e in reader.exchanges(reader.episode(r, e.name))] for name, (r, e) in found.items()
    }
    assert targets == {"run1__x": [b"/1x"], "run10__x": [b"/10x"], "run1__xx": [b"/1xx", b"/1xx/2"],
                       "run10__1": [b"/10-1"]}  # fmt: skip


def test_a_scan_of_one_episode_never_returns_anothers_whatever_their_keys(store: Store) -> None:
    """Keys around the places where a byte carries over: 255 and 256, 65535 and 65536."""
    writer = store.writer()
    made = writer.open_run(run("r"))
    rollouts = [writer.open_episode(episode(f"e{n}", run_key=made.key)) for n in range(600)]
    for rollout in rollouts:
        writer.put_exchange(rollout.key, exchange(target=f"/{rollout.name}"))
    writer.close()
    reader = store.reader()
    for rollout in rollouts:
        assert [e.request.target for e in reader.exchanges(rollout)] == [f"/{rollout.name}".encode()]


def test_step_ten_comes_after_step_two(store: Store) -> None:
    steps = [exchange(target=f"/{n}", at_ms=n) for n in (10, 2, 300, 1, 100, 20)]
    _, rollout = recorded(store, r__e=steps)["r__e"]
    reader = store.reader()
    assert [e.request.target for e in reader.exchanges(rollout)] == [b"/1", b"/2", b"/10", b"/20", b"/100", b"/300"]
    assert [e.seq for e in reader.exchanges(rollout)] == [1, 2, 3, 4, 5, 6]
    assert reader.exchange(rollout, 3).request.target == b"/10"


def test_the_worker_breaks_a_tie(store: Store) -> None:
    same = [exchange(target=f"/{worker}", at_ms=1, worker=worker) for worker in (300, 2, 10)]
    _, rollout = recorded(store, r__e=same)["r__e"]
    assert [e.request.target for e in store.reader().exchanges(rollout)] == [b"/2", b"/10", b"/300"]


def test_exchanges_are_streamed_over_any_number_of_transactions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replayproxy.storage.reader.AT_ONCE", 7)
    for count in (0, 1, 6, 7, 8, 14, 20):
        _, rollout = recorded(store, **{f"r__e{count}": [exchange(at_ms=n) for n in range(count)]})[f"r__e{count}"]
        assert [e.seq for e in store.reader().exchanges(rollout)] == list(range(1, count + 1))


def test_latest_is_the_run_opened_last(store: Store) -> None:
    writer = store.writer()
    for name, wall in (("b", 30), ("a", 40), ("c", 20)):
        writer.open_run(run(name, opened_wall=wall))
    writer.close()
    assert [one.name for one in store.reader().runs()] == ["c", "b", "a"]
    assert store.reader().run("latest").name == "a"


def test_what_is_not_there_is_an_unknown_address(store: Store) -> None:
    made, rollout = recorded(store, r__e=[exchange()])["r__e"]
    reader = store.reader()
    for look in (
        lambda: reader.run("q"),
        lambda: reader.run(""),
        lambda: reader.run("\ud800"),
        lambda: reader.episode(made, "unattributed"),
        lambda: reader.episode(made, "\ud800"),
        lambda: reader.exchange(rollout, 2),
        lambda: reader.exchange(rollout, 0),
        lambda: reader.exchange(rollout, -1),
    ):
        with pytest.raises(UnknownAddress) as refused:
            look()
        assert refused.value.exit == Exit.USAGE


def test_latest_of_an_empty_store_is_an_unknown_address(store: Store) -> None:
    with pytest.raises(UnknownAddress, match="holds no run"):
        store.reader().run("latest")


def test_bodies_are_loaded_up_to_the_limit(store: Store) -> None:
    made, rollout = recorded(store, r__e=[exchange(body=b"a" * 5000, sent=b"b" * 9000)])["r__e"]
    reader = store.reader()

    def inline(limit: int) -> tuple[bool, bool]:
        (one,) = reader.trace(made, rollout, bodies=limit).exchanges
        assert one.response is not None
        assert one.response.body is not None
        assert one.request.body is not None
        return one.response.body.inline is not None, one.request.body.inline is not None

    assert inline(0) == (False, False)
    assert inline(5000) == (True, False)
    assert inline(9000) == (True, True)
    (one,) = reader.exchanges(rollout)
    assert one.request.body is not None
    assert reader.body(one.request.body) == b"b" * 9000
    assert b"".join(reader.pieces(one.request.body)) == b"b" * 9000


def test_a_snapshot_names_exchanges_by_number(store: Store) -> None:
    first, second, third = (exchange("POST", at_ms=n, took_ms=9) for n in (1, 2, 3))
    shot = snapshot(0, b"r" * 32, after=second, in_flight=(third.order, first.order, (99, 9)))
    _, rollout = recorded(store, r__e=[third, first, second, shot])["r__e"]
    (found,) = store.reader().snapshots(rollout)
    assert (found.after_seq, found.in_flight_seq) == (2, (1, 3))


def test_an_episode_whose_writer_is_gone_is_incomplete(store: Store) -> None:
    writer = store.writer()
    made = writer.open_run(run("r"))
    writer.open_episode(episode("e", run_key=made.key))
    writer.flush().result(5)
    reader = store.reader()
    assert [e.state for e in reader.episodes(made)] == [EpisodeState.OPEN]
    writer.close()
    assert [e.state for e in reader.episodes(made)] == [EpisodeState.INCOMPLETE]
    again = store.writer()
    assert [e.state for e in reader.episodes(made)] == [EpisodeState.INCOMPLETE]
    again.close()


@pytest.fixture
def damaged(store: Store) -> tuple[Store, Reader, Run, Episode]:
    items = [*(exchange(at_ms=n, body=b"x" * 5000) for n in range(3)), snapshot(0, None)]
    made, rollout = recorded(store, r__e=items)["r__e"]
    return store, store.reader(), made, rollout


def test_a_damaged_exchange_is_named_and_the_others_can_be_read(damaged: tuple[Store, Reader, Run, Episode]) -> None:
    store, reader, made, rollout = damaged
    change(store, "exchanges", exchange_key(rollout.key, exchange(at_ms=1).order), flipped)
    with pytest.raises(DamagedRecord, match=r"r/e#2 in .* is damaged: its checksum does not fit") as refused:
        list(reader.exchanges(rollout))
    assert refused.value.exit == Exit.STORE
    with pytest.raises(DamagedRecord, match="r/e#2"):
        reader.trace(made, rollout)
    assert [reader.exchange(rollout, seq).seq for seq in (1, 3)] == [1, 3]


def test_a_lost_exchange_is_noticed_by_the_seal(damaged: tuple[Store, Reader, Run, Episode]) -> None:
    store, reader, made, rollout = damaged
    change(store, "exchanges", exchange_key(rollout.key, exchange(at_ms=1).order), lambda _: None)
    with pytest.raises(DamagedRecord, match=r"r/e in .* sealed with 3 exchanges and 1 snapshot, 2 and 1 are there"):
        reader.trace(made, rollout)


def test_an_exchange_replaced_by_a_whole_one_is_noticed_by_the_seal(
    damaged: tuple[Store, Reader, Run, Episode],
) -> None:
    store, reader, made, rollout = damaged
    from replayproxy.storage.codec import encode_exchange

    other = encode_exchange(exchange(target="/other", at_ms=1))
    change(store, "exchanges", exchange_key(rollout.key, exchange(at_ms=1).order), lambda _: other)
    with pytest.raises(DamagedRecord, match="not those it was sealed with"):
        reader.trace(made, rollout)


def test_every_other_damage_is_named_too(damaged: tuple[Store, Reader, Run, Episode]) -> None:
    store, reader, made, rollout = damaged
    address = digest(b"x" * 5000)
    change(store, "blobs", address, flipped)
    with pytest.raises(DamagedRecord, match=r"r/e#1 in .* blob [0-9a-f]{16}"):
        reader.trace(made, rollout)
    change(store, "blobs", address, lambda _: None)
    with pytest.raises(DamagedRecord, match="is missing"):
        reader.trace(made, rollout)
    change(store, "snapshots", snapshot_key(rollout.key, 0), flipped)
    with pytest.raises(DamagedRecord, match="r/e/s0"):
        reader.snapshots(rollout)
    change(store, "episodes", episode_key(made.key, rollout.key), flipped)
    with pytest.raises(DamagedRecord, match=f"episode {rollout.key} of run r "):
        reader.episodes(made)
    with pytest.raises(DamagedRecord, match=f"episode {rollout.key} of run r "):
        reader.episode(made, "e")
    change(store, "episodes", episode_key(made.key, rollout.key), lambda _: None)
    with pytest.raises(DamagedRecord, match=r"r/e in .* its record is missing"):
        reader.episode(made, "e")
    change(store, "runs", u64(made.key), flipped)
    for look in (reader.runs, lambda: reader.run("r")):
        with pytest.raises(DamagedRecord, match=f"run {made.key} "):
            look()
    change(store, "runs", u64(made.key), lambda _: None)
    with pytest.raises(DamagedRecord, match=r"run r in .* its record is missing"):
        reader.run("r")


def test_a_closed_store_gives_store_trouble(store: Store) -> None:
    reader = store.reader()
    store.close()
    with pytest.raises(StoreTrouble, match="cannot be read"):
        reader.runs()


def check(store: Store, name: str, findings: list[dict[str, Any]]) -> None:
    writer = store.writer(exclusive=False)
    writer.put_check(store.reader().run(name).key, {"run": name, "findings": findings})
    writer.close()


def test_addresses_lead_to_what_they_name(store: Store) -> None:
    recorded(store, r__e=[exchange(), snapshot(0, None)])
    reader = store.reader()
    assert reader.resolve("r").episode is None
    assert reader.resolve("latest/e").text == "latest/e"
    named = reader.resolve("r/e#1")
    assert (named.run.name, named.episode and named.episode.name, named.seq) == ("r", "e", 1)
    assert reader.resolve("r/e/1").seq == 1
    assert reader.resolve("r/e/s0").snapshot == 0
    for text in ("q", "r/q", "r/e#2", "r/e/s1", "r/e/x", "a b", "r/e#0", "x.replay", "F1"):
        with pytest.raises(UnknownAddress):
            reader.resolve(text)


def test_a_finding_is_that_of_the_last_check_or_named_by_its_stable_id(store: Store) -> None:
    recorded(store, one__e=[exchange()], two__e=[exchange()])
    check(store, "one", [{"id": "race-0123456789", "kind": "race"}])
    check(store, "two", [{"id": "a"}, {"id": "stale-read-abcdef0123"}])
    reader = store.reader()
    assert reader.resolve("F2").finding == {"id": "stale-read-abcdef0123"}
    assert reader.resolve("F2").run.name == "two"
    assert reader.resolve("race-0123456789").run.name == "one"
    with pytest.raises(UnknownAddress, match="the last check, of run two, has 2"):
        reader.resolve("F3")


def test_a_number_never_means_a_finding_of_another_run(store: Store) -> None:
    recorded(store, one__e=[exchange()], two__e=[exchange()])
    check(store, "one", [{"id": "race-0123456789", "number": "F1"}])
    check(store, "two", [])
    with pytest.raises(UnknownAddress, match="no finding F1: the last check, of run two, has 0") as refused:
        store.reader().resolve("F1")
    assert refused.value.hint == "F1 of run one is race-0123456789, or replayproxy check one first"
    with pytest.raises(UnknownAddress) as refused:
        store.reader().resolve("F2")
    assert refused.value.hint == "replayproxy check two; another run's finding is named by its stable id"


def test_a_number_is_that_of_the_whole_run_where_only_some_episodes_were_checked(store: Store) -> None:
    recorded(store, one__e=[exchange()])
    check(store, "one", [{"id": "race-0123456789", "number": "F2"}])
    assert store.reader().resolve("F2").finding == {"id": "race-0123456789", "number": "F2"}
    with pytest.raises(UnknownAddress, match="no finding F1"):
        store.reader().resolve("F1")


def test_reading_needs_no_memory_for_what_is_not_looked_at(store: Store, tmp_path: Path) -> None:
    recorded(store, r__e=[exchange(at_ms=n, body=bytes([n]) * 50_000) for n in range(40)])
    made = store.reader().run("r")
    rollout = store.reader().episode(made, "e")
    stream = store.reader().exchanges(rollout)
    first = next(stream)
    assert first.response is not None
    assert first.response.body is not None
    assert first.response.body.inline is None
    assert replace(first.response.body, pieces=()).size == 50_000
