"""What the recorder takes off a request's head, and what it writes into one: the proxy's part of the closed list.

Pure functions on raw fields. Identity marks are read and removed here, before the environment or the recording sees
them; everything that is not named here passes as it came.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from replayproxy.core.canonical import all_fields, field
from replayproxy.core.identity import Claims
from replayproxy.core.names import decode_name
from replayproxy.core.values import Fields

_EPISODE = b"x-replay-episode"
_LANE = b"x-replay-lane"
_BAGGAGE = b"baggage"
_MARKS = frozenset({_EPISODE, _LANE, _BAGGAGE})
_MEMBER = b"replay.episode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """A request's head without its identity marks, and what they said. `prefix` is as the agent wrote it."""

    claims: Claims
    target: bytes
    fields: Fields
    prefix: bytes = b""


def _name(carried: bytes) -> str:
    """The name a carrier held. One that is no UTF-8 keeps its bytes as surrogates, so that the book refuses it."""
    decoded = decode_name(carried)
    return unquote_to_bytes(carried).decode("utf-8", "surrogateescape") if decoded is None else decoded


def take_marks(target: bytes, fields: Fields, *, port_episode: str | None = None, prefixed: bool = True) -> Marks:
    """Reads and removes every identity mark. Where no prefix is handed out (`prefixed` False: a forward proxy; a
    listener of one episode) `/rp/..` is the environment's own path."""
    own_path = port_episode is not None or not prefixed
    lead, rest = (b"", target) if own_path else _split_prefix(target)
    header = baggage = lane = None
    if not any([name.lower() in _MARKS for name, _ in fields]):  # noqa: C419 - a generator costs more
        claims = Claims(port_episode=port_episode, prefix=_name(lead[4:]) if lead else None)
        return Marks(claims=claims, target=rest, fields=fields, prefix=lead)
    kept = []
    for name, value in fields:
        lowered = name.lower()
        if lowered not in _MARKS:
            kept.append((name, value))
        elif lowered == _EPISODE:
            header = _name(value) if header is None else header
        elif lowered == _LANE:
            lane = _name(value) if lane is None else lane
        else:
            found, left = _split_baggage(value)
            baggage = found if baggage is None else baggage
            if left or found is None:
                kept.append((name, left))
    claims = Claims(
        port_episode=port_episode,
        prefix=_name(lead[4:]) if lead else None,
        header=header,
        baggage=baggage,
        lane=lane,
    )
    return Marks(claims=claims, target=rest, fields=tuple(kept), prefix=lead)


def _split_prefix(target: bytes) -> tuple[bytes, bytes]:
    """(`/rp/EPISODE`, what the environment is asked), raw; (b"", target) where there is no prefix."""
    if not target.startswith(b"/rp/"):
        return b"", target
    ends = [at for at in (target.find(b"/", 4), target.find(b"?", 4)) if at != -1]
    end = min(ends, default=len(target))
    lead, rest = target[:end], target[end:]
    # A client that appends also appends a link that it got from us, which has the prefix already.
    while rest.startswith(lead) and rest[end : end + 1] in (b"", b"/", b"?"):
        rest = rest[end:]
    return lead, rest if rest.startswith(b"/") else b"/" + rest


def _split_baggage(value: bytes) -> tuple[str | None, bytes]:
    """(our member's value, the header without that member). A header that lacks it comes back as it is."""
    if _MEMBER not in value:
        return None, value
    found, others = None, []
    for member in value.split(b","):
        name, equals, rest = member.partition(b"=")
        if equals and name.strip() == _MEMBER:
            found = _name(rest.partition(b";")[0].strip()) if found is None else found
        else:
            others.append(member)
    return (found, b",".join(others).strip()) if found is not None else (None, value)


def with_host(fields: Fields, host: bytes | None) -> tuple[Fields, bytes | None]:
    """The fields with Host written in place (None: left alone), and the Host that the agent sent."""
    was = field(fields, b"host")
    if host is None or was is None or was == host:
        return fields, was
    return tuple((name, host if name.lower() == b"host" else value) for name, value in fields), was


def without_expect(fields: Fields) -> Fields:
    """`Expect: 100-continue` is answered by the proxy, so the environment never sees it."""
    if field(fields, b"expect") is None:
        return fields
    return tuple(
        (name, value)
        for name, value in fields
        if not (name.lower() == b"expect" and value.strip().lower() == b"100-continue")
    )


def without_h2c(fields: Fields) -> tuple[Fields, bool]:
    """Takes an offer to switch to cleartext HTTP/2 off, and says whether there was one: behind such a switch nothing
    could be recorded. Another offer in the same Upgrade stays."""
    if not any([b"h2c" in value.lower() for value in all_fields(fields, b"upgrade")]):  # noqa: C419 - a generator costs more
        return fields, False
    upgrade = _tokens(fields, b"upgrade")
    if b"h2c" not in [token.lower() for token in upgrade]:
        return fields, False
    gone = {b"http2-settings"} if len(upgrade) > 1 else {b"http2-settings", b"upgrade"}
    out = []
    for name, value in fields:
        lowered = name.lower()
        if lowered == b"http2-settings":
            continue
        if lowered == b"upgrade":
            value = _without_tokens(value, {b"h2c"})
        elif lowered == b"connection":
            value = _without_tokens(value, gone)
        else:
            out.append((name, value))
            continue
        if value:
            out.append((name, value))
    return tuple(out), True


def _tokens(fields: Fields, wanted: bytes) -> list[bytes]:
    values = [value for name, value in fields if name.lower() == wanted]
    return [token.strip() for value in values for token in value.split(b",") if token.strip()]


def _without_tokens(value: bytes, gone: set[bytes]) -> bytes:
    return b",".join(token for token in value.split(b",") if token.strip().lower() not in gone).strip()


def without_alt_svc(fields: Fields) -> Fields:
    """Alt-Svc would lead the agent to the environment, past the proxy."""
    if field(fields, b"alt-svc") is None:
        return fields
    return tuple((name, value) for name, value in fields if name.lower() != b"alt-svc")
