"""The ids that a client gives its JSON-RPC calls: in the key of a replay only that they are there.

A client counts from 0, from 1, or makes uuids; what the call asks for is the same. Where a call is equal but for its
ids, the recorded answer is given with the live ids in it. Answers that a client gives to the server's own calls keep
their ids: these are the server's, so the recording has already told them to the live client.
"""

from __future__ import annotations

from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, RequestKey, digest, key_of, view
from replayproxy.core.mint import json_text
from replayproxy.core.values import Request

CALLS = b"calls:"
"""How the key of a body begins that holds calls with ids."""

type Ids = tuple[tuple[str, str], ...]
"""(pointer, JSON text) of every id that a client chose, in order."""


def replay_key(env: str, request: Request) -> tuple[RequestKey, Ids]:
    """The key by which a replay looks a request up, and the ids that are not in it."""
    seen = view(request.fields, request.body)
    if seen.kind is not Kind.JSON:
        return key_of(env, request, seen.key), ()
    found: list[tuple[str, str]] = []
    tree = _without_ids(seen.value, found)
    if not found:
        return key_of(env, request, seen.key), ()
    return key_of(env, request, CALLS + digest(jsonvalue.canonical(tree))), tuple(found)


def _without_ids(tree: Any, found: list[tuple[str, str]]) -> Any:
    if isinstance(tree, dict):
        return _call("", tree, found)
    if isinstance(tree, list) and tree and all(isinstance(one, dict) for one in tree):
        return [_call(f"/{index}", one, found) for index, one in enumerate(tree)]
    return tree


def _call(at: str, message: dict[str, Any], found: list[tuple[str, str]]) -> dict[str, Any]:
    if message.get("jsonrpc") != "2.0" or "method" not in message:
        return message
    message = _taken(at, "id", message, found)
    params = message.get("params")
    if not isinstance(params, dict):
        return message
    if message["method"] == "notifications/cancelled":
        return {**message, "params": _taken(f"{at}/params", "requestId", params, found)}
    if isinstance(meta := params.get("_meta"), dict):
        named = _taken(f"{at}/params/_meta", "progressToken", meta, found)
        return {**message, "params": {**params, "_meta": named}}
    return message


def _taken(at: str, name: str, owner: dict[str, Any], found: list[tuple[str, str]]) -> dict[str, Any]:
    """The object with `true` where the id was: all ids of these places are gone, so nothing is confused with it."""
    value = owner.get(name)
    if value is None or isinstance(value, dict | list):
        return owner
    found.append((f"{at}/{name}", json_text(value)))
    return {**owner, name: True}


def differing(recorded: Ids, live: Ids) -> list[tuple[str, str, str]]:
    """(pointer, recorded, live) of the ids that differ, of two requests with one key."""
    return [(place, was, now) for (place, was), (_, now) in zip(recorded, live, strict=False) if was != now]
