from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.core.annotation import annotated, fitting, said, settable, value_of
from replayproxy.testing import episode

VALUES = st.fixed_dictionaries(
    {},
    optional={
        "reward": st.sampled_from([0.0, 0.5, 1.0]), "outcome": st.sampled_from(["won", "lost"]),
        "task": st.sampled_from(["a", "b"]), "seed": st.integers(1, 3), "meta.step": st.integers(1, 3) | st.none(),
    },
)  # fmt: skip
RECORDED = episode("e", task="a", seed=1, reward=0.5, meta={"step": 1, "kept": [1]})


def test_the_later_value_is_shown_and_the_recorded_one_kept() -> None:
    made = annotated(RECORDED, {"reward": 1.0, "meta.step": 2, "meta.new": "x"}, source="f.jsonl", wall=7)
    assert (made.reward, made.meta) == (1.0, {"step": 2, "kept": [1], "new": "x"})
    assert made.annotated == {"said": {"reward": 0.5, "meta.step": 1, "meta.new": None}, "source": "f.jsonl", "wall": 7}
    assert [said(made, name) for name in ("reward", "task", "meta.step", "meta.new")] == [0.5, "a", 1, None]


@settings(deadline=None)
@given(st.lists(VALUES, max_size=5))
def test_whatever_is_said_how_often_what_was_recorded_is_known(given: list[dict[str, Any]]) -> None:
    made, expected = RECORDED, {}
    for n, values in enumerate(given):
        made = annotated(made, values, source="f", wall=n)
        expected |= values
    for name, value in expected.items():
        assert value_of(made, name) == value
        assert said(made, name) == value_of(RECORDED, name)
    assert set(made.annotated.get("said", {})) == {n for n, v in expected.items() if v != value_of(RECORDED, n)}


@settings(deadline=None)
@given(VALUES)
def test_saying_it_again_changes_nothing_and_saying_what_was_recorded_takes_it_back(values: dict[str, Any]) -> None:
    once = annotated(RECORDED, values, source="f", wall=1)
    assert annotated(once, values, source="g", wall=2) is once
    recorded = {name: value_of(RECORDED, name) for name in values}
    assert annotated(once, recorded, source="g", wall=2) == RECORDED


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("reward", 1, 1.0), ("reward", -0.5, -0.5), ("seed", 7, 7), ("seed", "7", 7), ("seed", 7.0, 7),
        ("attempt", "-1", -1), ("task", "x", "x"), ("task", 3, "3"), ("outcome", "done", "done"), ("meta.x", [1], [1]),
    ],
)  # fmt: skip
def test_values_fit_their_members(name: str, value: object, expected: object) -> None:
    found = fitting(name, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reward", "1"), ("reward", True), ("reward", float("nan")), ("reward", float("inf")), ("reward", [1]),
        ("seed", 1.5), ("seed", "x"), ("seed", True), ("seed", "9" * 30), ("seed", float("inf")), ("task", 1.5),
        ("task", {}), ("group", True),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} is "):
        fitting(name, value)


def test_what_may_be_set() -> None:
    assert all(map(settable, ("reward", "outcome", "task", "seed", "attempt", "group", "meta.x", "meta.a.b")))
    assert not any(map(settable, ("state", "episode", "meta", "meta.", "metax", "", "opened")))


DEEP: list[object] = []
for _ in range(100):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reward", 10**400), ("reward", float("inf")), ("reward", True), ("seed", float("inf")), ("task", b"x"),
        ("meta.x", b"x"), ("meta.x", timedelta(1)), ("meta.x", datetime(2026, 1, 1, tzinfo=UTC)), ("meta.x", DEEP),
        ("meta.x", [float("nan")]), ("meta.x", {1: 2}), ("meta.x", 10**400),
    ],
)  # fmt: skip
def test_what_no_member_holds_is_refused_with_the_reason(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} is ") as refused:
        fitting(name, value)
    assert len(str(refused.value)) < 160
