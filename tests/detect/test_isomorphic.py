from __future__ import annotations

import random
from typing import Any

import pytest

from replayproxy.detect import isomorphic
from replayproxy.detect.isomorphic import Content, Id, match


def row(key: str, table: str = "t", **members: Any) -> Content:
    return Content(table=table, key=Id("t", key), tree=members)


def ref(key: str) -> Id:
    return Id("t", key)


def test_a_ring_of_names_is_one_ring_under_other_names() -> None:
    ours = [row("a", next=ref("b"), v=1), row("b", next=ref("c"), v=2), row("c", next=ref("a"), v=3)]
    theirs = [row("y", next=ref("z"), v=3), row("z", next=ref("x"), v=1), row("x", next=ref("y"), v=2)]
    matched = match(ours, theirs)
    assert matched is not None
    assert (matched.left, matched.right, matched.ties) == ((), (), False)
    turned = [row("y", next=ref("x"), v=3), row("x", next=ref("z"), v=2), row("z", next=ref("y"), v=1)]
    other = match(ours, turned)
    assert other is not None
    assert len(other.left) == len(other.right) == 3


def test_a_row_more_is_the_only_one_without_a_counterpart() -> None:
    matched = match([row("a", v=1)], [row("x", v=1), row("y", v=1), row("z", v=2)])
    assert matched is not None
    assert (matched.left, len(matched.right), 2 in matched.right) == ((), 2, True)


def test_rows_in_any_order_and_under_any_names_match() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        names = [f"n{n}" for n in range(rng.randrange(2, 30))]
        links = {name: rng.choices(names, k=rng.randrange(3)) for name in names}
        values = {name: rng.randrange(3) for name in names}
        renamed = dict(zip(names, rng.sample([f"m{n}" for n in range(100)], len(names)), strict=True))
        ours = [row(n, v=values[n], to=[ref(x) for x in links[n]]) for n in names]
        theirs = [row(renamed[n], v=values[n], to=[ref(renamed[x]) for x in reversed(links[n])]) for n in names]
        rng.shuffle(theirs)
        matched = match(ours, theirs)
        assert matched is not None
        assert (matched.left, matched.right) == ((), ()), seed


def test_of_too_many_rows_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isomorphic, "MAX_ROWS", 1)
    assert match([row("a")], [row("b")]) is None
