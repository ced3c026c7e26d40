"""Snapshots: the provider contract, the loader, capture, restore, conformance.

What a provider's file imports is here: `from replayproxy.state import Reading`.
"""

from replayproxy.state.provider import (
    CannotRestore,
    Changes,
    Context,
    Float,
    KeepsAside,
    Provider,
    Reading,
    RestoreFailed,
    Row,
    RowChange,
    Rows,
    Scope,
    StateUnreadable,
)
from replayproxy.state.spec import Spec

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
    "Spec",
    "StateUnreadable",
]
