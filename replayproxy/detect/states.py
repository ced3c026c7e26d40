"""Snapshots as rows: what a state holds, and what changed between two.

A state that is one opaque document is opened up here: its members become tables where they look like tables, so that
a finding can name a row also for an environment that shows its state as one JSON document.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replayproxy.core import jsonvalue, prolly
from replayproxy.core.values import RowChange, Rows, Run, Snapshot, SnapshotStatus
from replayproxy.detect.cells import Row, Tables, key_of

DOCUMENT = "document"
SCALARS = "(values)"
"""The table of an opaque document's own scalar members."""

MAX_CHANGES = 20_000
"""More changed rows than these between two snapshots are not looked at one by one."""


class TooMuchChanged(Exception):
    """Two states differ in more than `MAX_CHANGES` rows."""


class States:
    """Rows and differences by root, from the store's nodes. Keeps the last few: episodes share their start states."""

    def __init__(self, load: Callable[[bytes], bytes], keep: int = 4) -> None:
        self._load = load
        self._keep = keep
        self._rows: OrderedDict[bytes, Rows] = OrderedDict()
        self._tables: dict[tuple[bytes, str], Tables] = {}
        self._changes: OrderedDict[tuple[bytes, bytes], list[RowChange]] = OrderedDict()

    def rows(self, root: bytes) -> Rows:
        found = self._rows.pop(root, None)
        if found is None:
            found = opened(prolly.rows(root, self._load))
        self._rows[root] = found
        while len(self._rows) > self._keep:
            self._rows.popitem(last=False)
        return found

    def row(self, root: bytes, row: Row) -> Any | None:
        return self.rows(root).get(row.table, {}).get(row.key)

    def tables(self, root: bytes, listing: str = "") -> Tables:
        """Its tables. `listing`: how paths call the one table of a document that is a list, or `{"data": [..]}`."""
        if (root, listing) not in self._tables:
            if len(self._tables) > 256:
                self._tables.clear()
            rows = self.rows(root)
            single = {table: next(iter(content)) for table, content in rows.items() if len(content) == 1}
            listed = [table for table, content in rows.items() if table != SCALARS and "" not in content]
            called = {listing: listed[0]} if listing and len(listed) == 1 and len(rows) - len(listed) <= 1 else {}
            self._tables[root, listing] = Tables(rows, single, called)
        return self._tables[root, listing]

    def changes(self, a: bytes, b: bytes) -> list[RowChange]:
        """The rows that differ. Raises TooMuchChanged."""
        if a == b:
            return []
        found = self._changes.pop((a, b), None)
        if found is None:
            found = self._differences(a, b)
        self._changes[a, b] = found
        while len(self._changes) > 256:
            self._changes.popitem(last=False)
        return found

    def _differences(self, a: bytes, b: bytes) -> list[RowChange]:
        found: list[RowChange] = []
        for change in prolly.diff(a, b, self._load):
            found += _opened_change(change)
            if len(found) > MAX_CHANGES:
                raise TooMuchChanged
        return [change for change in found if not _is_mark(change)]


def _is_mark(change: RowChange) -> bool:
    """A table that came or went without rows: no row of it can have been read or written."""
    return change.key == "" and change.table != DOCUMENT and not change.before and not change.after


def _opened_change(change: RowChange) -> Iterator[RowChange]:
    if change.table != DOCUMENT or change.key != "":
        yield change
        return
    before = opened({DOCUMENT: {"": change.before}}) if change.before is not None else {}
    after = opened({DOCUMENT: {"": change.after}}) if change.after is not None else {}
    for table in sorted({*before, *after}):
        ours, theirs = before.get(table, {}), after.get(table, {})
        for key in sorted({*ours, *theirs}):
            left, right = ours.get(key), theirs.get(key)
            if left is None or right is None or not jsonvalue.same(left, right):
                yield RowChange(table=table, key=key, before=left, after=right)


def opened(rows: Rows) -> Rows:
    """An opaque document as tables; other states as they are."""
    if set(rows) != {DOCUMENT} or set(rows[DOCUMENT]) != {""}:
        return rows
    document = rows[DOCUMENT][""]
    if not isinstance(document, dict):
        items = _as_rows(DOCUMENT, document)
        return rows if items is None else {DOCUMENT: items}
    tables: dict[str, dict[str, Any]] = {}
    for name, member in document.items():
        if isinstance(member, dict | list) and not member:
            tables[name] = {}
        elif isinstance(member, dict) and all(isinstance(item, dict) for item in member.values()):
            tables[name] = dict(member)
        elif (items := _as_rows(name, member)) is not None:
            tables[name] = items
        elif isinstance(member, dict):
            tables[name] = {"": member}
        else:
            tables.setdefault(SCALARS, {}).setdefault("", {})[name] = member
    return tables


def _as_rows(name: str, member: Any) -> dict[str, Any] | None:
    if not isinstance(member, list) or not member or not all(isinstance(item, dict) for item in member):
        return None
    keys = [key_of(item, name) for item in member]
    if None in keys or len(set(keys)) != len(keys):
        return None
    return {str(key): item for key, item in zip(keys, member, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The snapshots of one name. `envs`: the environments whose state they show."""

    name: str
    envs: frozenset[str]


def series_of(run: Run, snapshots: Sequence[Snapshot]) -> list[Series]:
    """Every series that these snapshots form, in the order of their names."""
    names = sorted({snapshot.name for snapshot in snapshots})
    return [Series(name=name, envs=envs_of(run, name)) for name in names]


def envs_of(run: Run, name: str) -> frozenset[str]:
    """The environment that a snapshot's name begins with; all of them for any other name."""
    env = name.partition(".")[0]
    return frozenset({env}) if env in run.envs else frozenset(run.envs)


_URL = re.compile(r"https?:https?://[^/?#,]+([^?#,]*)")


def listing_of(run: Run, name: str) -> str:
    """How paths call what an `http:` snapshot lists: the last segment of the path that it is read from."""
    url = _URL.match(run.snapshots.get(name, ""))
    return url[1].rstrip("/").rpartition("/")[2] if url else ""


def records(series: Sequence[Series]) -> list[Series]:
    """The series that stand for the system of record: a name with a dot (`crm.cache`) is a second view of its
    environment, and says nothing beside the one that has the environment's own name."""
    plain_envs = {env for one in series if "." not in one.name for env in one.envs}
    return [one for one in series if "." not in one.name or not one.envs <= plain_envs]


def usable(snapshot: Snapshot) -> bool:
    """Whether each row of the snapshot is a reading of that row within its interval; a torn one is that too."""
    return snapshot.root is not None and snapshot.status is not SnapshotStatus.MISSING


def whole(snapshot: Snapshot) -> bool:
    """Whether the snapshot is one state: nothing was under way while it was read."""
    return usable(snapshot) and snapshot.status is SnapshotStatus.TAKEN


def seconds(snapshots: Sequence[Snapshot]) -> Mapping[str, Snapshot]:
    """The first whole reading of each series after its start snapshot."""
    first = starts(snapshots)
    found: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        if snapshot.name in first and snapshot is not first[snapshot.name] and whole(snapshot):
            found.setdefault(snapshot.name, snapshot)
    return found


def starts(snapshots: Sequence[Snapshot]) -> Mapping[str, Snapshot]:
    """The start snapshot of each series."""
    found: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        if snapshot.when == "start" and snapshot.name not in found:
            found[snapshot.name] = snapshot
    return found
