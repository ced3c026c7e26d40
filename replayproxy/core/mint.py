"""Live values in place of recorded ones in an answer, by their spans: everything else stays byte-equal.

What an agent mints anew in each run (the id of a JSON-RPC call, a uuid, an idempotency key) comes back in the
recorded answers. `Renames` holds what stands for what; ids of JSON-RPC are changed only where they are ids of answers,
other values wherever they stand as a whole token. Chunk boundaries stay where they were, Content-Length is made right.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import VIEW_LIMIT, all_fields, body_of, decoded, is_json_type, media_type
from replayproxy.core.rewrite import spans
from replayproxy.core.values import Body, Chunk, Fields, Response

type Edit = tuple[int, int, bytes]
"""Start, end and what comes in the place of the bytes between."""

EVENT_STREAM = b"text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Renames:
    """Recorded to live. `tokens`: values that are told by themselves (a uuid); `ids`: JSON-RPC ids of this exchange,
    as JSON texts; `named`: (member name, JSON text) to JSON text, for values too small to be told by themselves."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.tokens or self.ids or self.named)


def json_text(value: Any) -> str:
    """A scalar as the JSON text by which `Renames` knows it."""
    return jsonvalue.canonical(value).decode("utf-8", "surrogatepass")


# -- JSON-RPC --------------------------------------------------------------------------------------------------------


def rewrite_json_id(payload: bytes, recorded: Any, live: Any) -> bytes:
    """The JSON-RPC answer, or batch, with the id `live` where it had `recorded`. Calls and notifications in it keep
    their ids, for these are the environment's own. What is no JSON-RPC comes back as it is."""
    return applied(payload, id_edits(payload, {json_text(recorded): json_text(live)}))


def id_edits(data: bytes, ids: Mapping[str, str]) -> list[Edit]:
    """Where a JSON document names the call that it answers, or whose progress it tells."""
    if not ids or b"jsonrpc" not in data:
        return []
    try:
        tree = jsonvalue.parse(data)
    except jsonvalue.NotJson:
        return []
    places = {place for at, message in _messages(tree) if (place := _place_of_id(at, message)) is not None}
    if not places:
        return []
    edits = []
    text = data.decode("latin-1")  # one character for each byte, so that offsets are the same
    for path, start, end in spans(text):
        if path in places and (live := ids.get(_canonical_text(data[start:end]))) is not None:
            edits.append((start, end, live.encode("utf-8", "surrogatepass")))
    return edits


def _messages(tree: Any) -> Iterable[tuple[tuple[str | int, ...], Any]]:
    return [((index,), one) for index, one in enumerate(tree)] if isinstance(tree, list) else [((), tree)]


def _place_of_id(at: tuple[str | int, ...], message: Any) -> tuple[str | int, ...] | None:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None
    if "method" not in message:
        return (*at, "id")
    return (*at, "params", "progressToken") if message["method"] == "notifications/progress" else None


def _canonical_text(raw: bytes) -> str:
    return json_text(jsonvalue.parse(raw))


# -- event streams ---------------------------------------------------------------------------------------------------

_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")


def event_edits(data: bytes, find: Callable[[bytes], list[Edit]]) -> list[Edit]:
    """The edits that `find` makes in the data of each event, as edits of the stream. Data may stand in several
    lines; an edit lies in one of them, for no JSON scalar holds a line break."""
    edits: list[Edit] = []
    lines: list[tuple[int, int]] = []
    for match in _LINE.finditer(data):
        start, end = match.span(1)
        line = match.group(1).removeprefix(b"\xef\xbb\xbf") if start == 0 else match.group(1)
        if line.startswith(b"data:"):
            lines.append((end - len(line) + (6 if line.startswith(b"data: ") else 5), end))
        elif not line:
            edits += _event(data, lines, find)
            lines = []
    return edits + _event(data, lines, find)


def _event(data: bytes, lines: Sequence[tuple[int, int]], find: Callable[[bytes], list[Edit]]) -> list[Edit]:
    if not lines:
        return []
    joined = b"\n".join(data[start:end] for start, end in lines)
    edits = []
    for start, end, new in find(joined):
        at = 0
        for line_start, line_end in lines:
            size = line_end - line_start
            if at <= start and end <= at + size:
                edits.append((line_start + start - at, line_start + end - at, new))
                break
            at += size + 1
    return edits


class EventRewriter:
    """Rewrites an event stream as it passes: what is fed comes out again, held back to the end of its event."""

    def __init__(self, renames: Renames) -> None:
        self._renames = renames
        self._open = b""

    def feed(self, piece: bytes) -> bytes:
        """The bytes that may go on."""
        held = self._open + piece
        end = _end_of_events(held)
        if not end and len(held) > VIEW_LIMIT:
            end = len(held)  # no event is that long that anybody should hold it
        self._open = held[end:]
        return self._rewritten(held[:end])

    def close(self) -> bytes:
        """What was held back."""
        rest, self._open = self._open, b""
        return self._rewritten(rest)

    def _rewritten(self, data: bytes) -> bytes:
        return applied(data, edits_of(data, EVENT_STREAM, self._renames)) if data else b""


_EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?=[^\n]))")


def _end_of_events(data: bytes) -> int:
    """Where the last whole event ends. A final `\\r` may be half of a line break: it waits for what follows."""
    end = 0
    for match in _EVENT_END.finditer(data):
        end = match.end()
    return end


# -- whole answers ---------------------------------------------------------------------------------------------------


def applied(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The bytes with the edits made, which come in order and do not overlap."""
    if not edits:
        return data
    out, at = [], 0
    for start, end, new in edits:
        out += [data[at:start], new]
        at = end
    return b"".join(out) + data[at:]


def edits_of(data: bytes, kind: bytes, renames: Renames) -> list[Edit]:
    """Everything that is renamed in a decoded body of that media type. Binary bodies are never touched."""
    if not is_text(kind) or not _may_hold(data, renames):
        return []

    def in_json(document: bytes) -> list[Edit]:
        return _merged(id_edits(document, renames.ids), _named_edits(document, renames.named))

    found: list[Edit] = []
    if kind == EVENT_STREAM:
        found = event_edits(data, in_json)
    elif is_json_type(kind):
        found = in_json(data)
    return _merged(found, token_edits(data, renames.tokens))


def _may_hold(data: bytes, renames: Renames) -> bool:
    """Most answers hold nothing that is renamed, and need not be taken apart to know it."""
    if renames.named or (renames.ids and b"jsonrpc" in data):
        return True
    return any(one.encode() in data or _encoded(one).encode() in data for one in renames.tokens)


def is_text(kind: bytes) -> bool:
    """Whether a body of that type is text in which a value may stand as a token."""
    return (
        is_json_type(kind)
        or kind.startswith(b"text/")
        or kind.endswith((b"xml", b"javascript", b"jsonl", b"ndjson", b"json-seq"))
        or kind == b"application/x-www-form-urlencoded"
    )


def _merged(*found: Sequence[Edit]) -> list[Edit]:
    """In order; of two that overlap, the one of the earlier list."""
    ranked = sorted((edit[0], rank, edit) for rank, edits in enumerate(found) for edit in edits)
    kept: list[tuple[int, Edit]] = []
    for start, rank, edit in ranked:
        if not kept or start >= kept[-1][1][1]:
            kept.append((rank, edit))
        elif rank < kept[-1][0]:
            kept[-1] = (rank, edit)
    return [edit for _, edit in kept]


def token_edits(data: bytes, tokens: Mapping[str, str]) -> list[Edit]:
    """Where a value stands as a whole token, as it is or percent-encoded."""
    if not tokens:
        return []
    spelled = {spelling(one).encode(): spelling(live).encode()
               for spelling in (_encoded, str) for one, live in tokens.items()}  # fmt: skip
    either = b"|".join(re.escape(one) for one in sorted(spelled, key=len, reverse=True))
    pattern = re.compile(rb"(?<![0-9A-Za-z_-])(?:" + either + rb")(?![0-9A-Za-z_-])")
    return [(match.start(), match.end(), spelled[match.group()]) for match in pattern.finditer(data)]


def _encoded(text: str) -> str:
    return quote(text, safe="")


def _named_edits(data: bytes, named: Mapping[tuple[str, str], str]) -> list[Edit]:
    if not named:
        return []
    try:
        jsonvalue.parse(data)
    except jsonvalue.NotJson:
        return []
    edits = []
    for path, start, end in spans(data.decode("latin-1")):
        name = next((token for token in reversed(path) if isinstance(token, str)), "")
        if (live := named.get((name, _canonical_text(data[start:end])))) is not None:
            edits.append((start, end, live.encode()))
    return edits


def resized(chunks: Sequence[Chunk], edits: Sequence[Edit]) -> tuple[Chunk, ...]:
    """The chunks of the edited body: each boundary stays where it was, or moves behind the new value that it cut."""
    out = []
    old = new = shift = reached = index = 0
    for chunk in chunks:
        old += chunk.size
        while index < len(edits) and edits[index][0] < old:
            start, end, text = edits[index]
            shift += len(text) - (end - start)
            reached = end
            index += 1
        at = max(old, reached) + shift
        out.append(replace(chunk, size=at - new))
        new = at
    return tuple(out)


def rewrite_answer(response: Response, renames: Renames) -> Response:
    """The answer with the live values; the same object where nothing in it changed. Its body must be inline to be
    looked into. A coded body is coded anew only where something in it changed."""
    fields = tuple((name, applied(value, token_edits(value, renames.tokens))) for name, value in response.fields)
    body = _body(response.fields, response.body, renames)
    if body is not response.body and body is not None:
        grown = body.size - (response.body.size if response.body else 0)
        fields = tuple((n, _longer(v, grown) if n.lower() == b"content-length" else v) for n, v in fields)
    if body is response.body and fields == response.fields:
        return response
    return replace(response, fields=fields, body=body)


def _longer(length: bytes, by: int) -> bytes:
    """Of an answer that was cut, the length that it announced is more than its body has."""
    return b"%d" % (int(length) + by) if length.strip().isdigit() else length


def _body(fields: Fields, body: Body | None, renames: Renames) -> Body | None:
    if body is None or not body.inline or body.size > VIEW_LIMIT:
        return body
    plain = decoded(fields, body.inline)
    if plain is None:
        return body
    edits = edits_of(plain, media_type(fields), renames)
    if not edits:
        return body
    new = applied(plain, edits)
    coding = b",".join(all_fields(fields, b"content-encoding")).strip().lower()
    if coding in (b"", b"identity"):
        return replace(body_of(new), chunks=resized(body.chunks, edits))
    coded = gzip.compress(new, mtime=0) if b"gzip" in coding else zlib.compress(new)
    # The boundaries of the old coding mean nothing in the new one: it passes as one piece, when the last one did.
    return replace(body_of(coded), chunks=tuple(Chunk(size=len(coded), at=one.at) for one in body.chunks[-1:]))
