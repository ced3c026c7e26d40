"""Finds secrets in a text: a body, a message, a target, an error. Gives the spans; nothing else is touched.

| where | what is found |
|---|---|
| JSON and the like, at any depth, also inside a JSON string | the string of a member named like a credential |
| a URL, wherever it stands | the password of its user, a query parameter or fragment named like a credential |
| a form, a query | the value of a parameter named like a credential |
| multipart | the content of such a part |
| HTML, XML | such an input's or meta's value, such an element's text |
| anywhere | a secret that is known already, in one of the codings of `core.known` |

Numbers, booleans and null are left: a token in their place would not be their kind any more.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from replayproxy.core.known import Known
from replayproxy.core.redact_edit import Edit
from replayproxy.core.secretnames import is_secret_name, may_name

type Found = Callable[[bytes, bool], bytes]
"""Given a secret, plain, and whether it is surely one; gives what stands for it, and may remember it."""

_NAME = re.compile(rb"""["']([^"'\\\r\n]{1,80})\\*["']\s*:""")
_ESCAPED_NAME = re.compile(rb'"((?:[^"\\\r\n]|\\u00[0-9a-fA-F]{2}){1,200})"\s*:')
# A string's inside by its quote, where it stands as it is, and one level deep in another string.
_STRING = {q: re.compile(rb"(?:[^%b\\\r\n]|\\.)*" % q) for q in (b'"', b"'")}
_INNER = {
    q: re.compile(rb"(?:[^%b\\\r\n]|\\\\(?:\\\\|\\%b|[^%b\\])|\\[^%b\\\r\n])*" % (q, q, q, q)) for q in (b'"', b"'")
}
_DEEPER = {q: re.compile(rb"[^%b\\\r\n]*" % q) for q in (b'"', b"'")}
_ITEM = re.compile(rb'\s*"((?:[^"\\\r\n]|\\.)*)"\s*,?')
_PARAMETER = re.compile(rb"(?:[?&#]|&amp;|\\u0026)([^=&#?\s\"'<>\\]{1,80})=([^&#\s\"'<>\\]+)")
_USER = re.compile(rb"://([^/?#\s\"'<>@:\\]*):([^/?#\s\"'<>@\\]+)@")
_TAG = re.compile(rb"<(?:input|meta)\b[^>]{1,2000}>", re.IGNORECASE)
_ATTRIBUTE = re.compile(rb"""\b(name|id|value|content)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_ELEMENT = re.compile(rb"<(?:[A-Za-z_][\w.-]{0,40}:)?([A-Za-z_][\w.-]{0,80})(?:\s[^<>]{0,500})?>([^<>]+)</")


def authorization(value: bytes, found: Found) -> bytes:
    """The value of Authorization with its credential replaced: the scheme stays, and of Basic the user, too."""
    scheme, space, credential = value.partition(b" ")
    if not space:
        return found(value, True)
    plain = credential.strip()
    if scheme.lower() == b"basic" and (user := _basic(plain)) is not None:
        name, colon, password = user
        new = name + colon + found(password, True) if password else found(name, True) + colon
        if new == name + colon + password:
            return value
        found(plain, True)
        return scheme + space + base64.b64encode(new)
    at = credential.find(plain)
    return scheme + space + credential[:at] + found(plain, True) + credential[at + len(plain) :]


def _basic(credential: bytes) -> tuple[bytes, bytes, bytes] | None:
    try:
        text = base64.b64decode(credential, validate=True)
    except (binascii.Error, ValueError):
        return None
    user, colon, password = text.partition(b":")
    return (user, colon, password) if colon and (user or password) else None


def cookies(value: bytes, found: Found) -> bytes:
    """A Cookie header with each value replaced; names, order and spaces stay."""
    return b";".join(_cookie(part, found) for part in value.split(b";"))


def set_cookie(value: bytes, found: Found) -> bytes:
    """A Set-Cookie header with its value replaced; the attributes stay."""
    pair, semicolon, attributes = value.partition(b";")
    return _cookie(pair, found) + semicolon + attributes


def _cookie(pair: bytes, found: Found) -> bytes:
    name, equals, value = pair.partition(b"=")
    if not equals:
        return pair
    plain = value.strip()
    inner = plain[1:-1] if len(plain) > 1 and plain[:1] == plain[-1:] == b'"' else plain
    if not inner:
        return pair
    at = value.find(inner)
    # A cookie may be any setting: a word in one is no reason to blot it out elsewhere.
    sure = is_secret_name(name.strip().decode("latin-1"))
    return name + equals + value[:at] + found(inner, sure) + value[at + len(inner) :]


def by_name(name: str, value: bytes, found: Found) -> bytes:
    """What stands for the value of something with a secret name: an Authorization or a Cookie has parts."""
    last = name.replace("-", "_").lower().rpartition("_")[2]
    if last == "authorization":
        return authorization(value, found)
    if last == "cookie" and b"=" in value:
        return (set_cookie if "set" in name.lower() else cookies)(value, found)
    return found(value, False)


def in_text(data: bytes, found: Found, known: Known) -> list[Edit]:
    """Every span that holds a secret; they may overlap."""
    edits: list[Edit] = []
    if may_name(data) or b"\\u00" in data:
        low = data.lower()
        edits += _members(data, found)
        if b"=" in data:
            edits += _parameters(data, found)
        if b"<input" in low or b"<meta" in low:
            edits += _tags(data, found)
        if b"</" in low:
            edits += _elements(data, found)
    if b"://" in data and b"@" in data:
        for match in _USER.finditer(data):
            edits.append(Edit(*match.span(2), found(unquote_to_bytes(match[2]), True)))
    for form, new in known.forms:
        if form in data:
            edits += every(data, form, new)
    return edits


def every(data: bytes, form: bytes, new: bytes) -> Iterator[Edit]:
    at = data.find(form)
    while at >= 0:
        yield Edit(at, at + len(form), new)
        at = data.find(form, at + len(form))


@lru_cache(maxsize=1024)
def _member_named(raw: bytes) -> re.Pattern[bytes]:
    """A member of that name up to where its value begins. The name's own closing quote tells how deep the JSON lies:
    one backslash for each level of string around it."""
    return re.compile(rb"""(["'])%b(\\*)\1\s*:\s*(?:\2(["'])|(\[))""" % re.escape(raw))


def _members(data: bytes, found: Found) -> Iterator[Edit]:
    # The names first, all at once: few texts hold a secret one, and to look at each member costs ten times as much.
    names = set(_NAME.findall(data))
    if b"\\u00" in data:
        names |= set(_ESCAPED_NAME.findall(data))
    for raw in sorted(names):
        name = _plain(raw).decode("utf-8", "replace")
        if is_secret_name(name):
            for match in _member_named(raw).finditer(data):
                if match[4]:
                    yield from _items(data, match.end(), name, found)
                elif (edit := _member(data, match, name, found)) is not None:
                    yield edit


def _member(data: bytes, match: re.Match[bytes], name: str, found: Found) -> Edit | None:
    depth = len(match[2])
    text = _STRING if depth == 0 else _INNER if depth == 1 else _DEEPER
    inner = text[match[3]].match(data, match.end())
    raw = inner[0] if inner else b""
    if not raw:
        return None
    start = match.end()
    return Edit(start, start + len(raw), _string(raw, depth, name, found))


def _string(raw: bytes, depth: int, name: str, found: Found) -> bytes:
    if b"\\" not in raw:
        return by_name(name, raw, found)
    for _ in range(depth + 1):
        raw = _plain(raw)
    return found(raw, False)


def _items(data: bytes, at: int, name: str, found: Found) -> Iterator[Edit]:
    """The strings of a list."""
    while (match := _ITEM.match(data, at)) is not None:
        if match[1]:
            yield Edit(*match.span(1), _string(match[1], 0, name, found))
        at = match.end()


def _plain(raw: bytes) -> bytes:
    """The text of a JSON string; as it stands where it is none."""
    if b"\\" not in raw:
        return raw
    try:
        text = json.loads(b'"' + raw + b'"')
    except ValueError:
        return raw
    return str(text).encode("utf-8", "surrogatepass")


def _parameters(data: bytes, found: Found) -> Iterator[Edit]:
    at = 0
    while (match := _PARAMETER.search(data, at)) is not None:
        at = match.end(1)
        yield from _pair(match[1], match[2], match.start(2), found)


def _pair(
    name: bytes, value: bytes, at: int, found: Found, wanted: Callable[[str], bool] = is_secret_name
) -> Iterator[Edit]:
    plain = unquote_to_bytes(name.replace(b"+", b" ")).decode("utf-8", "replace")
    # Rails and PHP write user[password]=..
    if value and any(wanted(part) for part in (plain, plain.rpartition("[")[2].rstrip("]"))):
        yield Edit(at, at + len(value), found(unquote_to_bytes(value.replace(b"+", b" ")), False))


def in_pairs(data: bytes, found: Found, at: int = 0, wanted: Callable[[str], bool] = is_secret_name) -> Iterator[Edit]:
    """The parameters of a query or form that begins at `at`, by name."""
    if wanted is is_secret_name and not (may_name(data) or b"%" in data):
        return
    while at < len(data):
        end = data.find(b"&", at)
        end = len(data) if end < 0 else end
        equals = data.find(b"=", at, end)
        if equals > 0:
            yield from _pair(data[at:equals], data[equals + 1 : end], equals + 1, found, wanted)
        at = end + 1


def _tags(data: bytes, found: Found) -> Iterator[Edit]:
    for tag in _TAG.finditer(data):
        names: list[tuple[bytes, tuple[int, int]]] = []
        values: list[tuple[bytes, tuple[int, int]]] = []
        for match in _ATTRIBUTE.finditer(data, tag.start(), tag.end()):
            group = 2 if match[2] is not None else 3
            (names if match[1].lower() in (b"name", b"id") else values).append((match[group], match.span(group)))
        if any(is_secret_name(name.decode("utf-8", "replace")) for name, _ in names):
            yield from (Edit(at, end, found(value, False)) for value, (at, end) in values if value)


def _elements(data: bytes, found: Found) -> Iterator[Edit]:
    for match in _ELEMENT.finditer(data):
        if is_secret_name(match[1].decode()) and (value := match[2].strip()):
            at = match.start(2) + match[2].find(value)
            yield Edit(at, at + len(value), found(value, False))


def in_parts(data: bytes, boundary: bytes, found: Found) -> Iterator[Edit]:
    """The contents of the parts of a multipart body that are named like a credential."""
    mark = b"--" + boundary
    at = data.find(mark)
    while at >= 0:
        end = data.find(b"\r\n" + mark, at + len(mark))
        head = data.find(b"\r\n\r\n", at, end if end >= 0 else len(data))
        if head >= 0:
            name = re.search(rb'\bname="([^"\r\n]*)"', data[at:head])
            value = data[head + 4 : end if end >= 0 else len(data)]
            if name and value and is_secret_name(name[1].decode("utf-8", "replace")):
                yield Edit(head + 4, head + 4 + len(value), found(value, False))
        at = end + 2 if end >= 0 else -1
