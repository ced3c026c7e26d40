"""Where a rule's value stands: the texts that a head, a body or a message holds at a rule's source. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from replayproxy.core import bodies, jsonvalue
from replayproxy.core.canonical import media_type
from replayproxy.core.decoding import scalar
from replayproxy.core.extractrule import ExtractRule
from replayproxy.core.values import Fields

BLANK = b" \t"


def in_head(rule: ExtractRule, target: bytes, fields: Fields) -> Iterable[str]:
    """What the rule finds in the head of a request, undecoded."""
    return _HEAD[rule.source](rule, target, fields)


def in_answer(rule: ExtractRule, fields: Fields) -> Iterable[str]:
    """What the rule finds in the head of an answer, undecoded."""
    if rule.source == "answer-header":
        return _header(rule, fields)
    return _cookies(rule, (v.partition(b";")[0] for n, v in fields if n.lower() == b"set-cookie"))


def _header(rule: ExtractRule, fields: Fields) -> list[str]:
    wanted = str(rule.wanted).lower().encode()
    return [_utf8(value.strip(BLANK)) for name, value in fields if name.lower() == wanted]


def _api_key(rule: ExtractRule, fields: Fields) -> list[str]:
    """The credential without its scheme."""
    return [text.partition(" ")[2].strip() or text for text in _header(rule, fields)]


def _cookies(rule: ExtractRule, pairs: Iterable[bytes]) -> list[str]:
    assert rule.pattern is not None
    found = []
    for pair in pairs:
        name, equals, value = _utf8(pair.strip(BLANK)).partition("=")
        if equals and value and rule.pattern.match(name):
            found.append(value.strip('"'))
    return found


def _cookie(rule: ExtractRule, target: bytes, fields: Fields) -> list[str]:
    return _cookies(rule, (pair for n, v in fields if n.lower() == b"cookie" for pair in v.split(b";")))


def _baggage(rule: ExtractRule, target: bytes, fields: Fields) -> list[str]:
    members = (member for n, v in fields if n.lower() == b"baggage" for member in v.split(b","))
    pairs = (_utf8(member.partition(b";")[0]).partition("=") for member in members)
    return [value.strip() for name, equals, value in pairs if equals and name.strip() == rule.wanted]


def _path(rule: ExtractRule, target: bytes, fields: Fields) -> list[str]:
    path = _utf8(target.partition(b"?")[0])
    if rule.pattern is not None:
        match = rule.pattern.match(path)
        return [match[1]] if match else []
    segments = path.split("/")[1:]
    at = int(rule.wanted) - 1
    return [segments[at]] if at < len(segments) and segments[at] else []


def _query(rule: ExtractRule, target: bytes, fields: Fields) -> list[str]:
    pairs = (_utf8(part).partition("=") for part in target.partition(b"?")[2].split(b"&"))
    return [value for name, equals, value in pairs if equals and name == rule.wanted]


_HEAD: dict[str, Callable[[ExtractRule, bytes, Fields], Iterable[str]]] = {
    "cookie": _cookie,
    "header": lambda rule, target, fields: _header(rule, fields),
    "api-key": lambda rule, target, fields: _api_key(rule, fields),
    "baggage": _baggage,
    "path": _path,
    "query": _query,
    "": lambda rule, target, fields: ("true",),
}


def documents(fields: Fields, plain: bytes) -> list[Any]:
    """The JSON documents of a decoded body: one, or that of each event of an event stream."""
    if media_type(fields) == b"text/event-stream":
        read = bodies.events(plain.decode("utf-8", "replace"))
        return [event["data"] for event in read if isinstance(event.get("data"), dict | list)]
    value = parsed(plain)
    return [] if value is None else [value]


def parsed(text: bytes) -> Any:
    """A JSON object or array; None for anything else."""
    if text.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return jsonvalue.parse(text)
    except jsonvalue.NotJson:
        return None


def at_pointer(value: Any, pointer: str) -> list[str]:
    """The scalar that stands there, as text; empty where there is none."""
    try:
        text = scalar(jsonvalue.resolve(value, pointer))
    except KeyError:
        return []
    return [] if text is None else [text]


def _utf8(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
