"""Which row of the state an exchange is about, and which rows its documents show.

By structure only: a path segment names a table and the next one a key (`/api/deals/42`), a path that ends in a table
is its collection, and the members of the row's object are columns. Whether a member really is the column is for the
caller to learn from values that agree. Without a state the path itself stands for the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, View, split_query, split_target
from replayproxy.core.opaque import singular

IDS = ("id", "_id", "uuid", "guid")
KEYS = ("id", "_id", "uuid", "guid", "key", "uid", "slug", "name")
MAX_ITEMS = 5000
"""Rows taken from one document; the rest is not looked at."""

_PAST = re.compile(
    rb"(?:^|[_-])(?:v|ver|version|rev|revision|as_?of|at|before|until|snapshot|history|time|timestamp|date|ref)$"
)


class Row(NamedTuple):
    """A row's name: its table as the state calls it, and its key."""

    table: str
    key: str

    @property
    def of_path(self) -> bool:
        """Whether it is named by a path alone, because no snapshot shows it."""
        return self.table.startswith("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a path is about. `key` None: the whole table. `rest`: segments below the row. `only`: the key of the
    table's one row, which the path of the table may stand for."""

    table: str
    key: str | None
    rest: tuple[str, ...] = ()
    only: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A row as a document shows it: each column with its value and its pointer in the document."""

    row: Row
    members: Mapping[str, Any]
    at: str  # pointer of the row's object
    listed: bool  # one of several in a list

    def pointer(self, column: str) -> str:
        return self.at + _below(column)


@lru_cache(maxsize=4096)
def _below(column: str) -> str:
    return jsonvalue.pointer(column)


class Tables:
    """The tables of one state, by the names that paths use. `single`: table -> the key of its only row; `called`:
    what paths call a table beside its own name."""

    def __init__(self, names: Iterable[str], single: Mapping[str, str], called: Mapping[str, str] = {}) -> None:
        self.single = dict(single)
        self._by_name: dict[str, str] = {_spoken(word): name for word, name in called.items()}
        for name in sorted(names, key=len, reverse=True):
            self._by_name[_spoken(re.split(r"[.:]", name.rstrip(":"))[-1])] = name  # a schema's, or a key's prefix
            self._by_name[_spoken(name)] = name

    def find(self, segment: str) -> str | None:
        return self._by_name.get(_spoken(segment))

    def place(self, target: bytes) -> Place | None:
        """What the path is about; the last segment that names a table decides."""
        parts = segments(target)
        for index in range(len(parts) - 1, -1, -1):
            table = self.find(parts[index])
            if table is None:
                continue
            rest = parts[index + 1 :]
            if not rest:
                return Place(table=table, key=None, only=self.single.get(table))
            return Place(table=table, key=rest[0], rest=rest[1:])
        return None

    def named(self, target: bytes) -> tuple[Row, ...]:
        """Every row that the path names on its way: of `/slots/8/holds` the slot, also where `holds` is a table too."""
        parts = segments(target)
        found = ((self.find(table), key) for table, key in pairwise(parts))
        return tuple(Row(table, key) for table, key in found if table is not None and self.find(key) is None)


class Paths(Tables):
    """For an environment whose state is not known: each path is a table of one row."""

    def __init__(self) -> None:
        super().__init__((), {})

    def find(self, segment: str) -> str | None:
        return None

    def place(self, target: bytes) -> Place | None:
        parts = segments(target)
        return Place(table="/" + "/".join(parts), key="") if parts else None


PATHS = Paths()


@lru_cache(maxsize=4096)
def _spoken(name: str) -> str:
    return singular(name)


@lru_cache(maxsize=16384)
def segments(target: bytes) -> tuple[str, ...]:
    """The decoded segments of the path; an empty one at the end is left out."""
    path, _ = split_target(target)
    return tuple(unquote_to_bytes(part).decode("utf-8", "replace") for part in path.strip(b"/").split(b"/") if part)


_VIEW = re.compile(
    r"view|draft|preview|publish|mode|currency|unit|lang|locale|format|scope|variant|(?:^|_)(?:as|tz)$", re.I
)


def query_names(target: bytes) -> tuple[str, ...]:
    """The names that a query asks for; with its word where that chooses among several views of one thing."""
    _, query = split_target(target)
    if not query:
        return ()
    told = set()
    for name, value in split_query(query):
        text = name.decode("utf-8", "replace")
        chosen = value is not None and value.isalpha() and _VIEW.search(text)
        told.add(f"{text}={(value or b'').decode('utf-8', 'replace')}" if chosen else text)
    return tuple(sorted(told))


def asks_for_the_past(target: bytes) -> bool:
    """Whether the query names a version or a time: such a read may rightly return what has been overwritten."""
    _, query = split_target(target)
    return bool(query) and any(_PAST.search(name.lower()) for name, _ in split_query(query or b""))


def shown(seen: View, place: Place | None, tables: Tables) -> list[Shown]:
    """The rows that a JSON document shows, seen from the path it was asked for or sent to."""
    if seen.kind is not Kind.JSON or place is None or place.rest:
        return []
    if isinstance(tables, Paths):
        return list(_by_path(seen.value, place))[:MAX_ITEMS]
    if place.key is not None:
        found = _object(seen.value, place.key)
        row = Row(place.table, place.key)
        return [] if found is None else [Shown(row=row, members=found[1], at=found[0], listed=False)]
    listed = list(_collection(seen.value, place.table))[:MAX_ITEMS]
    return listed or list(_only_row(seen.value, place))


def lists_nothing(seen: View) -> bool:
    """Whether the document is an empty list, or an envelope with that one list."""
    document = seen.value if seen.kind is Kind.JSON else None
    if isinstance(document, dict):
        return [item for item in document.values() if isinstance(item, list)] == [[]]
    return document == []


def _only_row(document: Any, place: Place) -> Iterator[Shown]:
    """`/settings` shows the one row of the table: an object that does not call itself by another id."""
    if isinstance(document, dict) and place.only is not None:
        at, members = _unwrapped(document)
        named = [str(members[name]) for name in IDS if isinstance(members.get(name), str | int)]
        if all(name == place.only for name in named):
            yield Shown(row=Row(place.table, place.only), members=members, at=at, listed=False)


def _by_path(document: Any, place: Place) -> Iterator[Shown]:
    """Without a state: the object is the path's row; an item of a list, or a created one, is the row of PATH/id."""
    if isinstance(document, dict) and not _items(document):
        at, members = _unwrapped(document)
        yield Shown(row=Row(place.table, ""), members=members, at=at, listed=False)
    for at, item, name in _listed(document):
        key = name if name is not None else key_of(item, "")
        if key is not None:
            yield Shown(row=Row(f"{place.table}/{key}", ""), members=item, at=at, listed=True)


def created(seen: View, place: Place | None, tables: Tables) -> Shown | None:
    """The row that a POST to a collection made, from its answer."""
    if seen.kind is not Kind.JSON or place is None or place.rest or not isinstance(seen.value, dict):
        return None
    at, members = _unwrapped(seen.value)
    if isinstance(tables, Paths):
        key = key_of(members, "")
        return None if key is None else Shown(row=Row(f"{place.table}/{key}", ""), members=members, at=at, listed=False)
    if place.key is not None:
        return None
    key = key_of(members, place.table)
    return None if key is None else Shown(row=Row(place.table, key), members=members, at=at, listed=False)


def members_of(seen: View, place: Place | None) -> Mapping[str, Any]:
    """The members of the one object that an answer is about; none for any other document."""
    if seen.kind is not Kind.JSON or not isinstance(seen.value, dict):
        return {}
    if place is not None and place.key:
        found = _object(seen.value, place.key)
        return found[1] if found is not None else {}
    return _unwrapped(seen.value)[1]


def key_of(item: Mapping[str, Any], table: str) -> str | None:
    """The key that an object gives itself."""
    own = _spoken(table.rpartition(".")[2]) if table else ""
    for name in (*KEYS[:2], f"{own}_id", f"{own}Id", *KEYS[2:]):
        value = item.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    return None


def _object(document: Any, key: str) -> tuple[str, Mapping[str, Any]] | None:
    """The object of one row: the document, or the one object in it that holds the key or stands alone."""
    if not isinstance(document, dict):
        return None
    candidates = [("", document)]
    candidates += [(jsonvalue.pointer(name), item)
                   for name, item in document.items() if isinstance(item, dict)]  # fmt: skip
    for at, candidate in candidates:
        if any(str(candidate[name]) == key for name in KEYS if isinstance(candidate.get(name), str | int)):
            return at, candidate
    return _unwrapped(document)


def _unwrapped(document: dict[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """`{"data": {..}}` and `{"deal": {..}, "ok": true}` are envelopes, if one member alone is an object."""
    inner = [(name, item) for name, item in document.items() if isinstance(item, dict)]
    if len(inner) == 1 and not any(name in document for name in KEYS) and len(document) <= 3:
        return jsonvalue.pointer(inner[0][0]), inner[0][1]
    return "", document


def _collection(document: Any, table: str) -> Iterator[Shown]:
    for at, item, name in _listed(document):
        key = name if name is not None else key_of(item, table)
        if key is not None:
            yield Shown(row=Row(table, key), members=item, at=at, listed=True)


def _listed(document: Any) -> Iterator[tuple[str, Mapping[str, Any], str | None]]:
    """The items of a list, of the one list in an envelope, or of an object that maps keys to objects."""
    if isinstance(document, list):
        yield from (("/" + str(index), item, None) for index, item in enumerate(document) if isinstance(item, dict))
        return
    if not isinstance(document, dict):
        return
    name = _items(document)
    if name:
        lead = jsonvalue.pointer(name)
        yield from ((f"{lead}{at}", item, key) for at, item, key in _listed(document[name]))
    elif document and all(isinstance(item, dict) for item in document.values()):
        for key, item in document.items():
            yield jsonvalue.pointer(key), item, key


def _items(document: Mapping[str, Any]) -> str | None:
    """The member that holds the list of an envelope; None when there is none or several."""
    lists = [name for name, item in document.items() if isinstance(item, list)]
    filled = [name for name in lists if any(isinstance(item, dict) for item in document[name])]
    return filled[0] if len(filled) == 1 else None
