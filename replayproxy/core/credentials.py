"""Live credentials in the place of recorded tokens: those that were given, and those that live answers hand out.

A token in a recorded request stands for a value that nobody kept. It is filled in by the name of its place (a header,
a cookie, a parameter, a JSON member), else by what a live answer gave where the recorded answer had that token.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import quote, unquote

from replayproxy.core.canonical import body_of, decoded
from replayproxy.core.known import Known
from replayproxy.core.redact import Redactor
from replayproxy.core.redact_body import Shape
from replayproxy.core.redact_token import TOKEN
from replayproxy.core.secretnames import kind_of_header
from replayproxy.core.values import Body, Exchange, Fields, Request, Response

VARIABLE = "REPLAYPROXY_CREDENTIAL_"

_BEFORE = re.compile(
    rb"""(?:["']([^"'\\]{1,80})\\*["']\s*:\s*(?:\\*["']|\[)|(?:^|[?&#])([^=&?#\s"']{1,80})=)[^"'&=]*\Z"""
)


def variable_of(name: str) -> str:
    """The environment variable that may hold the credential of that name."""
    return VARIABLE + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


class Lack(NamedTuple):
    """A place whose credential nobody gave: `kind` is header, cookie or member."""

    kind: str
    name: str
    exchange: int


class _Seen(Known):
    """Remembers what every token stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[bytes, bytes] = {}

    def learn(self, value: bytes, token: bytes, *, of_answer: bool, sure: bool) -> bool:
        """False: however many one message holds, each may have to be given."""
        self.values[token] = value
        super().learn(value, token, of_answer=of_answer, sure=sure)
        return False


class Credentials:
    """Those of one re-drive. `given`: value by name; names are compared without regard to case."""

    def __init__(self, given: Mapping[str, str], redactor: Redactor) -> None:
        self._given = {name.lower(): value.encode() for name, value in given.items()}
        self.redactor = redactor
        self._used: set[str] = set()
        self.tokens: dict[bytes, bytes] = {}  # recorded token -> live value

    def prepare(self, exchanges: Iterable[Exchange], lookup: Callable[[str], str | None]) -> list[Lack]:
        """Takes up what is given for these requests; gives what is lacking. `lookup`: of a name, from the variables."""
        lacks: dict[tuple[str, str], Lack] = {}
        handed: set[bytes] = set()
        late: list[tuple[bytes, Lack]] = []
        for exchange in exchanges:
            for kind, name, token, given in self._places(exchange.request, lookup):
                if given is not None:
                    self.tokens.setdefault(token, given)
                elif token not in handed:
                    late.append((token, Lack(kind, name, exchange.seq)))
            if exchange.response is not None:
                handed |= set(_tokens_of(exchange.response))
        for token, lack in late:
            if token not in self.tokens:
                lacks.setdefault((lack.kind, lack.name.lower()), lack)
        return list(lacks.values())

    def unused(self) -> list[str]:
        """The given names that no token of the prepared requests has."""
        return [name for name in self._given if name not in self._used]

    def values(self) -> dict[str, str]:
        """Recorded token to the live value's own, where they differ."""
        made = {token.decode(): self.redactor.token(value).decode() for token, value in self.tokens.items()}
        return {recorded: live for recorded, live in made.items() if recorded != live}

    # -- sending -----------------------------------------------------------------------------------------------------

    def fill(self, request: Request) -> Request:
        """The request with live values; where its body grew, with the right length. Tokens nobody knows stay."""
        return _Filling(self.tokens).request(request)

    def stand_for(self, request: Request) -> Request:
        """The request that `fill` was given, with the tokens of the live values: as it is kept and compared."""
        return _Filling({old: self.redactor.token(live) for old, live in self.tokens.items()}).request(request)

    # -- learning ----------------------------------------------------------------------------------------------------

    def learn(self, recorded: Response | None, live: Response | None, request: Request) -> None:
        """What a live answer gives where the recorded one has a token is that token's value from now on."""
        if recorded is None or live is None or self.redactor.keeps:
            return
        wanted = _named_tokens(recorded)
        if not wanted:
            return
        seen = _Seen()
        have = _named_tokens(self.redactor.response(live, request, seen))
        for place, tokens in wanted.items():
            for token, made in zip(tokens, have.get(place, ()), strict=False):
                if (value := seen.values.get(made)) is not None:
                    self.tokens[token] = value

    def _places(
        self, request: Request, lookup: Callable[[str], str | None]
    ) -> Iterator[tuple[str, str, bytes, bytes | None]]:
        """Kind, name, token, and the value given for that place, of every token in a request."""

        def given(name: str) -> bytes | None:
            found = self._given.get(name.lower())
            self._used.add(name.lower())
            if found is None and (held := lookup(name)) is not None:
                found = held.encode()
            return found

        for name, value in request.fields:
            text = name.decode("latin-1")
            kind = kind_of_header(name)
            if kind == "cookie":
                for pair in value.split(b";"):
                    cookie, _, inner = pair.strip().partition(b"=")
                    for match in TOKEN.finditer(inner):
                        called = cookie.decode("latin-1")
                        yield "cookie", called, match[0], given(called)
            elif kind == "authorization" and (basic := _basic(value)) is not None:
                for match in TOKEN.finditer(b":".join((basic[0], basic[2]))):
                    yield "header", text, match[0], _of_basic(given(text), user=match[0] == basic[0])
            else:
                for match in TOKEN.finditer(value):
                    whole = given(text)
                    yield "header", text, match[0], _bare(whole) if kind == "authorization" else whole
        for data in (request.target, _plain(request.fields, request.body)):
            for name_raw, token in _members(data):
                called = unquote(name_raw.decode("utf-8", "replace"))
                yield "member", called, token, given(called) if called else None


class _Filling:
    """Puts values in the place of tokens."""

    def __init__(self, values: Mapping[bytes, bytes]) -> None:
        self._values = values

    def request(self, request: Request) -> Request:
        fields = tuple((name, self._field(name, value)) for name, value in request.fields)
        target = self._text(request.target, _percent)
        body = self._body(request.body, request.fields)
        if body is not request.body and body is not None and request.body is not None:
            fields = tuple((n, b"%d" % body.size if n.lower() == b"content-length" else v) for n, v in fields)
        if (fields, target) == (request.fields, request.target) and body is request.body:
            return request
        return replace(request, fields=fields, target=target, body=body)

    def _field(self, name: bytes, value: bytes) -> bytes:
        kind = kind_of_header(name)
        if kind == "cookie":
            return b";".join(self._cookie(part) for part in value.split(b";"))
        if kind == "authorization" and (basic := _basic(value)) is not None:
            user, colon, password = basic
            new = self._raw(user) + colon + self._raw(password)
            return value.partition(b" ")[0] + b" " + base64.b64encode(new) if new != user + colon + password else value
        return self._text(value, _percent) if not kind and b"://" in value else self._raw(value)

    def _cookie(self, pair: bytes) -> bytes:
        name, equals, value = pair.partition(b"=")
        return name + equals + self._raw(value)

    def _raw(self, text: bytes) -> bytes:
        return TOKEN.sub(lambda match: self._values.get(match[0], match[0]), text)

    def _text(self, text: bytes, code: Callable[[bytes], bytes]) -> bytes:
        return TOKEN.sub(lambda match: code(self._values[match[0]]) if match[0] in self._values else match[0], text)

    def _body(self, body: Body | None, fields: Fields) -> Body | None:
        if body is None or not body.inline:
            return body
        plain = decoded(fields, body.inline)
        if plain is None or not TOKEN.search(plain):
            return body
        shape = Shape.of(fields)
        code = _percent if shape.form else _json if shape.json else bytes
        new = self._text(plain, code)
        if new == plain:
            return body
        if shape.coded:
            new = zlib.compress(new) if shape.coding == b"deflate" else gzip.compress(new, mtime=0)
        return body_of(new)


def _basic(value: bytes) -> tuple[bytes, bytes, bytes] | None:
    scheme, _, credential = value.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(credential.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, colon, password) if colon else None


def _bare(whole: bytes | None) -> bytes | None:
    """The credential of a value that may be given with its scheme or without."""
    return None if whole is None else whole.partition(b" ")[2] or whole


def _of_basic(given: bytes | None, *, user: bool) -> bytes | None:
    """The password (or the user) of what is given: `Basic ..`, `user:password`, or the password alone."""
    if given is None:
        return None
    name, colon, password = _basic(given) or given.partition(b":")
    if not colon:
        return name
    return name if user else password


def _plain(fields: Fields, body: Body | None) -> bytes:
    if body is None or not body.inline:
        return b""
    return decoded(fields, body.inline) or body.inline


def _members(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every token of a text with the name that stands before it, b"" where none does."""
    for match in TOKEN.finditer(data):
        before = _BEFORE.search(data[max(0, match.start() - 200) : match.start()])
        yield (before[1] or before[2]) if before else b"", match[0]


def _named_tokens(response: Response) -> dict[tuple[str, bytes], list[bytes]]:
    """The tokens of an answer by the name of their place, in order."""
    found: dict[tuple[str, bytes], list[bytes]] = {}
    for name, value in (*response.fields, *response.trailers):
        low = name.lower()
        place = low + b"/" + value.partition(b"=")[0].strip() if low == b"set-cookie" else low
        for match in TOKEN.finditer(value):
            found.setdefault(("field", place), []).append(match[0])
    for named, token in _members(_plain(response.fields, response.body)):
        found.setdefault(("body", named), []).append(token)
    return found


def _tokens_of(response: Response) -> Iterator[bytes]:
    for tokens in _named_tokens(response).values():
        yield from tokens


def _percent(value: bytes) -> bytes:
    return quote(value, safe="").encode()


def _json(value: bytes) -> bytes:
    return json.dumps(value.decode("utf-8", "replace"), ensure_ascii=False)[1:-1].encode()
