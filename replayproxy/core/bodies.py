"""A body as a comparison looks at it: a JSON tree, a multimap, the parts of an upload, events, lines, or bytes.

| content type | looked at as |
|---|---|
| JSON | a tree with exact numbers |
| application/x-www-form-urlencoded | a multimap: order between names ignored, within one name kept |
| multipart/form-data | its parts (name, file name, type, content); the boundary is no content |
| text/event-stream | its events (event, id, retry, data; data that is JSON as a tree); comments are no content |
| text, XML | lines |
| anything else, undecodable, larger than `VIEW_LIMIT`, or not what its type says | bytes |

Not captured, empty, and the JSON text `""` are three different things.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, digest, field, is_json_type, media_type, view
from replayproxy.core.multipart import first_boundary
from replayproxy.core.values import Body, Fields

_PLAIN = 1024 * 1024

TREES = frozenset({"json", "parts", "events"})


@dataclass(frozen=True, slots=True)
class Content:
    """`kind` is one of missing, empty, json, form, parts, events, text, bytes; `value` what that kind holds."""

    kind: str
    value: Any

    def __str__(self) -> str:
        return "not captured" if self.kind == "missing" else self.kind


def content(fields: Fields, body: Body | None) -> Content:
    """What a body is looked at as. Never raises."""
    if body is not None and body.inline and body.size <= _PLAIN and is_json_type(media_type(fields)):
        tree = _tree(body.inline)
        if tree is not None:
            return tree
    seen = view(fields, body)
    if seen.kind is Kind.BYTES and media_type(fields) == b"multipart/form-data" and seen.value is not None:
        parts = form_parts(field(fields, b"content-type") or b"", seen.value)
        return Content("bytes", seen.value) if parts is None else Content("parts", parts)
    if seen.kind is Kind.TEXT:
        try:
            text = seen.value.decode("utf-8")
        except UnicodeDecodeError:
            return Content("bytes", seen.value)
        if media_type(fields) == b"text/event-stream":
            return Content("events", events(text))
        return Content("text", text)
    return Content(str(seen.kind), seen.value)


def _tree(data: bytes) -> Content | None:
    """The short way to the tree of an uncoded JSON body: what nests too deeply is for `view` to see."""
    if data.count(b"{") + data.count(b"[") > jsonvalue.MAX_DEPTH or data[:2] == b"\x1f\x8b":
        return None
    try:
        return Content("json", jsonvalue.parse(data))
    except jsonvalue.NotJson:
        return None


def multimaps(
    a: tuple[tuple[bytes, bytes | None], ...], b: tuple[tuple[bytes, bytes | None], ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two lists of pairs as objects that a tree comparison can walk: a name that either side repeats holds a list."""
    left, right = _grouped(a), _grouped(b)
    repeated = {name for side in (left, right) for name, values in side.items() if len(values) > 1}
    return tuple(  # type: ignore[return-value]
        {name: values if name in repeated else values[0] for name, values in side.items()} for side in (left, right)
    )


def _grouped(pairs: tuple[tuple[bytes, bytes | None], ...]) -> dict[str, list[str | None]]:
    out: dict[str, list[str | None]] = {}
    for name, value in pairs:
        out.setdefault(_text(name), []).append(None if value is None else _text(value))
    return out


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def summary(data: bytes) -> dict[str, Any]:
    """Bytes as a value that can be compared and shown: how many, and their address."""
    return {"bytes": len(data), "digest": digest(data).hex()[:16]}


def form_parts(content_type: bytes, data: bytes) -> list[dict[str, Any]] | None:
    """The parts of a multipart body; None when it is malformed (no boundary, or it ends without its last one)."""
    boundary = first_boundary(content_type)
    if not boundary:
        return None
    mark = b"--" + boundary
    if data.startswith(mark):
        data = b"\r\n" + data
    # A boundary is one only at the beginning of a line and whole: a file may hold a longer one that begins like it.
    sections = re.split(rb"\r\n" + re.escape(mark) + rb"(--)?[ \t]*(?=\r\n|\Z)", data)
    if len(sections) < 3 or sections[-2] != b"--":
        return None
    parts = []
    for ended, section in zip(sections[1::2], sections[2::2], strict=True):
        if ended:
            break
        head, blank, inner = section.partition(b"\r\n\r\n")  # a part may have no header: then head is empty
        if not blank:
            return None
        parts.append(_part(head, inner))
    return parts


def _part(head: bytes, inner: bytes) -> dict[str, Any]:
    lines = [line.partition(b":") for line in head.split(b"\r\n") if line]
    fields: Fields = tuple((name.strip(), value.strip()) for name, _, value in lines)
    disposition = _text(field(fields, b"content-disposition") or b"")
    part: dict[str, Any] = {}
    for member, name in (("name", "name"), ("filename", "file name")):
        if match := re.search(rf'\b{member}="([^"]*)"', disposition):
            part[name] = match.group(1)
    if kind := field(fields, b"content-type"):
        part["type"] = _text(kind)
    try:
        part["content"] = inner.decode("utf-8")
    except UnicodeDecodeError:
        part["content"] = summary(inner)
    return part


def events(text: str) -> list[dict[str, Any]]:
    """The events of an event stream in order. One that the stream's end cut off is kept: it was on the wire."""
    found = []
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    for block in re.split(r"\n{2,}", plain):
        event = _event(block)
        if event:
            found.append(event)
    return found


def _event(block: str) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        if name in ("event", "id", "retry", "data"):
            value = value.removeprefix(" ")
            event[name] = f"{event[name]}\n{value}" if name == "data" and name in event else value
    if event.get("data", "")[:1] in ("{", "["):
        try:
            data = jsonvalue.parse(event["data"])
            jsonvalue.canonical(data)  # refuses what nests too deeply
            event["data"] = data
        except jsonvalue.NotJson:
            pass  # it stays the text that it is
    return event
