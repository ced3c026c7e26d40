"""What a provider raises becomes one line for a user."""

from __future__ import annotations

import pytest

from replayproxy.errors import CannotJudge, Exit
from replayproxy.state import CannotRestore, KeepsAside, RestoreFailed, StateUnreadable
from replayproxy.state.provider import reason_of


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a\n  b"), "ValueError: a b"),
        (OSError(), "OSError"),
        (StateUnreadable("no table", hint="make one"), "no table -> make one"),
        (ConnectionRefusedError(111, "Connection refused"), "ConnectionRefusedError: [Errno 111] Connection refused"),
    ],
)
def test_the_reason_is_one_line(error: Exception, line: str) -> None:
    assert reason_of(error) == line


@pytest.mark.parametrize("kind", [StateUnreadable, RestoreFailed, CannotRestore])
def test_without_a_state_nothing_can_be_judged(kind: type[CannotJudge]) -> None:
    assert kind("x").exit is Exit.UNJUDGED
    assert kind("x").title != CannotJudge.title


def test_a_provider_that_keeps_something_aside_is_known_by_its_method() -> None:
    class Plain:
        def restore(self, rows: object) -> None: ...

    class Full(Plain):
        def restore_whole(self, rows: object, aside: object) -> None: ...

    assert not isinstance(Plain(), KeepsAside)
    assert isinstance(Full(), KeepsAside)
