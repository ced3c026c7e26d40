"""The values in texts and bodies that could not be met by accident: at least 46 bits of chance in each.

A value may be changed on its way from one episode to another. Looked through are percent-encoding, base64, another
case, other dashes in a uuid, and a uuid inside a longer name. What is hashed, encrypted or cut shorter than 46 bits
is not found.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, View, by_name, split_query, split_target
from replayproxy.core.opaque import is_opaque
from replayproxy.core.tokens import FRESH_BITS, bits
from replayproxy.core.values import Exchange

PERCENT, BASE64, INSIDE = "percent-encoded", "in base64", "inside a longer name"
"""How a value was changed; "" where it stood as it is."""

LONG_TEXT = 20_000
SHORT_TEXT = 300
SHORTEST = 10

_PIECE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~+/=:-]{9,}")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}\Z")
_PIECES_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_HEX = frozenset("0123456789abcdef")
_HEADS = (b"authorization", b"cookie", b"x-api-key", b"mcp-session-id", b"if-match", b"idempotency-key")

type Path = tuple[str | int, ...]


class Token(NamedTuple):
    """A value, where it stood, and how it was changed there."""

    value: str
    path: Path = ()
    form: str = ""


@lru_cache(maxsize=65536)
def key_of(value: str) -> str:
    """One spelling for a uuid with and without dashes, and for a value that stays one in lower case."""
    low = value.lower()
    bare = low.replace("-", "")
    if len(bare) == 32 and _HEX.issuperset(bare):
        return bare
    return low if low != value and bits(low) >= FRESH_BITS else value


def in_text(text: str) -> Iterator[str]:
    """The whole text if it is one such value, else the pieces of it that are."""
    if len(text) < SHORTEST:
        return
    if is_opaque(text) and "/" not in text:
        yield text
    elif len(text) <= LONG_TEXT:
        for piece in _PIECE.findall(text):
            for part in piece.split("/"):
                bare = part.strip(".:=~+")
                if len(bare) >= SHORTEST and is_opaque(bare):
                    yield bare


def of_text(text: str, path: Path = ()) -> Iterator[Token]:
    """Every such value of a text, as it stands and undisguised."""
    found = _in_short(text) if len(text) <= SHORT_TEXT else _all(text)
    for value, form in found:
        yield Token(value, path, form)


@lru_cache(maxsize=32768)
def _in_short(text: str) -> tuple[tuple[str, str], ...]:
    """Most texts of a run are shown again and again."""
    return tuple(_all(text))


def _all(text: str) -> Iterator[tuple[str, str]]:
    for value in in_text(text):
        yield value, ""
        if not _UUID.fullmatch(value):
            yield from ((inner, INSIDE) for inner in _inside(value))
            yield from ((inner, BASE64) for inner in _decoded(value))
    if len(text) <= LONG_TEXT:
        if "/" in text or "+" in text:
            yield from ((inner, BASE64) for inner in _decoded(text))
        if "%" in text and (plain := unquote(text)) != text:
            yield from ((value, PERCENT) for value in _parts(plain))


def _inside(value: str) -> Iterator[str]:
    """The uuid in `user-UUID-v2`, and the value in `id:VALUE` and `token=VALUE`."""
    found = _UUID.search(value)
    if found is not None and len(found.group()) < len(value):
        yield found.group()
    elif "=" in value or ":" in value:
        yield from (part for part in re.split("[=:]", value) if part != value and is_opaque(part))


def _decoded(value: str) -> tuple[str, ...]:
    """The values of the text that a base64 token holds."""
    return tuple(_parts(_plain(value) or ""))


def _parts(text: str) -> Iterator[str]:
    for value in in_text(text):
        yield value
        yield from _inside(value)


def _plain(value: str) -> str | None:
    bare = value.rstrip("=")
    if not _ENCODED.match(value) or len(bare) % 4 == 1 or len(value) > LONG_TEXT:
        return None
    try:
        plain = base64.b64decode(bare.replace("-", "+").replace("_", "/") + "=" * (-len(bare) % 4)).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return plain if plain.isprintable() else None


def decoded_pieces(text: str) -> Iterator[str]:
    """What the pieces of a text hold that are base64 of a text."""
    for match in _PIECES_ENCODED.finditer(text[: 50 * LONG_TEXT]):
        plain = _plain(match.group())
        if plain is not None:
            yield plain


def tokens(seen: View) -> Iterator[Token]:
    """The values of a body."""
    if seen.kind is Kind.JSON:
        yield from _in_tree(seen.value, ())
    else:
        for text, path in texts(seen):
            yield from of_text(text, path)


def texts(seen: View) -> Iterator[tuple[str, Path]]:
    """The texts of a body that is no JSON."""
    if seen.kind is Kind.FORM:
        for name, value in seen.value:
            yield (value or b"").decode("utf-8", "replace"), (name.decode("utf-8", "replace"),)
    elif seen.kind is Kind.TEXT and len(seen.value) <= LONG_TEXT:
        yield seen.value.decode("utf-8", "replace"), ()


def _in_tree(tree: Any, at: Path) -> Iterator[Token]:
    for path, leaf in jsonvalue.leaves(tree, at):
        for name in path[len(at) :]:
            if isinstance(name, str) and len(name) >= 12 and is_opaque(name):
                yield Token(name, path)
        if isinstance(leaf, str) and len(leaf) >= SHORTEST:
            if leaf[0] in "{[" and len(leaf) <= LONG_TEXT:
                try:
                    yield from _in_tree(jsonvalue.parse(leaf), path)
                    continue
                except jsonvalue.NotJson:
                    pass  # prose that begins with a bracket
            yield from of_text(leaf, path)
        elif isinstance(leaf, int) and not isinstance(leaf, bool) and leaf > 1 << 46 and is_opaque(str(leaf)):
            yield Token(str(leaf), path)


def all_texts(seen: View) -> Iterator[tuple[str, Path]]:
    """Every text of a body, member names and bytes of unknown kind too, with its place."""
    if seen.kind is Kind.JSON:
        for path, leaf in jsonvalue.leaves(seen.value):
            yield from ((name, path) for name in path if isinstance(name, str) and len(name) > SHORTEST)
            if isinstance(leaf, str):
                yield leaf, path
    elif seen.kind is Kind.FORM:
        yield from ((unquote(text.replace("+", " ")), path) for text, path in texts(seen))
    elif isinstance(seen.value, bytes):
        yield seen.value.decode("utf-8", "replace"), ()


def in_head(exchange: Exchange) -> Iterator[str]:
    """The values in a request's target, and in what it carries for credentials."""
    path, query = split_target(exchange.request.target)
    yield from (token.value for token in of_text(path.decode("utf-8", "replace")))
    for _, value in split_query(query or b""):
        yield from (token.value for token in of_text((value or b"").decode("utf-8", "replace")))
    fields = by_name(exchange.request.fields)
    for name in _HEADS:
        for field_value in fields.get(name, ()):
            text = field_value.decode("utf-8", "replace")
            yield from in_text(text)
            for part in re.split(r"[;,\s=]+", text):
                yield from in_text(part)
