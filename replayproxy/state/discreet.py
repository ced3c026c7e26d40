"""A provider whose readings hold tokens in the place of secrets, and whose restores write the live values back.

A column or member named like a credential is a token in what is kept. What a restore has to write for it is taken out
of the state that is there: a credential that changed since, or is gone, makes the restore fail with its place, for a
token written into a live environment would lock its users out. Of what is kept aside, a copy of the rows (the document
that `http` and `command` read) is left out as soon as a row has held a secret; contents of files stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.redact import TOKEN, Redactor
from replayproxy.core.values import Row, RowChange, Rows
from replayproxy.state.loader import Loaded
from replayproxy.state.provider import Changes, Context, KeepsAside, Provider, Reading, RestoreFailed, Scope


def discreet(loaded: Loaded, redactor: Redactor) -> Loaded:
    """The same snapshot, by a provider that keeps secrets to itself."""
    if redactor.keeps:
        return loaded

    def make(context: Context) -> Provider:
        inner = loaded.make(context)
        return DiscreetAside(inner, redactor) if isinstance(inner, KeepsAside) else Discreet(inner, redactor)

    return replace(loaded, make=make)


class Discreet:
    """See the module."""

    def __init__(self, inner: Provider, redactor: Redactor) -> None:
        self._inner, self._redactor = inner, redactor

    @property
    def atomic(self) -> bool:
        return self._inner.atomic

    @property
    def can_restore(self) -> bool:
        return self._inner.can_restore

    @property
    def scope(self) -> Scope:
        return self._inner.scope

    def capture(self) -> Reading:
        reading = self._inner.capture()
        return replace(reading, rows=self._clean(reading.rows))

    def restore(self, rows: Rows) -> None:
        self._inner.restore(self._live(rows))

    def close(self) -> None:
        self._inner.close()

    def _clean(self, rows: Rows | Changes) -> Rows | Changes:
        value = self._redactor.value
        if isinstance(rows, Changes):
            changed = [
                RowChange(
                    table=one.table, key=one.key,
                    before=None if one.before is None else value(one.before),
                    after=None if one.after is None else value(one.after),
                )
                for one in rows.rows
            ]  # fmt: skip
            return Changes(rows=changed)
        return {table: {key: value(row) for key, row in held.items()} for table, held in rows.items()}

    def _live(self, rows: Rows) -> Rows:
        """The rows with what their tokens stand for."""
        if not any(_has_token(row) for held in rows.values() for row in held.values()):
            return rows
        found = self._inner.capture().rows
        assert not isinstance(found, Changes)  # a provider's first reading is a whole one
        stands_for: dict[str, str] = {}
        for table in found.values():
            for row in table.values():
                _pairs(self._redactor.value(row), row, stands_for)
        return {
            table: {key: _filled(row, stands_for, f"{table}/{key}") for key, row in held.items()}
            for table, held in rows.items()
        }


class DiscreetAside(Discreet):
    """Of a provider that keeps something aside."""

    def __init__(self, inner: Provider, redactor: Redactor) -> None:
        super().__init__(inner, redactor)
        self._held_a_secret = False

    def capture(self) -> Reading:
        reading = self._inner.capture()
        rows = self._clean(reading.rows)
        if not getattr(self._inner, "aside_is_the_rows", False):
            return replace(reading, rows=rows)
        # Later readings tell changes only, so a secret in a row that stays would not be seen again.
        self._held_a_secret |= rows != reading.rows
        return replace(reading, rows=rows, aside={} if self._held_a_secret else reading.aside)

    def restore_whole(self, rows: Rows, aside: Rows) -> None:
        assert isinstance(self._inner, KeepsAside)
        self._inner.restore_whole(self._live(rows), aside)


def _has_token(row: Row) -> bool:
    if isinstance(row, str):
        return TOKEN.search(row.encode("utf-8", "surrogatepass")) is not None
    if isinstance(row, Mapping):
        return any(map(_has_token, row.values()))
    return isinstance(row, list | tuple) and any(map(_has_token, row))


def _pairs(clean: Row, raw: Row, into: dict[str, str]) -> None:
    """Every text that redaction changed, with what it was."""
    if isinstance(raw, str):
        if clean != raw:
            into[clean] = raw
    elif isinstance(raw, Mapping):
        for name, item in raw.items():
            _pairs(clean[name], item, into)
    elif isinstance(raw, list | tuple):
        for one, other in zip(clean, raw, strict=True):
            _pairs(one, other, into)


def _filled(row: Row, stands_for: Mapping[str, str], where: str) -> Row:
    if isinstance(row, str):
        if row in stands_for:
            return stands_for[row]
        if _has_token(row):
            raise RestoreFailed(
                f"{where} holds a secret that was not recorded and is not in the live state",
                hint="give --reset, or record with --keep-secrets",
            )
        return row
    if isinstance(row, Mapping):
        filled: dict[str, Any] = {}
        for name, item in row.items():
            filled[name] = _filled(item, stands_for, f"{where}{jsonvalue.pointer(name)}")
        return filled
    return [_filled(item, stands_for, where) for item in row] if isinstance(row, list | tuple) else row
