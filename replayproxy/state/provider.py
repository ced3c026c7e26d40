"""What a snapshot provider is: the contract that the bundled ones, a user's file and a third party's package meet.

A provider is a module with a function `provider(spec)` (`replayproxy.state.spec.Spec`) that gives an object of the
class below, and may name its options in `OPTIONS`. It is blocking code: it is called in a worker thread, one call
at a time. It may raise anything; the text becomes the reason that the user reads, so a plain Python error with a
clear text will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from replayproxy.core.rowcode import Float
from replayproxy.core.values import Row, RowChange, Rows
from replayproxy.errors import CannotJudge

__all__ = [
    "CannotRestore",
    "Changes",
    "Context",
    "Float",
    "KeepsAside",
    "Provider",
    "Reading",
    "RestoreFailed",
    "Row",
    "RowChange",
    "Rows",
    "Scope",
    "StateUnreadable",
    "reason_of",
]

type Scope = Literal["instance", "episode"]


class StateUnreadable(CannotJudge):
    """The state could not be read; the snapshot is missing with this reason."""

    title = "state unreadable"


class RestoreFailed(CannotJudge):
    """The state was not written. What is there now is what was there, or (where the text says so) undefined."""

    title = "restore failed"


class CannotRestore(RestoreFailed):
    """There is no way to write this state (no such route, turned off): a reset may do instead."""

    title = "cannot restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs from the state that the same provider object gave last; `after` None: the row is gone."""

    rows: Sequence[RowChange] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A state as it was read. `rows`: table -> key -> row, or what changed since the reading before.

    `aside` is written back by a restore and compared by nobody: what a faithful restore needs and no agent can see
    (file times, the order of rows).
    """

    rows: Rows | Changes
    aside: Rows | Changes = field(default_factory=dict)


class Provider(Protocol):
    """Reads one state, and writes it back where it can.

    `atomic`: a reading is the state of one instant. `scope`: `episode` when the state belongs to one episode alone,
    `instance` when other episodes on the same instance write it too.
    """

    @property
    def atomic(self) -> bool: ...

    @property
    def can_restore(self) -> bool: ...

    @property
    def scope(self) -> Scope: ...

    def capture(self) -> Reading:
        """The state now. Never makes a write of the environment fail, never gives part of a state."""
        ...

    def restore(self, rows: Rows) -> None:
        """Makes `rows` the state: rows that are not among them go. All or nothing, where the system allows it."""
        ...

    def close(self) -> None:
        """Gives back connections and files. Nothing is called afterwards."""
        ...


@runtime_checkable
class KeepsAside(Protocol):
    """A provider whose readings have an `aside`: this is called in place of `restore`. One whose aside only spells
    the rows again says so by an attribute `aside_is_the_rows = True`: it is not kept where a row holds a secret."""

    def restore_whole(self, rows: Rows, aside: Rows) -> None:
        """As `restore`. `aside` is empty when the state comes from elsewhere than this provider."""
        ...


def reason_of(error: BaseException) -> str:
    """One line for a user: our own text as it is, another's with what kind of error it is."""
    text = " ".join(str(error).split())
    if isinstance(error, CannotJudge):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


type Context = Mapping[str, str]
"""What may stand in braces in a spec: `episode`, `task`, `seed`, `meta.X`."""
