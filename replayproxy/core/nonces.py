"""Values told by themselves in requests, and the injective map from recorded to live ones.

Which of them an agent minted, `core.minted` finds out; only these may stand for another.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import unquote

from replayproxy.core.callids import replay_key
from replayproxy.core.canonical import (
    SECRET_KEY_FIELDS,
    VIEW_LIMIT,
    RequestKey,
    body_of,
    decoded,
    field,
    media_type,
)
from replayproxy.core.mint import is_text
from replayproxy.core.multipart import boundary_of
from replayproxy.core.opaque import is_opaque
from replayproxy.core.rewrite import VALUE, Scope, rewrite
from replayproxy.core.tokens import fresh_alike
from replayproxy.core.values import Exchange, Request

VALUES, CREDENTIALS = "value", "credential"
"""Within which a binding holds: values told by themselves, credentials of a recording made under another key."""

TOKEN = re.compile(r"rp-secret-[a-z2-7]{24}")
"""What stands in a recording for a credential."""


def credential_form(text: str) -> str | None:
    """What is around the token that stands for a credential, `user:*` where it is the password of `Basic`; None: the
    text is no such token."""
    if TOKEN.fullmatch(text):
        return "*"
    try:
        plain = base64.b64decode(text, validate=True).decode("latin-1") if len(text) % 4 == 0 else ""
    except (binascii.Error, ValueError):
        return None
    return TOKEN.sub("*", plain) if TOKEN.search(plain) else None


HOLE = "~hole~"
_TOKEN_BYTES = re.compile(TOKEN.pattern.encode())
_LONG = re.compile(rb"[0-9A-Za-z_+/=.~-]{8,}")


class Slot(NamedTuple):
    """One value told by itself, where it stands. `scope` "": it is no agent's, and must be equal."""

    place: str
    value: str
    scope: str = ""


class Shape(NamedTuple):
    """A request with a hole where each such value is, and the values in the order of their places."""

    key: RequestKey
    slots: tuple[Slot, ...]


def shape_of(env: str, request: Request) -> Shape | None:
    """None for a request without any such value. Parses the body."""
    if not _may_hold(request):
        return None
    found: list[Slot] = []
    boundary = (boundary_of(field(request.fields, b"content-type") or b"") or b"").decode("latin-1")

    def lookup(place: str, scopes: tuple[Scope, ...], text: str) -> str | None:
        if VALUE not in scopes or (boundary and boundary.strip("-") in text):
            return None
        if place.startswith("header/") and not (_is_key_header(place) and credential_form(text)):
            return None
        found.append(Slot(_as_shown(place), text))
        return HOLE

    holed = _without_tokens(rewrite(request, env, lookup), found)
    if not found:
        return None
    # The order of a query's names, or of an object's members, is not to decide which value meets which.
    return Shape(replay_key(env, holed)[0], tuple(sorted(found, key=lambda slot: slot.place)))


def _without_tokens(request: Request, found: list[Slot]) -> Request:
    """The request without the tokens that stand inside a longer text; `found` gets them, in their order."""

    def taken(place: str, data: bytes) -> bytes:
        def one(match: re.Match[bytes]) -> bytes:
            found.append(Slot(f"{place}#{len(found):05}", match[0].decode()))
            return HOLE.encode()

        return _TOKEN_BYTES.sub(one, data)

    target, body = taken("target", request.target), request.body
    if body is not None and body.inline and len(body.inline) <= VIEW_LIMIT:
        data = taken("body", body.inline)
        body = body if data == body.inline else body_of(data)
    return request if (target, body) == (request.target, request.body) else replace(request, target=target, body=body)


def _as_shown(place: str) -> str:
    """A path's segments are counted from the first one, as wherever a difference is named."""
    part, _, index = place.partition("/")
    return f"path/{int(index) - 1}" if part == "path" and index.isdigit() else place


def _is_key_header(place: str) -> bool:
    return place.removeprefix("header/").encode("latin-1") in SECRET_KEY_FIELDS


def _may_hold(request: Request) -> bool:
    body = request.body.inline if request.body is not None else None
    plain = decoded(request.fields, body) if body and len(body) <= VIEW_LIMIT else None
    texts = [request.target, plain or b"", *(v for n, v in request.fields if n.lower() in SECRET_KEY_FIELDS)]
    return any(is_opaque(one) for text in texts for one in _pieces(text))


def _pieces(text: bytes) -> Iterable[str]:
    """Tokens as `rewrite` may find them: cut at `/` and `=`, which it does in paths and queries, and not."""
    for match in _LONG.finditer(text):
        whole = unquote(match.group().decode("latin-1"))
        yield whole
        yield from re.split(r"[/=.]", whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A recorded value and the live one that stands for it, and where it was first seen so."""

    recorded: str
    live: str
    exchange: int
    place: str
    scope: str = VALUES


class Clash(NamedTuple):
    """Why two requests of one shape are not one: at this place the recorded value is bound to another, or the live
    one stands for another. `text` says so; "" where the values are simply not the same."""

    place: str
    recorded: str
    live: str
    text: str = ""


class Renaming:
    """The injective map of one replayed episode, from recorded to live values."""

    def __init__(self) -> None:
        self.bindings: list[Binding] = []
        self.live: dict[tuple[str, str], str] = {}
        self._back: dict[tuple[str, str], str] = {}
        self._since: dict[tuple[str, str], int] = {}
        self.tokens: dict[str, str] = {}
        """Recorded to live, where they differ."""

    def unify(self, recorded: Sequence[Slot], live: Sequence[Slot]) -> dict[Slot, str] | Clash:
        """What would have to be bound newly for these to be one; nothing is bound yet."""
        new: dict[Slot, str] = {}
        back: dict[tuple[str, str], str] = {}
        if len(recorded) != len(live):
            return Clash("body", "", "")
        for was, now in zip(recorded, live, strict=True):
            if was.place != now.place or (not was.scope and was.value != now.value):
                return Clash(was.place, was.value, now.value)
            if not was.scope:
                continue
            held = self.live.get((was.scope, was.value)) or next(
                (text for slot, text in new.items() if (slot.scope, slot.value) == (was.scope, was.value)), None
            )
            if held is not None:
                if held != now.value:
                    return Clash(was.place, was.value, now.value, self._held(was, held))
                continue
            other = self._back.get((was.scope, now.value)) or back.get((was.scope, now.value))
            if other is not None:
                text = f"{now.value} stands for {other} already, and cannot stand for {was.value} as well"
                return Clash(was.place, was.value, now.value, text)
            if not alike(was, now.value):
                return Clash(was.place, was.value, now.value)
            new[was] = now.value
            back[was.scope, now.value] = was.value
        return new

    def _held(self, was: Slot, held: str) -> str:
        since = self._since.get((was.scope, was.value))
        where = f" since exchange {since}" if since is not None else " in this request"
        return f"{was.value} is bound to {held}{where}"

    def bind(self, slots: Mapping[Slot, str], seq: int) -> None:
        """Holds these from now on. A value that came as it was recorded stands for itself, and is not listed."""
        for slot, text in slots.items():
            self.live[slot.scope, slot.value] = text
            self._back[slot.scope, text] = slot.value
            self._since[slot.scope, slot.value] = seq
            if text != slot.value:
                self.note(Binding(recorded=slot.value, live=text, exchange=seq, place=slot.place, scope=slot.scope))
                self.tokens[slot.value] = text

    def knows(self, live: Sequence[Slot]) -> bool:
        """Whether one of these live values stands for a recorded one already."""
        return any((scope, slot.value) in self._back for slot in live for scope in (slot.scope, VALUES, CREDENTIALS))

    def note(self, binding: Binding) -> None:
        """Lists a binding that holds for one exchange only, or was made by `bind`."""
        self.bindings.append(binding)


def alike(was: Slot, now: str) -> bool:
    """Whether a live value can be another of the kind that was recorded."""
    if was.scope == CREDENTIALS:
        return credential_form(was.value) == credential_form(now)
    return was.scope != VALUES or was.value == now or fresh_alike(was.value, now)


def scoped(shape: Shape | None, minted: Mapping[str, str]) -> Shape | None:
    """The recorded shape with the scope of each of its values; None where none of them was minted."""
    if shape is None or not any(slot.value in minted for slot in shape.slots):
        return None
    return shape._replace(
        slots=tuple(slot._replace(scope=slot.scope or minted.get(slot.value, "")) for slot in shape.slots)
    )


ECHOED = frozenset({b"idempotency-key", b"x-idempotency-key", b"x-request-id", b"request-id", b"x-correlation-id",
                    b"correlation-id", b"x-client-request-id", b"x-amzn-trace-id", b"traceparent"})  # fmt: skip
"""Headers that agents mint. They are not in the key; an answer that repeats one of them is rewritten."""


def echoed(exchange: Exchange) -> tuple[tuple[bytes, str], ...]:
    """The minted headers of a request whose value its answer repeats, or may repeat (its body is in the store)."""
    response = exchange.response
    named = [(n.lower(), v) for n, v in exchange.request.fields if n.lower() in ECHOED and len(v) >= 8]
    if not named or response is None:
        return ()
    body = response.body
    data = body.inline or b"" if body is not None else b""
    unseen = (
        body is not None and body.inline is None and body.size <= VIEW_LIMIT and is_text(media_type(response.fields))
    )
    plain = (decoded(response.fields, data) or b"") + b"\n" + b"\n".join(value for _, value in response.fields)
    return tuple((name, value.decode("latin-1")) for name, value in named if unseen or value in plain)
