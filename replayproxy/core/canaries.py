"""Canaries: tokens that a harness plants, one or more an episode, so that whoever shows one tells where it came from.

A mark with the label `canary` says whose a token is. No other episode has it, so an answer that shows it in another
episode is a flow, whatever else is known of the state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from replayproxy.core.values import Event

LABEL = "canary"
CANARY = re.compile(r"rpc-[0-9a-f]{16,64}", re.IGNORECASE)
"""64 bits of chance or more. Case may be lost on the way."""


def planted(events: Iterable[Event]) -> dict[str, str]:
    """The canaries that an episode's marks tell, in lower case, each with the harness's own name for it."""
    return {token: label for label, token in _marks(events)}


def by_label(events: Iterable[Event]) -> dict[str, str]:
    """Label -> canary, as an agent that is replayed asks for them again."""
    return dict(_marks(events))


def asked_for(label: str | None, data: Any) -> str | None:
    """The label of the canary that a mark plants; None: it plants none."""
    if label != LABEL or not isinstance(data, Mapping):
        return None
    return str(data.get("for", ""))


def _marks(events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    for event in events:
        data = event.detail.get("data")
        wanted = asked_for(event.detail.get("label"), data) if event.kind == "mark" else None
        token = data.get("canary") if wanted is not None and isinstance(data, Mapping) else None
        if isinstance(token, str) and CANARY.fullmatch(token):
            yield wanted or "", token.lower()


def found_in(text: str) -> Iterator[str]:
    """The tokens in a text that have a canary's form, in lower case."""
    if len(text) >= 20:
        for match in CANARY.finditer(text):
            yield match.group().lower()
