"""`redis:URL[,match=GLOB ..][,exclude=GLOB ..]`: the keys of one Redis database, by type.

A key `deals:42` is the row `42` of the table `deals` (what stands before the last colon). Strings, hashes, lists, sets,
sorted sets and streams with their groups are read by one Lua script, so that a reading is the state of one instant;
Redis answers nobody else meanwhile. A key of a module's type is refused by name. When a key expires is kept aside: a
restore gives each key the time that it had left.

A restore replaces all keys in its scope in one MULTI. Functions, scripts, other databases and the expiry of single
fields are no part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from replayproxy.errors import WrongUsage
from replayproxy.state import Changes, Reading, RestoreFailed, Row, Rows, Scope, Spec, StateUnreadable
from replayproxy.state import redis_rows as rows_of
from replayproxy.state.delta import changes_between

if TYPE_CHECKING:
    from redis import Redis
    from redis.client import Pipeline

OPTIONS = ("match", "exclude")
TIMEOUT = 25.0
"""Seconds for an answer: less than a snapshot may take, so that the reason is Redis's own."""
LARGEST = 200_000
"""More keys than this are refused: nobody else is answered while they are read."""
EXPIRES, WRITTEN, CLOCK = "expires", "written", "clock"
"""Tables of `aside`: when a key goes (milliseconds), how a JSON string was written, when the reading was."""

# ARGV: how many patterns to take, these, then those to leave out; last the most keys that are read.
_SCOPE = """
local function scan(pattern, into)
  local at = '0'
  repeat
    local page = redis.call('SCAN', at, 'MATCH', pattern, 'COUNT', 1000)
    at = page[1]
    for _, key in ipairs(page[2]) do into[key] = true end
  until at == '0'
end
local wanted, left_out, names = {}, {}, {}
for n = 2, #ARGV - 1 do
  if n - 1 <= tonumber(ARGV[1]) then scan(ARGV[n], wanted) else scan(ARGV[n], left_out) end
end
for key in pairs(wanted) do if not left_out[key] then names[#names + 1] = key end end
"""
_READ = (
    _SCOPE
    + """
if #names > tonumber(ARGV[#ARGV]) then return redis.error_reply('TOOMANY ' .. #names) end
local read = {
  string = function(k) return redis.call('GET', k) end,
  hash = function(k) return redis.call('HGETALL', k) end,
  list = function(k) return redis.call('LRANGE', k, 0, -1) end,
  set = function(k) return redis.call('SMEMBERS', k) end,
  zset = function(k) return redis.call('ZRANGE', k, 0, -1, 'WITHSCORES') end,
  stream = function(k)
    local groups = redis.call('XINFO', 'GROUPS', k)
    local pending = {}
    for n, group in ipairs(groups) do
      local name
      for i = 1, #group, 2 do if group[i] == 'name' then name = group[i + 1] end end
      pending[n] = redis.call('XPENDING', k, name, '-', '+', 1000000)
    end
    return {redis.call('XRANGE', k, '-', '+'), redis.call('XINFO', 'STREAM', k), groups, pending}
  end,
}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = {}
for n, key in ipairs(names) do
  local kind = redis.call('TYPE', key)['ok']
  local ttl = redis.call('PTTL', key)
  local at = -1
  if ttl >= 0 then
    at = redis.pcall('PEXPIRETIME', key)
    if type(at) ~= 'number' then at = now + ttl end
  end
  if kind ~= 'none' then found[#found + 1] = {key, kind, at, read[kind] and read[kind](key) or false} end
end
return {now, found}
"""
)
_EMPTY = (
    _SCOPE
    + """
for n = 1, #names, 1000 do redis.call('UNLINK', unpack(names, n, math.min(n + 999, #names))) end
return #names
"""
)


class RedisStore:
    """`match` and `exclude` are Redis's own patterns."""

    atomic = True
    can_restore = True

    def __init__(self, client: Redis, match: tuple[str, ...], exclude: tuple[str, ...], scope: Scope) -> None:
        self._client = client
        self._match, self._exclude = match, exclude
        self.scope: Scope = scope
        self._known: tuple[Rows, Rows] | None = None

    def capture(self) -> Reading:
        with _named(StateUnreadable):
            now, found = self._client.eval(_READ, 0, *self._patterns())
        rows: dict[str, dict[str, Row]] = {}
        aside: dict[str, dict[str, Row]] = {EXPIRES: {}, WRITTEN: {}}
        for key, kind, expires, value in found:
            table, name = rows_of.name_of(key)
            row, written = _row(key, kind.decode(), value)
            rows.setdefault(table, {})[name] = row
            whole = rows_of.spelt_out(key)
            if expires >= 0:
                aside[EXPIRES][whole] = expires
            if written is not None:
                aside[WRITTEN][whole] = written
        aside[CLOCK] = {"ms": now} if aside[EXPIRES] else {}
        return self._reading(rows, aside)

    def _reading(self, rows: Rows, aside: Rows) -> Reading:
        known, self._known = self._known, (rows, aside)
        if known is None or (changes := changes_between(known[0], rows)) is None:
            return Reading(rows=rows, aside=aside)
        return Reading(rows=Changes(rows=changes), aside=Changes(rows=changes_between(known[1], aside) or ()))

    def restore(self, rows: Rows) -> None:
        self.restore_whole(rows, {})

    def restore_whole(self, rows: Rows, aside: Rows) -> None:
        read_at = aside.get(CLOCK, {}).get("ms")
        with _named(RestoreFailed), self._client.pipeline(transaction=True) as live:
            live.eval(_EMPTY, 0, *self._patterns())
            for table, content in rows.items():
                for name, row in content.items():
                    key = rows_of.key_of(table, name)
                    whole = rows_of.spelt_out(key)
                    _write(live, key, row, aside.get(WRITTEN, {}).get(whole))
                    expires = aside.get(EXPIRES, {}).get(whole)
                    if expires is not None and read_at is not None:
                        live.pexpire(key, max(1, int(expires) - int(read_at)))
            live.execute()

    def _patterns(self) -> list[Any]:
        return [len(self._match), *self._match, *self._exclude, LARGEST]

    def close(self) -> None:
        self._known = None
        self._client.close()


def _row(key: bytes, kind: str, value: Any) -> tuple[Row, Row | None]:
    if kind == "string":
        return rows_of.of_string(value)
    if kind == "hash":
        return rows_of.of_hash(value), None
    if kind == "zset":
        return rows_of.of_zset(value), None
    if kind == "list":
        return {rows_of.MARK: kind, "value": [rows_of.text(item) for item in value]}, None
    if kind == "set":
        return {rows_of.MARK: kind, "value": [rows_of.text(item) for item in sorted(value)]}, None
    if kind == "stream":
        return _stream(*value), None
    shown = rows_of.spelt_out(key)
    raise StateUnreadable(f"key {shown} is of type {kind}, which cannot be read", hint="leave it out: exclude=GLOB")


def _stream(entries: Any, about: Any, groups: Any, pending: Any) -> Row:
    """Entries, the ids that the next one depends on, and the groups with what they have not acknowledged."""
    info = _pairs(about)
    known = {
        name: rows_of.text(info[name]) if isinstance(info[name], bytes) else info[name]
        for name in ("last-generated-id", "max-deleted-entry-id", "entries-added")
        if name in info
    }
    told = {}
    for group, waiting in zip(map(_pairs, groups), pending, strict=True):
        told[rows_of.text(group["name"])] = {
            "last": rows_of.text(group["last-delivered-id"]), "read": group.get("entries-read"),
            # (id, consumer, how often delivered); how long it has been idle is no state.
            "pending": [[rows_of.text(one[0]), rows_of.text(one[1]), one[3]] for one in waiting],
        }  # fmt: skip
    shown = [[rows_of.text(at), list(map(rows_of.text, fields))] for at, fields in entries]
    return {rows_of.MARK: "stream", "value": shown, "about": known, "groups": told}


def _pairs(flat: Any) -> dict[str, Any]:
    return {bytes(name).decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _write(live: Pipeline, key: bytes, row: Any, written: Any) -> None:
    kind, raw = rows_of.type_of(row), rows_of.raw
    if kind == "string":
        live.set(key, rows_of.string_of(row, written))
    elif kind == "hash":
        fields = row["value"] if rows_of.MARK in row else row
        _many(live, "HSET", key, [raw(part) for pair in fields.items() for part in pair])
    elif kind == "list":
        _many(live, "RPUSH", key, [raw(item) for item in row["value"]])
    elif kind == "set":
        _many(live, "SADD", key, [raw(item) for item in row["value"]])
    elif kind == "zset":
        pairs = [(rows_of.score_text(score), raw(member)) for member, score in row["value"].items()]
        _many(live, "ZADD", key, [part for pair in pairs for part in pair])
    elif kind == "stream":
        _write_stream(live, key, row)
    else:
        raise RestoreFailed(f"{key!r}: this is no row of a Redis state")


def _many(live: Any, word: str, key: bytes, parts: list[Any]) -> None:
    for at in range(0, len(parts), 1000):  # an even number: pairs stay together
        live.execute_command(word, key, *parts[at : at + 1000])


def _write_stream(live: Any, key: bytes, row: Any) -> None:
    raw = rows_of.raw
    about = {name: raw(value) if isinstance(value, str) else value for name, value in row["about"].items()}
    for at, fields in row["value"]:
        live.execute_command("XADD", key, raw(at), *map(raw, fields))
    if not row["value"]:  # there is no stream without an entry but one that had some
        live.execute_command("XADD", key, "MAXLEN", 0, "0-1", "x", "x")
    more: list[Any] = []
    if "entries-added" in about:
        more = ["ENTRIESADDED", about["entries-added"], "MAXDELETEDID", about["max-deleted-entry-id"]]
    live.execute_command("XSETID", key, about["last-generated-id"], *more)
    for name, group in row["groups"].items():
        read = ["ENTRIESREAD", group["read"]] if group["read"] is not None else []
        live.execute_command("XGROUP", "CREATE", key, raw(name), raw(group["last"]), *read)
        for at, consumer, times in group["pending"]:
            live.execute_command("XCLAIM", key, raw(name), raw(consumer), 0, raw(at), "RETRYCOUNT", times, "FORCE")


@contextmanager
def _named(failure: type[StateUnreadable] | type[RestoreFailed]) -> Iterator[None]:
    """Redis's own words, in one line that holds no password."""
    import redis

    try:
        yield
    except redis.exceptions.RedisError as error:
        told = " ".join(str(error).split())
        if "TOOMANY" in told:
            raise failure(
                f"there are more than {LARGEST:,} keys", hint="name those that are state: match=GLOB"
            ) from None
        raise failure(f"Redis: {told}") from None


def provider(spec: Spec) -> RedisStore:
    try:
        import redis
    except ImportError as error:
        raise WrongUsage("the Redis client is not installed", hint="pip install 'replayproxy[redis]'") from error
    target = f"redis:{spec.target}" if spec.target.startswith("//") else spec.target
    try:
        client = redis.Redis.from_url(
            spec.filled(target, lambda value: quote(value, safe="")),
            socket_timeout=TIMEOUT, socket_connect_timeout=10.0, client_name="replayproxy-snapshot", protocol=2,
        )  # fmt: skip
    except (ValueError, TypeError):
        # The text of the error may hold the URL, and with it a password.
        raise WrongUsage("that is no Redis URL", hint="redis://HOST:PORT/DB, rediss://.. or unix:///PATH") from None
    client.connection_pool.connection_kwargs["decode_responses"] = False  # a URL may ask for it
    match = tuple(spec.filled(one, _literal) for one in spec.options.get("match", ())) or ("*",)
    exclude = tuple(spec.filled(one, _literal) for one in spec.options.get("exclude", ()))
    return RedisStore(client, match, exclude, spec.scope)


def _literal(value: str) -> str:
    """A value in a pattern stands for itself."""
    return "".join(f"\\{c}" if c in "*?[]^-\\" else c for c in value)
