from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from replayproxy.core.shapes import wrong_member
from replayproxy.core.values import Chunk
from replayproxy.testing import body, episode, exchange, run, snapshot
from tests.storage import strategies


@given(strategies.exchanges | strategies.runs | strategies.episodes | strategies.snapshots | strategies.events)
def test_every_value_holds_what_its_class_says(value: Any) -> None:
    assert wrong_member(value) is None


@pytest.mark.parametrize(
    ("value", "member"),
    [
        (replace(run(), name=5), "name"),  # type: ignore[arg-type]
        (replace(run(), envs={"app": "http://x"}), "envs"),  # type: ignore[dict-item]
        (replace(episode(), state="open"), "state"),  # type: ignore[arg-type]
        (replace(episode(), faults=["x"]), "faults"),  # type: ignore[arg-type]
        (replace(snapshot(0, None), in_flight=((1,),)), "in_flight"),  # type: ignore[arg-type]
        (replace(exchange(), order=(1, "0")), "order"),  # type: ignore[arg-type]
        (replace(exchange(), request=replace(exchange().request, target="/x")), "request.target"),  # type: ignore[arg-type]
        (replace(exchange(), times=replace(exchange().times, wall=None)), "times.wall"),  # type: ignore[arg-type]
    ],
)
def test_a_member_of_another_type_is_named(value: Any, member: str) -> None:
    assert wrong_member(value) == member


def test_what_lies_deep_is_named_by_the_way_to_it() -> None:
    held = body(b"x")
    assert held is not None
    sent = replace(held, chunks=(Chunk(size="1", at=0),))  # type: ignore[arg-type]
    wrong = replace(exchange(), request=replace(exchange().request, body=sent))
    assert wrong_member(wrong) == "request.body.chunks"
