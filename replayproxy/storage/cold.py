"""Runs, episodes, snapshots, events and check documents to records and back.

Each is a JSON object of the members that differ from their defaults. The exceptions are in one table (`SHAPES`).
Decoding raises `Broken` for any damage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from replayproxy.core.shapes import wrong_member
from replayproxy.core.values import (
    EnvWiring,
    Episode,
    EpisodeState,
    Event,
    Run,
    Seal,
    Snapshot,
    SnapshotStatus,
)
from replayproxy.storage.frame import Broken, open_record, seal_record


def _same(value: Any) -> Any:
    return value


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def members(value: Any, left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """The members of a dataclass that differ from their defaults."""
    listed = [(f, getattr(value, f.name)) for f in fields(value) if f.name not in left_out]
    # The type counts too: a seed of `true`, or a reward of 1 where the default is 1.0, is not the default.
    return {f.name: item for f, item in listed if item != _default(f) or type(item) is not type(_default(f))}


def _wirings(envs: Mapping[str, EnvWiring]) -> dict[str, Any]:
    return {name: members(wiring) for name, wiring in envs.items()}


def _open_wirings(stored: Mapping[str, Any]) -> dict[str, EnvWiring]:
    return {name: _made(EnvWiring, document) for name, document in stored.items()}


def _orders(stored: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(order) for order in stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a member is written and read where JSON's own shape is not enough."""

    write: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same


SHAPES: dict[type, dict[str, Shape]] = {
    Run: {
        "envs": Shape(write=_wirings, read=_open_wirings),
        "snapshot_when": Shape(read=tuple),
        "faults": Shape(read=tuple),
    },
    EnvWiring: {"reset": Shape(read=tuple), "reads": Shape(read=tuple), "claims": Shape(read=tuple)},
    Episode: {
        "state": Shape(read=EpisodeState),
        "faults": Shape(read=tuple),
        "seal": Shape(write=members, read=lambda stored: _made(Seal, stored)),
        "aliases": Shape(read=lambda stored: tuple((space, value) for space, value in stored)),
    },
    Seal: {},
    Snapshot: {
        "status": Shape(read=SnapshotStatus),
        "after": Shape(read=tuple),
        "in_flight": Shape(read=_orders),
        "shared_with": Shape(read=tuple),
    },
    Event: {},
}

DERIVED = {Snapshot: ("after_seq", "in_flight_seq")}
"""Members that are made when a value is read."""


def _written(value: Any) -> dict[str, Any]:
    shapes = SHAPES[type(value)]
    found = members(value, DERIVED.get(type(value), ()))
    return {n: shapes[n].write(item) if n in shapes and item is not None else item for n, item in found.items()}


def _made[T](kind: type[T], document: Mapping[str, Any]) -> T:
    shapes = SHAPES[kind]
    made = kind(
        **{n: shapes[n].read(item) if n in shapes and item is not None else item for n, item in document.items()}
    )
    if (wrong := wrong_member(made)) is not None:
        raise Broken(f"its {wrong} is of the wrong type")
    return made


def encode(value: Run | Snapshot | Event) -> bytes:
    return seal_record(_written(value), packed=True)


def decode[T](kind: type[T], raw: bytes) -> T:
    """The value that was encoded. Raises Broken."""
    document, _ = open_record(raw)
    try:
        return _made(kind, document)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"its shape is wrong: {error}") from error


def encode_episode(episode: Episode, session: int) -> bytes:
    """`session` is the number of the writer that opened it: while that writer lives, the episode may be open."""
    return seal_record({"session": session, "episode": _written(episode)}, packed=True)


def decode_episode(raw: bytes) -> tuple[Episode, int]:
    """The episode as stored, and its writer's number. Raises Broken."""
    document, _ = open_record(raw)
    try:
        return _made(Episode, document["episode"]), int(document["session"])
    except Exception as error:
        raise Broken(f"its shape is wrong: {error}") from error


def encode_document(document: Mapping[str, Any]) -> bytes:
    return seal_record(document, packed=True)


def decode_document(raw: bytes) -> dict[str, Any]:
    document, _ = open_record(raw)
    if not isinstance(document, dict):
        raise Broken("its shape is wrong: no object")
    return document
