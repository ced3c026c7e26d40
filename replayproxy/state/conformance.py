"""One suite for every provider: what the contract promises, tried on a real one.

`conform` never leaves the system in another state than it found: with `write=True` it restores what it read, once
less one row, and puts everything back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from replayproxy.core import prolly
from replayproxy.core.values import Rows
from replayproxy.state.growing import GrowingState, Grown
from replayproxy.state.provider import Changes, KeepsAside, Provider, Reading, reason_of

type Outcome = Literal["ok", "failed", "not checked"]
type Make = Callable[[], Provider]

SCOPES = ("instance", "episode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One promise of the contract and what came of it; `detail` says why, or gives figures."""

    name: str
    outcome: Outcome
    detail: str = ""


def failures(checks: list[Check]) -> list[Check]:
    """Those that failed; empty means that the provider meets the contract as far as it was checked."""
    return [check for check in checks if check.outcome == "failed"]


def conform(
    make: Make, *, write: bool = False, change: Callable[[], None] | None = None, broken: Make | None = None
) -> list[Check]:
    """Runs the suite. `make` gives a fresh provider of the same state at each call, and nobody else may write it.

    `write` allows restores. `change` alters at least one row of the system in some other way than by the provider.
    `broken` gives a provider whose system is not there: it must say so and never give a state.
    """
    suite = _Suite(make)
    suite.reads()
    if suite.first is None:
        return suite.checks
    if change is not None:
        suite.sees(change)
    else:
        suite.skip("a change made by others is seen", "no change was given to the suite")
    suite.restores(write)
    suite.closes()
    if broken is not None:
        suite.refuses(broken)
    return suite.checks


class _Nodes(dict[bytes, bytes]):
    """All nodes of all states that were read, so that they can be compared."""


@dataclass(frozen=True, slots=True)
class _State:
    grown: Grown
    rows: Rows
    aside: Rows


class _Suite:
    def __init__(self, make: Make) -> None:
        self._make = make
        self._nodes = _Nodes()
        self.checks: list[Check] = []
        self.first: _State | None = None
        self._provider: Provider | None = None
        self._growing = GrowingState()

    @contextmanager
    def _check(self, name: str) -> Iterator[list[str]]:
        """Collects complaints; what is raised is one."""
        wrong: list[str] = []
        began = time.perf_counter()
        try:
            yield wrong
        except Exception as error:
            wrong.append(reason_of(error))
        took = f"{(time.perf_counter() - began) * 1000:.1f} ms"
        self.checks.append(Check(name=name, outcome="failed" if wrong else "ok", detail="; ".join(wrong) or took))

    def skip(self, name: str, why: str) -> None:
        self.checks.append(Check(name=name, outcome="not checked", detail=why))

    def reads(self) -> None:
        with self._check("a state can be read") as wrong:
            self._provider = provider = self._make()
            wrong += _misdescribed(provider)
            reading = provider.capture()
            wrong += _malformed(reading)
            if not wrong:
                self.first = self._kept(self._growing.take(reading))
        if self.first is None:
            return
        with self._check("two readings in a row are equal") as wrong:
            wrong += self._differs(self.first, self._read_again())
        with self._check("a fresh provider reads the same") as wrong:
            wrong += self._differs(self.first, self._read_fresh())

    def sees(self, change: Callable[[], None]) -> None:
        assert self.first is not None
        with self._check("a change made by others is seen") as wrong:
            change()
            seen = self._read_again()
            if seen.grown.root == self.first.grown.root:
                wrong.append("the state was changed and reads the same")
            wrong += self._differs(self._read_fresh(), seen)

    def restores(self, write: bool) -> None:
        """Writes back what is there, then a state with one row less, then what was read first."""
        names = (
            "a restored state reads the same",
            "a row that the state does not have goes",
            "an older state comes back",
        )
        assert self._provider is not None
        assert self.first is not None
        if not self._provider.can_restore or not write:
            why = "it says that it cannot restore" if write else "restoring was not allowed"
            for name in names:
                self.skip(name, why)
            return
        try:
            self._try_restores(names)
        except BaseException:  # an interrupt, most likely: the state is put back all the same
            self._restore(self.first.rows, self.first.aside)
            raise

    def _try_restores(self, names: tuple[str, str, str]) -> None:
        assert self.first is not None
        with self._check(names[0]) as wrong:
            now = self._read_fresh()
            self._restore(now.rows, now.aside)
            wrong += self._differs(now, self._read_again())
        less = _one_row_less(self.first.rows)
        if less is None:
            self.skip(names[1], "the state has no rows that stand alone")
        else:
            with self._check(names[1]) as wrong:
                self._restore(less, self.first.aside)
                if self._read_again().grown.root != prolly.build(less).root:
                    wrong.append("a state with one row less was written and does not read as written")
        with self._check(names[2]) as wrong:
            self._restore(self.first.rows, self.first.aside)
            wrong += self._differs(self.first, self._read_again())
            wrong += self._differs(self.first, self._read_fresh())

    def closes(self) -> None:
        with self._check("it can be closed"):
            assert self._provider is not None
            self._provider.close()

    def refuses(self, broken: Make) -> None:
        with self._check("a system that is not there gives no state") as wrong:
            try:
                provider = broken()
                reading = provider.capture()
            except Exception as error:
                if not reason_of(error).strip():
                    wrong.append("the error says nothing")
                return
            wrong.append(f"it gave a state: {str(reading)[:80]}")

    def _restore(self, rows: Rows, aside: Rows) -> None:
        provider = self._make()
        try:
            if isinstance(provider, KeepsAside):
                provider.restore_whole(rows, aside)
            else:
                provider.restore(rows)
        finally:
            provider.close()

    def _read_again(self) -> _State:
        assert self._provider is not None
        return self._kept(self._growing.take(self._provider.capture()))

    def _read_fresh(self) -> _State:
        provider = self._make()
        try:
            return self._kept(GrowingState().take(provider.capture()))
        finally:
            provider.close()

    def _kept(self, grown: Grown) -> _State:
        self._nodes.update(grown.nodes)
        load = self._nodes.__getitem__
        aside = {} if grown.aside is None else prolly.exact(grown.aside, load)
        return _State(grown, prolly.exact(grown.root, load), aside)

    def _differs(self, wanted: _State, found: _State) -> list[str]:
        if wanted.grown.root == found.grown.root:
            return []
        changes = list(prolly.diff(wanted.grown.root, found.grown.root, self._nodes.__getitem__))
        first = changes[0]
        many = "1 row differs" if len(changes) == 1 else f"{len(changes)} rows differ, first"
        return [f"{many} {first.table}/{first.key}: {first.before!r} | {first.after!r}"]


def _misdescribed(provider: Provider) -> Iterator[str]:
    for name in ("atomic", "can_restore"):
        if not isinstance(getattr(provider, name, None), bool):
            yield f"{name} is to be True or False"
    if getattr(provider, "scope", None) not in SCOPES:
        yield "scope is to be 'instance' or 'episode'"


def _malformed(reading: object) -> Iterator[str]:
    if not isinstance(reading, Reading):
        yield f"capture() gave {type(reading).__name__} and no Reading"
        return
    for part in (reading.rows, reading.aside):
        if isinstance(part, Changes):
            yield "the first reading gave changes and no whole state"
            return
        for table, rows in part.items():
            if not isinstance(table, str) or not all(isinstance(key, str) for key in rows):
                yield f"table {table!r}: tables and keys are to be text"
                return


def _one_row_less(rows: Rows) -> Rows | None:
    """The state without the last row of its largest table; None when there is no row to leave out."""
    tables = [table for table, content in rows.items() if "" not in content]
    largest = max(tables, key=lambda table: len(rows[table]), default=None)
    if largest is None or not rows[largest]:
        return None
    kept = list(rows[largest].items())[:-1]
    return {**rows, largest: dict(kept)}
