"""A miss as a document: what was asked, and what was recorded that comes near to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replayproxy.core.conversation import Near as MessageNear
from replayproxy.core.nearest import Near
from replayproxy.core.nonces import TOKEN
from replayproxy.core.replayer import MessageMiss, Miss
from replayproxy.core.script import Entry, Script
from replayproxy.core.secrets import without_parameters
from replayproxy.core.unlike import ANOTHER_CREDENTIAL, text
from replayproxy.core.values import Request

MISS_STATUS = 470
"""Of an answer to a request that was not recorded."""

MISS_CLOSE = 4470
"""With this code a WebSocket is closed whose agent said something that was not recorded there."""


type Document = dict[str, Any]


def named(request: Request) -> str:
    """A request in one line: method and target, without what its parameters hold of credentials."""
    return without_parameters(f"{text(request.method)} {text(request.target)}")


def near_document(script: Script, near: Near, lane: str) -> Document:
    """What comes near to a request of that lane; the candidate's own lane where it is another."""
    found: Document = {
        "exchange": f"{script.address}/{near.entry.seq}",
        "state": near.state.value,
        "pointer": near.pointer,
        "recorded": near.recorded,
        "asked": near.asked,
    }
    if near.entry.lane != lane:
        found["lane"] = near.entry.lane
    if near.note:
        found["note"] = near.note
    return found


def miss_document(script: Script, miss: Miss, near: Sequence[Near] | None = None) -> Document:
    """The body of a 470: what was asked, and what was recorded that comes near to it (now, or when it was first
    asked)."""
    found = miss.near if near is None else near
    return {
        "type": "about:blank",
        "title": "not in the recording",
        "status": MISS_STATUS,
        "detail": _why(script, miss, found) + _of_another_key(script, found[:1]),
        "run": script.run,
        "episode": script.episode,
        "lane": miss.lane,
        "request": named(miss.asked.request),
        "number": miss.number,
        "count": miss.count,
        "nearest": [near_document(script, one, miss.lane) for one in found],
    }


def _why(script: Script, miss: Miss, found: Sequence[Near]) -> str:
    if miss.clash:
        return f"{script.address}: {miss.clash}"
    same = next((near for near in found if near.pointer is None), None)
    if same is not None:
        return f"{script.address}: {same.note}"
    skipped = _skipped(script, miss)
    if skipped is not None:
        return f"{script.address}/{skipped.seq} is this request, but is not served: {skipped.skip}"
    return f"{script.address} holds no such request in any lane"


def _of_another_key(script: Script, near: Sequence[Near | MessageNear]) -> str:
    """Said where the nearest differs in a credential alone, which another store's key made unrecognisable."""
    if not script.foreign or not any(_only_tokens_differ(one.recorded, one.asked) for one in near):
        return ""
    return "; the credential may be the same: recorded under another store's key"


def _only_tokens_differ(recorded: object, asked: object) -> bool:
    if not isinstance(recorded, str) or not isinstance(asked, str):
        return False
    if asked == ANOTHER_CREDENTIAL:
        return True
    return bool(TOKEN.search(recorded)) and TOKEN.sub("", recorded) == TOKEN.sub("", asked)


def _skipped(script: Script, miss: Miss) -> Entry | None:
    return next((entry for entry in script.entries if entry.skip and entry.key == miss.asked.key), None)


def message_document(script: Script, miss: MessageMiss) -> Document:
    """A message that was not recorded there, in the words of `miss_document`; its status is the close code."""
    entry, unlike = miss.entry, miss.unlike
    address = f"{script.address}/{entry.seq}"
    return {
        "type": "about:blank",
        "title": "not in the recording",
        "status": MISS_CLOSE,
        "detail": f"{address}: {unlike.reason().decode()}" + _of_another_key(script, unlike.near[:1]),
        "run": script.run,
        "episode": script.episode,
        "lane": entry.lane,
        "request": named(entry.exchange.request),
        "number": miss.number,
        "count": 1,
        "message": unlike.number,
        "nearest": [
            {"exchange": address, "message": near.number, "state": near.state, "pointer": near.pointer,
             "recorded": near.recorded, "asked": near.asked, **({"note": near.note} if near.note else {})}
            for near in unlike.near
        ],
    }  # fmt: skip


def no_episode_document(run: str, request: str, reason: str, lane: str) -> Document:
    """The body of a 470 for a request that belongs to no recorded episode."""
    return {
        "type": "about:blank",
        "title": "not in the recording",
        "status": MISS_STATUS,
        "detail": reason,
        "run": run,
        "episode": None,
        "lane": lane,
        "request": request,
        "nearest": [],
    }
