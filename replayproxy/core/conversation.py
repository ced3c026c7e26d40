"""A WebSocket conversation that is replayed: whether what the agent says is what was recorded there.

Rules of this file: messages are matched one by one in the order of the connection, by type and by value (JSON by its
exact value, anything else byte for byte). The first thing that is not as recorded ends the conversation: nothing that
followed it in the recording would be an answer to it. Messages are numbered from 1 over both directions, as `show`
lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.callids import replay_key
from replayproxy.core.canonical import VIEW_LIMIT, RequestKey, body_of
from replayproxy.core.mint import Renames, applied, id_edits, token_edits
from replayproxy.core.nonces import Binding
from replayproxy.core.unlike import differences, shown
from replayproxy.core.values import Exchange, Message, Outcome, Request

NO_CODE = 1005
"""What stands for a close frame without a code."""

ABNORMAL = 1006
"""What stands for an end without a close frame."""

REASON_LIMIT = 123
"""So many bytes fit into a close frame beside the code."""

LOOKED_AT = 64
"""So many of the agent's messages around the expected one are compared with one that does not match."""

NEAREST = 3

CALL_IDS = "json-rpc"
"""What kind of binding the id of a call is."""


class End(StrEnum):
    """How a recorded conversation ended."""

    AGENT_CLOSED = "agent-closed"
    ENV_CLOSED = "environment-closed"
    AGENT_GONE = "agent-gone"  # without a close frame
    ENV_GONE = "environment-gone"
    OPEN = "open"  # it was still open when its episode ended


def end_of(exchange: Exchange) -> End:
    """Who ended a conversation, and how; OPEN also where nobody knows."""
    talk = exchange.websocket
    if talk is None or talk.close_code is None or exchange.outcome is Outcome.OPEN_AT_END:
        return End.OPEN
    by_agent = bool(talk.closed_by_agent)
    if talk.close_code == ABNORMAL:
        return End.AGENT_GONE if by_agent else End.ENV_GONE
    return End.AGENT_CLOSED if by_agent else End.ENV_CLOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A recorded message near to what was said; the fields are those of `nearest.Near`."""

    number: int
    state: str
    pointer: str | None
    recorded: Any
    asked: Any
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlike:
    """The first thing that an agent said, or did, that was not recorded there. `number`: of the message."""

    number: int
    near: tuple[Near, ...]
    text: str = ""

    @property
    def pointer(self) -> str | None:
        return self.near[0].pointer if self.near else None

    def reason(self) -> bytes:
        """What a close frame says of it: what differs first, cut to fit."""
        first = self.near[0] if self.near else None
        if self.text or first is None or first.pointer is None:
            return cut(self.text or (first.note if first else "") or f"messages/{self.number}: not in the recording")
        return cut(f"{first.pointer}: recorded {_brief(first.recorded)}, asked {_brief(first.asked)}")


def _brief(value: Any) -> str:
    return "nothing" if value is None else str(value)


def cut(text: str) -> bytes:
    """UTF-8 of at most `REASON_LIMIT` bytes, cut between characters."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= REASON_LIMIT:
        return raw
    return raw[: REASON_LIMIT - 3].decode("utf-8", "ignore").encode() + "…".encode()


class Conversation:
    """One conversation under way. The edge walks the recorded messages and tells what the agent does.

    `renames`: recorded to live values that the handshake, and what came before it, bound.
    """

    def __init__(self, renames: Renames | None = None, exchange: int = 0) -> None:
        self.exact = True
        self.heard = 0  # the agent's messages that were as recorded
        self.bindings: list[Binding] = []
        self._exchange = exchange
        self._tokens = dict(renames.tokens) if renames else {}
        self._ids: dict[str, str] = {}

    def hear(self, number: int, recorded: Message, asked: Message) -> bool:
        """Whether this is message `number` of the recording. It then counts, and the ids of its calls are bound."""
        if recorded.text != asked.text or not self._same(number, recorded, asked):
            return False
        self.heard += 1
        return True

    def _same(self, number: int, recorded: Message, asked: Message) -> bool:
        if recorded.payload == asked.payload:
            return True
        due = self.due(recorded)
        (key, ids), (live_key, live_ids) = (replay_key("", _as_request(one)) for one in (due, asked))
        if key != live_key:
            return False
        self.exact = False
        for (pointer, was), (_, now) in zip(ids, live_ids, strict=True):
            if was != now and self._ids.get(was) != now:
                self._ids[was] = now
                place = f"messages/{number}{pointer}"
                self.bindings.append(
                    Binding(recorded=was, live=now, exchange=self._exchange, place=place, scope=CALL_IDS)
                )
        return True

    def due(self, recorded: Message) -> Message:
        """A recorded message with the live values in the place of the recorded ones."""
        if not self._tokens or not recorded.text:
            return recorded
        edits = token_edits(recorded.payload, self._tokens)
        return replace(recorded, payload=applied(recorded.payload, edits)) if edits else recorded

    def say(self, recorded: Message) -> bytes:
        """What the environment said, with the live ids of the calls that it answers."""
        payload = self.due(recorded).payload
        return applied(payload, id_edits(payload, self._ids)) if self._ids else payload


def _tree(payload: bytes) -> tuple[Any] | None:
    """The JSON value in a tuple, for null is one; None where there is none."""
    if len(payload) > VIEW_LIMIT:
        return None
    try:
        tree = jsonvalue.parse(payload)
        jsonvalue.canonical(tree)
    except jsonvalue.NotJson:
        return None
    return (tree,)


def unlike(number: int, asked: Message, around: Iterable[tuple[int, Message]]) -> Unlike:
    """What was said in place of message `number`, and what was recorded near to it.

    `around`: the agent's messages of the recording with their numbers; all before `number` were said already.
    """
    rated = []
    for place, (at, recorded) in enumerate(islice(around, LOOKED_AT)):
        found = list(islice(_differences(at, recorded, asked), 50))
        rated.append((len(found) - 0.5 * (at == number), place, at, found))
    rated.sort(key=lambda one: (one[0], one[1]))
    expected = next((one for one in rated if one[2] == number), None)
    # The message that was due is told first: it is where the agent left the recording.
    order = [one for one in (expected, *rated) if one is not None]
    seen: dict[int, Near] = {}
    for _, _, at, found in order:
        if at not in seen and len(seen) < NEAREST:
            seen[at] = _near(at, number, found)
    text = "" if expected else f"messages/{number}: no message of the agent was recorded here, asked {_what(asked)}"
    return Unlike(number=number, near=tuple(seen.values()), text=text)


def _near(at: int, number: int, found: Sequence[tuple[str, Any, Any]]) -> Near:
    state = "free" if at >= number else "answered" if found else "consumed"
    if found:
        pointer, before, after = found[0]
        return Near(number=at, state=state, pointer=pointer, recorded=before, asked=after)
    note = f"the same message, recorded {'before' if at < number else 'after'} this place"
    return Near(number=at, state=state, pointer=None, recorded=None, asked=None, note=note)


def _what(message: Message) -> str:
    kind = "text" if message.text else "binary"
    return f"{kind} of {len(message.payload):,} bytes"


_KEY = RequestKey(env="", method=b"", path=b"", query=None, fields=(), body=b"")


def _differences(number: int, recorded: Message, asked: Message) -> Iterable[tuple[str, Any, Any]]:
    lead = f"messages/{number}"
    if recorded.text != asked.text:
        before, after = ("text" if one.text else "binary" for one in (recorded, asked))
        yield f"{lead}/type", before, after
        return
    for pointer, before, after in differences(_KEY, _as_request(recorded), _KEY, _as_request(asked)):
        yield lead + pointer.removeprefix("body"), before, after


def _as_request(message: Message) -> Request:
    """The message as the body of a request, so that what differs is told in the same words."""
    kind = b"application/json" if _tree(message.payload) else b"text/plain" if message.text else b"application/octet"
    return Request(
        method=b"", target=b"", version=b"", fields=((b"Content-Type", kind),), body=body_of(message.payload)
    )


def unlike_close(number: int, recorded: tuple[int, str], asked: tuple[int, str]) -> Unlike:
    """The agent closed otherwise than it had: another code, or another reason."""
    what = "code" if recorded[0] != asked[0] else "reason"
    before, after = (pair[what == "reason"] for pair in (recorded, asked))
    near = Near(number=number, state="free", pointer=f"close/{what}", recorded=_plain(before), asked=_plain(after))
    return Unlike(number=number, near=(near,))


def _plain(value: int | str) -> Any:
    return shown(value.encode("utf-8", "backslashreplace")) if isinstance(value, str) else value
