"""Secrets in URLs, and in what is percent-encoded inside them: a text's parameters and users, a target's path.

A value that is a URL or JSON itself (`?next=https%3A%2F%2F..`, `payload=%7B%22token%22..`) is looked into as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote_to_bytes

from replayproxy.core.redact_edit import Edit
from replayproxy.core.secretnames import is_secret_name, may_name

type Found = Callable[[bytes, bool], bytes]

_PARAMETER = re.compile(rb"(?:&amp;|\\u0026|[?&#])([^=&#?\s\"'<>\\]{1,80})=")
_VALUE = re.compile(rb"[^&#\s\"'<>\\]+")
# In the path, or between parameters: /x;jsessionid=.., ?a=1;token=..
_SEMICOLON = re.compile(rb";([^=;/?#&\s]{1,80})=([^;/?#&\s]+)")
_SERVLET = re.compile(rb";(jsessionid|phpsessid)=([^;/?#&\s\"'<>\\,]+)", re.IGNORECASE)
# In a header: a list of pairs, or a URL with semicolons.
_LISTED = re.compile(rb"(?:\A|[,;])\s*([A-Za-z_][\w.-]{0,80})\s*=\s*(\"?)([^\s,;&\"]+)")
_USER = re.compile(rb"://([^/?#\s\"'<>@:\\]*):([^/?#\s\"'<>\\]+)@")
_LONE_USER = re.compile(rb"https?://([^/?#\s\"'<>@:\\]{16,}):?@", re.IGNORECASE)

_CODED_NAME = rb"((?:[^%%=&#?\s\"'<>\\]|%%(?!%b)[0-9a-f]{2}){1,80})"
_CODED_PARAMETER = re.compile(
    rb"%(?:3f|26|23)" + _CODED_NAME % b"3[df]|2[36]" + rb"%3d"
    rb"((?:[^%&#\s\"'<>\\]|%(?!2[2036]|3c)[0-9a-f]{2})+)",
    re.IGNORECASE,
)  # fmt: skip
_CODED_MEMBER = re.compile(
    rb"%22" + _CODED_NAME % b"22" + rb"%22(?:%20|\+)*(?:%3a|:)(?:%20|\+)*%22"
    rb"((?:[^%&#\s\"'<>\\]|%(?!22|5c)[0-9a-f]{2}|%5c%..)+)",
    re.IGNORECASE,
)  # fmt: skip
_CODED_USER = re.compile(
    rb"(?:%3a|:)(?:%2f|/)(?:%2f|/)[^%&=#\s\"'<>\\]*%3a((?:[^%&=#\s\"'<>\\/]|%(?!40|2f)[0-9a-f]{2})+)%40", re.IGNORECASE
)


def pair(
    name: bytes, value: bytes, at: int, found: Found, wanted: Callable[[str], bool] = is_secret_name
) -> Iterator[Edit]:
    """The edit of a parameter whose value stands at `at`."""
    plain = unquote_to_bytes(name.replace(b"+", b" ")).decode("utf-8", "replace")
    # Rails and PHP write user[password]=..
    if value and any(wanted(part) for part in (plain, plain.rpartition("[")[2].rstrip("]"))):
        yield Edit(at, at + len(value), found(unquote_to_bytes(value.replace(b"+", b" ")), False))


def _as_it_is(value: bytes, _sure: bool) -> bytes:
    return value


def parameters(data: bytes, found: Found) -> Iterator[Edit]:
    """The parameters of every query in a text. To be asked where `may_name` holds."""
    at = 0
    while (match := _PARAMETER.search(data, at)) is not None:
        at = match.end()
        # The value only behind such a name: it may be all the rest of a text that has thousands of names.
        if any(pair(match[1], b"x", 0, _as_it_is)) and (value := _VALUE.match(data, at)) is not None:
            for edit in pair(match[1], value[0], at, found):
                at = edit.end
                yield edit
    for match in _SERVLET.finditer(data):
        yield from pair(match[1], match[2], match.start(2), found)


def coded(data: bytes, found: Found) -> Iterator[Edit]:
    """What is percent-encoded: parameters and users of a URL, members of JSON."""
    if may_name(data):
        for pattern in (_CODED_PARAMETER, _CODED_MEMBER):
            for match in pattern.finditer(data):
                if is_secret_name(unquote_to_bytes(match[1]).decode("utf-8", "replace")):
                    yield Edit(*match.span(2), found(unquote_to_bytes(unquote_to_bytes(match[2])), False))
    for match in _CODED_USER.finditer(data):
        yield Edit(*match.span(1), found(unquote_to_bytes(match[1]), True))


def users(data: bytes, found: Found) -> Iterator[Edit]:
    """The password of each URL's user; of one without a password a user that is no name."""
    for match in _USER.finditer(data):
        yield Edit(*match.span(2), found(unquote_to_bytes(match[2]), True))
    for match in _LONE_USER.finditer(data):
        yield Edit(*match.span(1), found(unquote_to_bytes(match[1]), True))


def in_target(target: bytes, found: Found) -> Iterator[Edit]:
    """What of a request's target is neither its query's pairs nor a URL in it."""
    if b";" in target:
        for match in _SEMICOLON.finditer(target):
            yield from pair(match[1], match[2], match.start(2), found)


def in_list(value: bytes, found: Found) -> Iterator[Edit]:
    """The pairs of a header field's value: baggage, Forwarded."""
    if b"=" in value and may_name(value):
        for match in _LISTED.finditer(value):
            yield from pair(match[1], match[3], match.start(3), found)
