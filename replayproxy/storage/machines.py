"""Which machine recorded a run, and how its clocks stood: two machines have nothing but their wall clocks in common."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from replayproxy.storage.cold import decode_document, encode_document
from replayproxy.storage.frame import Broken

VARIABLE = "REPLAYPROXY_NODE"
"""Names this machine where its host name says nothing, as in a container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`offset`: its wall clock less its monotonic clock, in ns, when the run was opened."""

    name: str
    offset: int

    def encoded(self) -> bytes:
        return encode_document({"node": self.name, "offset": self.offset})


def here(environ: Mapping[str, str], *, wall: Callable[[], int], monotonic: Callable[[], int]) -> Machine:
    return Machine(name=environ.get(VARIABLE) or platform.node(), offset=wall() - monotonic())


def decoded(raw: bytes) -> Machine:
    """Raises Broken."""
    document: Mapping[str, Any] = decode_document(raw)
    name, offset = document.get("node"), document.get("offset")
    if not isinstance(name, str) or not isinstance(offset, int):
        raise Broken("its shape is wrong: no machine")
    return Machine(name=name, offset=offset)
