from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from replayproxy.core.values import Chunk, Exchange, Request, changed
from tests.storage import strategies


@given(strategies.exchanges, strategies.requests)
def test_changed_gives_what_replace_gives(given_one: Exchange, request: Request) -> None:
    members = {"request": request, "notes": ("x",), "held_ns": 7}
    assert changed(given_one, **members) == replace(given_one, **members)  # type: ignore[arg-type]
    assert changed(given_one) == given_one
    assert changed(given_one) is not given_one


def test_changed_refuses_what_the_value_does_not_have() -> None:
    with pytest.raises(TypeError, match="Chunk has no seize"):
        changed(Chunk(size=1, at=2), seize=3)
