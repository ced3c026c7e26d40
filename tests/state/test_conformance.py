"""The conformance suite finds each way in which a provider can break the contract."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from replayproxy.state import Changes, Reading, RowChange
from replayproxy.state.conformance import conform, failures

STATE: dict[str, Any] = {"t": {"1": {"n": 1}, "2": {"n": 2}}, "u": {}}


class World:
    """A system that others can write too."""

    def __init__(self) -> None:
        self.rows: Any = {name: dict(rows) for name, rows in STATE.items()}

    def change(self) -> None:
        self.rows["t"]["3"] = {"n": 3}
        del self.rows["t"]["1"]


class Honest:
    atomic, can_restore, scope = True, True, "instance"

    def __init__(self, world: World) -> None:
        self.world = world

    def capture(self) -> Reading:
        return Reading(rows={name: dict(rows) for name, rows in self.world.rows.items()})

    def restore(self, rows: Any) -> None:
        self.world.rows = {name: dict(content) for name, content in rows.items()}

    def close(self) -> None:
        pass


def broken_promises(kind: type[Honest], **more: Any) -> list[str]:
    world = World()
    checks = conform(lambda: kind(world), write=True, change=world.change, **more)
    return [check.name for check in failures(checks)]


def test_an_honest_provider_keeps_all() -> None:
    world = World()
    checks = conform(lambda: Honest(world), write=True, change=world.change)
    assert {check.outcome for check in checks} == {"ok"}
    assert len(checks) == 8
    assert world.rows == STATE


def test_without_leave_nothing_is_written() -> None:
    world = World()
    checks = conform(lambda: Honest(world))
    assert [check.outcome for check in checks].count("not checked") == 4
    assert world.rows == STATE


class Noisy(Honest):
    count = itertools.count()

    def capture(self) -> Reading:
        return Reading(rows={"t": {"now": {"n": next(self.count)}}})


class Cached(Honest):
    kept: Any = None

    def capture(self) -> Reading:
        self.kept = self.kept or super().capture()
        return self.kept


class Forgetful(Honest):
    """Gives changes that leave out the rows which are gone."""

    before: Any = None

    def capture(self) -> Reading:
        before, self.before = self.before, super().capture().rows
        if before is None:
            return Reading(rows=self.before)
        now = [(table, key, row) for table, rows in self.before.items() for key, row in rows.items()]
        return Reading(rows=Changes(rows=[RowChange(table=t, key=k, before=None, after=row) for t, k, row in now]))


class Idle(Honest):
    def restore(self, rows: Any) -> None:
        pass


class Adding(Honest):
    def restore(self, rows: Any) -> None:
        for table, content in rows.items():
            self.world.rows[table].update(content)


class Undecided(Honest):
    scope = "world"


class Bare(Honest):
    def capture(self) -> Any:
        return {"t": {}}


class Numbered(Honest):
    def capture(self) -> Reading:
        rows: Any = {"t": {1: {}}}
        return Reading(rows=rows)


class Failing(Honest):
    def capture(self) -> Reading:
        raise ConnectionError("refused")


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (Noisy, "two readings in a row are equal"),
        (Noisy, "a fresh provider reads the same"),
        (Cached, "a change made by others is seen"),
        (Forgetful, "a change made by others is seen"),
        (Idle, "a row that the state does not have goes"),
        (Idle, "an older state comes back"),
        (Adding, "a row that the state does not have goes"),
        (Undecided, "a state can be read"),
        (Bare, "a state can be read"),
        (Numbered, "a state can be read"),
        (Failing, "a state can be read"),
    ],
)
def test_a_broken_promise_is_named(kind: type[Honest], broken: str) -> None:
    assert broken in broken_promises(kind)


def test_a_system_that_is_not_there_must_not_read_as_an_empty_one() -> None:
    class Silent(Honest):
        def capture(self) -> Reading:
            return Reading(rows={})

    name = "a system that is not there gives no state"
    assert broken_promises(Honest, broken=lambda: Silent(World())) == [name]
    assert broken_promises(Honest, broken=lambda: Failing(World())) == []


def test_the_first_differing_row_is_told() -> None:
    world = World()
    told = failures(conform(lambda: Idle(world), write=True, change=world.change))[-1].detail
    assert "2 rows differ, first t/1: {'n': 1} | None" in told


def test_an_interrupted_suite_puts_the_state_back() -> None:
    world = World()

    class Interrupted(Honest):
        def restore(self, rows: Any) -> None:
            super().restore(rows)
            if len(rows["t"]) == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conform(lambda: Interrupted(world), write=True)
    assert world.rows == STATE
