"""`redis:` snapshots against a Redis of this test's own, on a socket file."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as some

from replayproxy.core import prolly
from replayproxy.errors import WrongUsage
from replayproxy.state import KeepsAside, Provider, Reading, StateUnreadable
from replayproxy.state import redis_rows as rows_of
from replayproxy.state.conformance import conform
from replayproxy.state.loader import load
from tests.needs import program

NOWHERE = "redis:redis://127.0.0.1:9/0"


@pytest.fixture(scope="module")
def socket() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path must be short
        path = f"{folder}/redis.sock"
        running = subprocess.Popen(
            [program("redis-server", "valkey-server"), "--port", "0", "--unixsocket", path, "--save", "",
             "--appendonly", "no", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        while not Path(path).exists():
            assert running.poll() is None
            time.sleep(0.01)
        yield path
        running.terminate()
        running.wait()


@pytest.fixture
def live(socket: str) -> Iterator[redis.Redis]:
    client = redis.Redis(unix_socket_path=socket)
    client.flushall()
    client.config_set("requirepass", "")
    yield client
    client.close()


def provider(socket: str, more: str = "", **context: str) -> Provider:
    return load("crm", f"redis:unix://{socket}{more}", context=context).provider


def state(socket: str, more: str = "") -> dict[str, Any]:
    return cast("dict[str, Any]", provider(socket, more).capture().rows)


def through(rows: Any) -> Any:
    """Rows as they come out of a store."""
    tree = prolly.build(rows)
    return prolly.exact(tree.root, tree.nodes.__getitem__)


def restored(socket: str, reading: Reading, more: str = "") -> None:
    one = provider(socket, more)
    cast("KeepsAside", one).restore_whole(through(reading.rows), through(reading.aside))
    one.close()


def filled(live: redis.Redis) -> None:
    """One of everything, with bytes that are no text in every place where bytes may stand."""
    live.hset("deals:42", mapping={"status": "open", "amount": "1", b"\xff": b"\xfe"})
    live.hset("deals:43", mapping={"$type": "a field of that name"})
    live.set("deals:44", '{"id": 44, "price": 1.5, "parts": [{"b": 1, "a": 100.0}]}')
    live.set("deals:45", '{"b":1,"a":"\\u00e9"}')
    live.set("deals:46", '{"b": 1.50}')
    live.set(b"bin:\xff\\x", b"\x00\xff\r\n")
    for key in ("plain", "keys:plain", ":7", "::7", "a:b:7", "\\xff"):
        live.set(key, key)
    live.rpush("list:1", "b", "a", b"\xff", "a")
    live.sadd("set:1", "y", "x", b"\xfe")
    live.zadd("board:1", {"a": 0.1, "b": float("inf"), "c": 3, b"\xff": -1e300})
    for at in range(4):
        live.xadd("log:1", {"n": str(at), b"\xff": b"\xfe"}, id=f"{at + 1}-0")
    live.xgroup_create("log:1", "workers", "0")
    live.xreadgroup("workers", "w1", {"log:1": ">"}, count=2)
    live.xack("log:1", "workers", "1-0")
    live.xdel("log:1", "4-0")
    live.xadd("log:2", {"n": "1"}, id="9-1")
    live.xtrim("log:2", maxlen=0)


def dump(live: redis.Redis) -> dict[bytes, Any]:
    """Everything as Redis itself tells it, by other commands than the provider's where there are any."""
    out: dict[bytes, Any] = {}
    for key in cast("list[bytes]", live.keys()):
        kind = cast("bytes", live.type(key))
        if kind == b"stream":
            groups = cast("list[Any]", live.xinfo_groups(key))
            waiting = [
                [(one["message_id"], one["consumer"], one["times_delivered"]) for one in cast("list[Any]", found)]
                for group in groups
                if (found := live.xpending_range(key, group["name"], "-", "+", 100)) is not None
            ]
            about = cast("dict[str, Any]", live.xinfo_stream(key))
            ids = [about[name] for name in ("last-generated-id", "max-deleted-entry-id", "entries-added")]
            out[key] = (live.xrange(key), ids, [(g["name"], g["last-delivered-id"]) for g in groups], waiting)
        elif kind == b"set":
            out[key] = live.smembers(key)
        elif kind == b"list":
            out[key] = live.lrange(key, 0, -1)
        elif kind == b"hash":
            out[key] = live.hgetall(key)
        elif kind == b"zset":
            out[key] = live.zrange(key, 0, -1, withscores=True)
        else:
            out[key] = live.get(key)
    return out


def test_it_meets_the_contract(socket: str, live: redis.Redis) -> None:
    filled(live)
    checks = conform(
        lambda: provider(socket),
        write=True,
        change=lambda: cast("None", live.hset("deals:42", "status", "won")),
        broken=lambda: load("crm", NOWHERE).provider,
    )
    assert [check for check in checks if check.outcome != "ok"] == []


def test_a_restore_brings_back_every_type_to_the_byte(socket: str, live: redis.Redis) -> None:
    filled(live)
    before, reading = dump(live), provider(socket).capture()
    assert len(before) == 17
    live.flushdb()
    live.set("deals:42", "of another type")
    live.set("new", "1")
    restored(socket, reading)
    assert dump(live) == before
    # The next entry of a stream gets the id that it would have got.
    with pytest.raises(redis.ResponseError, match="equal or smaller"):
        live.xadd("log:2", {"n": "2"}, id="9-1")


def test_a_hash_and_a_json_string_are_rows_with_columns(socket: str, live: redis.Redis) -> None:
    live.hset("crm:deals:42", mapping={"status": "open"})
    live.set("crm:deals:43", '{"id": 43, "status": "won"}')
    live.set("plain", "x")
    assert state(socket) == {
        "crm:deals": {"42": {"status": "open"}, "43": {"$type": "json", "id": 43, "status": "won"}},
        "keys": {"plain": {"$type": "string", "value": "x"}},
    }


def test_equal_values_of_two_types_are_two_states(socket: str, live: redis.Redis) -> None:
    roots = set()
    live.sadd("k:1", "a")
    roots.add(prolly.build(state(socket)).root)
    for write in (lambda: live.rpush("k:1", "a"), lambda: live.set("k:1", "a"), lambda: live.zadd("k:1", {"a": 1}),
                  lambda: live.hset("k:1", "a", "1"), lambda: live.set("k:1", '{"a":"1"}')):  # fmt: skip
        live.flushdb()
        write()
        roots.add(prolly.build(state(socket)).root)
    assert len(roots) == 6


def test_a_key_gets_the_time_back_that_it_had_left_and_time_alone_is_no_difference(
    socket: str, live: redis.Redis
) -> None:
    live.set("session:1", "x", px=60_000)
    live.set("session:2", "x")
    one = provider(socket)
    first = one.capture()
    live.pexpire("session:1", 10_000)
    assert not one.capture().rows.rows  # type: ignore[union-attr]
    restored(socket, first)
    assert 10_000 < cast("int", live.pttl("session:1")) <= 60_000
    assert live.pttl("session:2") == -1


def test_only_what_is_in_scope_is_read_and_replaced(socket: str, live: redis.Redis) -> None:
    live.mset({"a:1": "x", "a:tmp": "x", "b:1": "x", "c:1": "x"})
    more = ",match=a:*,match=b:*,exclude=*:tmp"
    reading = provider(socket, more).capture()
    assert {table: set(rows) for table, rows in cast("dict[str, Any]", reading.rows).items()} == {
        "a": {"1"},
        "b": {"1"},
    }
    live.mset({"a:1": "y", "a:2": "y", "a:tmp": "y", "c:1": "y"})
    restored(socket, reading, more)
    assert {key: live.get(key) for key in ("a:1", "a:2", "a:tmp", "b:1", "c:1")} == {
        "a:1": b"x", "a:2": None, "a:tmp": b"y", "b:1": b"x", "c:1": b"y"
    }  # fmt: skip


def test_a_name_in_a_pattern_stands_for_itself(socket: str, live: redis.Redis) -> None:
    live.mset({"e*:1": "mine", "e2:1": "not mine"})
    one = provider(socket, ",match={episode}:*", episode="e*")
    assert one.scope == "episode"
    assert cast("dict[str, Any]", one.capture().rows) == {"e*": {"1": {"$type": "string", "value": "mine"}}}


def test_what_cannot_be_read_is_named_and_never_left_out(
    socket: str, live: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = provider(socket)
    live.set("a", "x")
    live.set("b", "x")
    monkeypatch.setitem(one.capture.__func__.__globals__, "LARGEST", 1)  # type: ignore[attr-defined]
    with pytest.raises(StateUnreadable, match="more than 1 keys") as caught:
        one.capture()
    assert "match=" in caught.value.hint
    row = cast("Any", one.capture).__func__.__globals__["_row"]
    with pytest.raises(StateUnreadable, match="key doc:1 is of type ReJSON-RL"):
        row(b"doc:1", "ReJSON-RL", False)


def test_a_password_is_taken_from_a_variable_and_never_told(
    socket: str, live: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.set("a", "x")
    live.config_set("requirepass", "p@ss/word")
    monkeypatch.setenv("REDIS_PW", "p@ss/word")
    loaded = load("crm", f"redis:unix://:env:REDIS_PW@{socket}")
    assert loaded.provider.capture().rows == {"keys": {"a": {"$type": "string", "value": "x"}}}
    assert loaded.spec == f"redis:unix://:env:REDIS_PW@{socket}"
    assert "hidden" not in load("crm", "redis:redis://:hidden@127.0.0.1:9/0").spec
    with pytest.raises(StateUnreadable, match="Redis: ") as caught:
        load("crm", f"redis:unix://:hidden@{socket}").provider.capture()
    assert "hidden" not in str(caught.value)
    live.execute_command("AUTH", "p@ss/word")
    live.config_set("requirepass", "")


@pytest.mark.parametrize("spec", ["redis:h:6379", "redis:http://h", "redis:redis://h:x", "redis:redis://h:hidden@x:y"])
def test_a_bad_url_is_refused_in_one_line(spec: str) -> None:
    with pytest.raises(WrongUsage, match="no Redis URL") as caught:
        load("crm", spec)
    assert "\n" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_without_the_client_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "redis", None)
    with pytest.raises(WrongUsage, match="not installed") as caught:
        load("crm", "redis://127.0.0.1/0")
    assert "replayproxy[redis]" in caught.value.hint


def test_the_url_may_be_the_spec_itself() -> None:
    assert load("crm", "redis://127.0.0.1:9/3").provider.can_restore


@given(some.binary(max_size=12))
def test_keys_and_their_names_go_both_ways(key: bytes) -> None:
    assert rows_of.key_of(*rows_of.name_of(key)) == key


@given(some.lists(some.sampled_from([b":", b"keys", b"a", b"\\"]), max_size=5).map(b"".join))
def test_keys_that_look_like_our_own_names_go_both_ways(key: bytes) -> None:
    assert rows_of.key_of(*rows_of.name_of(key)) == key


VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | some.text(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(some.dictionaries(some.text(max_size=3), VALUES, max_size=3), some.sampled_from(rows_of.STYLES))
def test_a_json_string_is_written_again_to_the_byte(value: Any, style: dict[str, Any]) -> None:
    import json

    data = json.dumps(value, **style).encode("utf-8", "backslashreplace")
    row, written = rows_of.of_string(data)
    kept = through({"t": {"k": row}, "w": {"k": written or {}}})
    assert rows_of.string_of(kept["t"]["k"], kept["w"]["k"] or None) == data
