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
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from replayproxy.core.known import SHORTEST, Known
from replayproxy.core.redact_edit import Edit
from replayproxy.core.redact_url import coded, pair, parameters, users
from replayproxy.core.secretnames import is_secret_name, may_name

_FEW = 32
_SHORT = 200

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
_CONST = rb"(?:null|true|false|-?[0-9][0-9.eE+-]*)(?=[\s,\]])"
_ITEM = re.compile(rb"""[\s,\[]*(?:"((?:[^"\\\r\n]|\\.)*)"|'((?:[^'\\\r\n]|\\.)*)'|%b)""" % _CONST)
_INNER_ITEM = re.compile(
    rb"""(?:[\s,\[]|\\[nrt])*(?:\\"((?:[^"\\\r\n]|\\\\(?:\\\\|\\"|[^"\\])|\\[^"\\\r\n])*)\\"|%b)""" % _CONST
)
_DEEPER_ITEM = re.compile(rb"""(?:[\s,\[]|\\+[nrt])*(?:\\{2,}"([^"\\\r\n]*)\\{2,}"|%b)""" % _CONST)
_TAG = re.compile(rb"""<(?:input|meta)\b(?:[^<>"']|"[^"<]{0,8000}"|'[^'<]{0,8000}'){1,2000}+>""", re.IGNORECASE)
_AREA = re.compile(rb"<textarea\b([^<>]{1,2000})>([^<]+)", re.IGNORECASE)
_ATTRIBUTE = re.compile(rb"""\b(name|id|value|content)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>=`]+))""", re.IGNORECASE)
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_PART_NAME = re.compile(rb"""[;\s]name\s*=\s*(?:"([^"\r\n]*)"|'([^'\r\n]*)'|([^\s;"']+))""", re.IGNORECASE)
_ELEMENT = re.compile(
    rb"<(?:[A-Za-z_][\w.-]{0,40}:)?([A-Za-z_][\w.-]{0,80})(?:\s[^<>]{0,500})?>(?:<!\[CDATA\[([^<>]+)\]\]>|([^<>]+))</"
)
_CREDENTIAL = re.compile(
    rb"\bauthorization[\\\"'\]\s]{0,6}[:=,][\\\"'\s]{0,8}(?:bearer|basic|token|digest|negotiate|bot)\s+"
    rb"([^\s\"',;<>\\]{8,})",
    re.IGNORECASE,
)
# What somebody types into a shell: curl -u user:password
_CURL = re.compile(
    rb"\bcurl\b[^\r\n]{0,2000}?\s(?:-u|-U|--user|--proxy-user)(?:\s{1,4}|=)?\\?[\"']?([^\s:\"'\\]{1,200}):([^\s\"'\\]+)"
)
# {token: "..."} and token="..." of a script, GraphQL, an attribute: an unquoted name, a quoted value that is no word.
_ASSIGNED = re.compile(
    rb"""(?<![\w"'\\$.-])([A-Za-z_][\w-]{1,80})\s{0,4}[:=]\s{0,4}(\\*)(["'])([^"'\\\r\n${}]{8,4096})\2\3"""
)

# What stands in every such place; `_ASSIGNED` alone tries each word of a text, at ten times the cost.
_MAY_ASSIGN = re.compile(rb"""[:=](?<=[\w\s-].)\s{0,4}\\*["']""", re.DOTALL)

_FOLDED = re.compile(rb",(?=\s*[^\s;,=\"]+=)")
_ATTRIBUTES = frozenset(
    [b"", b"expires", b"max-age", b"domain", b"path", b"secure", b"httponly", b"samesite", b"partitioned", b"priority",
     b"version", b"comment"]
)  # fmt: skip


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
    """A Set-Cookie header with its values replaced; the attributes stay. Some fold several cookies into one field."""
    return b",".join([_one_set(one, found) for one in _FOLDED.split(value)])


def _one_set(value: bytes, found: Found) -> bytes:
    first, *rest = value.split(b";")
    # What is no attribute belongs to a value that holds a semicolon.
    known = [one if one.partition(b"=")[0].strip().lower() in _ATTRIBUTES else _cookie(one, found) for one in rest]
    return b";".join([_cookie(first, found), *known])


def _cookie(pair: bytes, found: Found) -> bytes:
    name, equals, value = pair.partition(b"=")
    if not equals:
        # To a browser it is a cookie without a name; else the rest of a value that holds a semicolon, or a flag.
        if len(pair.strip()) < SHORTEST:
            return pair
        name, value = b"", pair
    plain = value.strip()
    inner = plain[1:-1] if len(plain) > 1 and plain[:1] == plain[-1:] == b'"' else plain
    if not inner or inner == b'"':
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


def is_dull(data: bytes) -> bool:
    """Whether a short text holds nothing that `in_text` looks at, but for what is known. True is certain."""
    return len(data) <= _SHORT and _is_dull(data)


@lru_cache(maxsize=4096)
def _is_dull(data: bytes) -> bool:
    return not (
        may_name(data) or b"\\u00" in data or (b"://" in data and b"@" in data) or b"curl" in data or b"%3" in data
        or b"%22" in data
    )  # fmt: skip


def in_text(data: bytes, found: Found, known: Known) -> list[Edit]:
    """Every span that holds a secret; they may overlap."""
    edits: list[Edit] = []
    if may_name(data) or b"\\u00" in data:
        low = data.lower()
        edits += _members(data, found)
        edits += _assigned(data, low, found)
        if b"=" in data:
            edits += parameters(data, found)
        if b"<input" in low or b"<meta" in low or b"<textarea" in low:
            edits += _tags(data, found)
        if b"</" in low:
            edits += _elements(data, found)
    if b"://" in data and b"@" in data:
        edits += users(data, found)
    if b"curl" in data:
        edits += (Edit(*match.span(2), found(match[2], True)) for match in _CURL.finditer(data))
    if b"%3" in data or b"%22" in data:
        edits += coded(data, found)
    for form, new in known.forms:
        if form in data:
            edits += every(data, form, new)
    return edits


def every(data: bytes, form: bytes, new: bytes) -> Iterator[Edit]:
    """An edit for each place where `form` stands, without overlaps."""
    at = data.find(form)
    while at >= 0:
        yield Edit(at, at + len(form), new)
        at = data.find(form, at + len(form))


@lru_cache(maxsize=1024)
def _member_named(raw: bytes | None) -> re.Pattern[bytes]:
    """A member of that name (None: of any) up to where its value begins. The name's own closing quote tells how deep
    the JSON lies: one backslash for each level of string around it."""
    name = rb"""(?:[^"'\\\r\n]|\\u00[0-9a-fA-F]{2}){1,80}""" if raw is None else re.escape(raw)
    return re.compile(rb"""(["'])(%b)(\\*)\1\s*:\s*(?:\3(["'])|(\[))""" % name)


def _members(data: bytes, found: Found) -> Iterator[Edit]:
    # The names first, all at once: few texts hold a secret one, and to look at each member costs ten times as much.
    names = set(_NAME.findall(data))
    if b"\\u00" in data:
        names |= set(_ESCAPED_NAME.findall(data))
    named = {raw: name for raw, name in sorted([(raw, _secret_name(raw)) for raw in names]) if name}
    if len(named) > _FEW:  # each would be looked for in all of the text
        every: Iterable[tuple[str, re.Match[bytes]]] = (
            (named[match[2]], match) for match in _member_named(None).finditer(data) if match[2] in named
        )
    else:
        every = ((name, match) for raw, name in named.items() for match in _member_named(raw).finditer(data))
    for name, match in every:
        if match[5]:
            yield from _items(data, match.end(), len(match[3]), name, found)
        elif (edit := _member(data, match, name, found)) is not None:
            yield edit


@lru_cache(maxsize=4096)
def _secret_name(raw: bytes) -> str:
    """The name that stands so in JSON, if it is a credential's; else nothing."""
    name = _plain(raw).decode("utf-8", "replace")
    return name if is_secret_name(name) else ""


def _member(data: bytes, match: re.Match[bytes], name: str, found: Found) -> Edit | None:
    depth = len(match[3])
    text = _STRING if depth == 0 else _INNER if depth == 1 else _DEEPER
    inner = text[match[4]].match(data, match.end())
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


def _items(data: bytes, at: int, depth: int, name: str, found: Found) -> Iterator[Edit]:
    """The strings of a list, which stands `depth` strings deep."""
    item = (_ITEM, _INNER_ITEM, _DEEPER_ITEM)[min(depth, 2)]
    while (match := item.match(data, at)) is not None:
        if match.lastindex and match[match.lastindex]:
            yield Edit(*match.span(match.lastindex), _string(match[match.lastindex], depth, name, found))
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


def in_pairs(data: bytes, found: Found, at: int = 0, wanted: Callable[[str], bool] = is_secret_name) -> Iterator[Edit]:
    """The parameters of a query or form that begins at `at`, by name."""
    if wanted is is_secret_name and not (may_name(data) or b"%" in data):
        return
    while at < len(data):
        end = data.find(b"&", at)
        end = len(data) if end < 0 else end
        equals = data.find(b"=", at, end)
        if equals > 0:
            yield from pair(data[at:equals], data[equals + 1 : end], equals + 1, found, wanted)
        at = end + 1


def _tags(data: bytes, found: Found) -> Iterator[Edit]:
    for tag in _TAG.finditer(data):
        names: list[tuple[bytes, tuple[int, int]]] = []
        values: list[tuple[bytes, tuple[int, int]]] = []
        for match in _ATTRIBUTE.finditer(data, tag.start(), tag.end()):
            group = next(number for number in (2, 3, 4) if match[number] is not None)
            (names if match[1].lower() in (b"name", b"id") else values).append((match[group], match.span(group)))
        if any(is_secret_name(name.decode("utf-8", "replace")) for name, _ in names):
            yield from (Edit(at, end, found(value, False)) for value, (at, end) in values if value)
    for area in _AREA.finditer(data):
        names = [(next(filter(None, one.groups()[1:]), b""), one.span()) for one in _ATTRIBUTE.finditer(area[1])]
        if any(is_secret_name(name.decode("utf-8", "replace")) for name, _ in names):
            yield Edit(*area.span(2), found(area[2], False))


def _assigned(data: bytes, low: bytes, found: Found) -> Iterator[Edit]:
    if _MAY_ASSIGN.search(data) is not None:
        for match in _ASSIGNED.finditer(data):
            name = match[1].decode().removeprefix("data-")
            if is_secret_name(name) and re.search(rb"[0-9]", match[4]):
                yield Edit(*match.span(4), by_name(name, match[4], found))
    if b"authorization" in low:
        for match in _CREDENTIAL.finditer(data):
            yield Edit(*match.span(1), found(match[1], True))


def _elements(data: bytes, found: Found) -> Iterator[Edit]:
    for match in _ELEMENT.finditer(data):
        group = 2 if match[2] else 3
        if is_secret_name(match[1].decode()) and (value := match[group].strip()):
            at = match.start(group) + match[group].find(value)
            yield Edit(at, at + len(value), found(value, False))


def in_parts(data: bytes, boundary: bytes, found: Found) -> Iterator[Edit]:
    """The contents of the parts of a multipart body that are named like a credential, and their heads' fields."""
    mark = b"--" + boundary
    at = data.find(mark)
    while at >= 0:
        end = data.find(b"\n" + mark, at + len(mark))
        stop = end if end >= 0 else len(data)
        if (head := _HEAD_END.search(data, at, stop)) is not None:
            yield from _part(data, at, head, stop - (data[stop - 1 : stop] == b"\r" and end >= 0), found)
        at = end + 1 if end >= 0 else -1


def _part(data: bytes, at: int, head: re.Match[bytes], stop: int, found: Found) -> Iterator[Edit]:
    name = _PART_NAME.search(data, at, head.start())
    value = data[head.end() : stop]
    if name and value:
        text = next(filter(None, name.groups()), b"").decode("utf-8", "replace")
        if is_secret_name(text) or is_secret_name(text.rpartition("[")[2].rstrip("]")):
            yield Edit(head.end(), head.end() + len(value), found(value, False))
