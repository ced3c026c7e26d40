"""The ids of JSON-RPC calls inside messages: the caller mints them, so they match by binding and not by value."""

from __future__ import annotations

from typing import Any


def bind_ids(recorded: Any, asked: Any) -> tuple[Any, Any] | None:
    """(recorded, live) id of two messages that are calls and differ in their ids; None where nothing is to be bound.

    Only of calls: the id of an answer was minted by the environment, which the replay gives as recorded.
    """
    if not (_is_call(recorded) and _is_call(asked)):
        return None
    before, after = recorded["id"], asked["id"]
    return None if (type(before), before) == (type(after), after) else (before, after)


def _is_call(tree: Any) -> bool:
    return (
        isinstance(tree, dict)
        and tree.get("jsonrpc") == "2.0"
        and "method" in tree
        and isinstance(tree.get("id"), str | int)
        and not isinstance(tree.get("id"), bool)
    )


def with_live_id(tree: dict[str, Any], live: Any) -> dict[str, Any]:
    return {**tree, "id": live}
