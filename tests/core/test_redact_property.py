"""Whatever is sent: what was no secret stays byte-equal, redaction is idempotent, and lengths fit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from replayproxy.core import redact_body, redact_text
from replayproxy.core.canonical import body_of
from replayproxy.core.redact import TOKEN, Known, Redactor
from replayproxy.core.redact_body import OVERLAP, WINDOW, Shape
from replayproxy.core.values import Chunk, Request

R = Redactor(b"k" * 32)

SECRET_NAMES = st.sampled_from(
    ["password", "api_key", "apiKey", "access-token", "client_secret", "token", "X-CSRF-Token"]
)
PLAIN_NAMES = st.sampled_from(["id", "name", "owner", "next_page", "tokens_used", "key", "idempotency_key", "signal"])
# No quote, colon or the like: a text that looks like a credential would rightly be one.
WORDS = st.text("abcXYZ0189-._~ é日", max_size=12)
SECRETS = st.text('abcXYZ0189-._~+/=%"\\é日 ', min_size=1, max_size=24)
LEAVES = st.one_of(WORDS, st.integers(), st.booleans(), st.none())


def trees() -> st.SearchStrategy[Any]:
    """A JSON value in which each secret is marked: a tuple of one text."""
    pairs = lambda children: st.lists(  # noqa: E731
        st.one_of(
            st.tuples(PLAIN_NAMES, children), st.tuples(SECRET_NAMES, SECRETS.map(lambda text: (text,)))
        ), max_size=4,
    )  # fmt: skip
    return st.recursive(LEAVES, lambda c: st.one_of(st.lists(c, max_size=3), pairs(c).map(dict)), max_leaves=12)


def filled(tree: Any, fill: Any) -> Any:
    if isinstance(tree, tuple):
        return fill(tree[0])
    if isinstance(tree, dict):
        return {name: filled(value, fill) for name, value in tree.items()}
    return [filled(value, fill) for value in tree] if isinstance(tree, list) else tree


def as_token(text: str) -> str:
    return R.token(text.encode()).decode()


@given(trees(), st.sampled_from([None, 1]), st.booleans())
def test_of_json_only_the_secrets_change(tree: Any, indent: int | None, ascii_only: bool) -> None:
    raw = json.dumps(filled(tree, str), indent=indent, ensure_ascii=ascii_only).encode()
    wanted = json.dumps(filled(tree, as_token), indent=indent, ensure_ascii=ascii_only).encode()
    asked = Request(
        method=b"POST", target=b"/", version=b"HTTP/1.1", body=body_of(raw),
        fields=((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(raw))),
    )  # fmt: skip
    clean = R.request(asked, _forgetful())
    assert clean.body is not None
    assert clean.body.inline == wanted
    assert clean.fields == ((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(wanted)))
    assert R.request(clean) == clean


class _Forgetful(Known):
    """Learns nothing: a secret that happens to stand elsewhere, too, is another test's matter."""

    def learn(self, value: bytes, token: bytes, *, of_answer: bool, sure: bool) -> None:
        del value, token, of_answer, sure


def _forgetful() -> Known:
    return _Forgetful()


@given(st.binary(max_size=400), st.lists(st.integers(1, 50), max_size=8))
def test_any_bytes_at_all_come_through_and_again(data: bytes, sizes: list[int]) -> None:
    chunks, left = [], len(data)
    for at, size in enumerate(sizes):
        if left:
            chunks.append(Chunk(size=min(size, left), at=at))
            left -= chunks[-1].size
    if left:
        chunks.append(Chunk(size=left, at=99))
    asked = Request(
        method=b"POST", target=b"/?" + data.replace(b"\n", b""), version=b"HTTP/1.1", fields=((b"X", data),),
        body=replace(body_of(data), chunks=tuple(chunks)),
    )  # fmt: skip
    clean = R.request(asked)
    assert clean.body is not None
    assert sum(chunk.size for chunk in clean.body.chunks) == clean.body.size
    assert all(chunk.size for chunk in clean.body.chunks)
    assert R.request(clean) == clean


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=30), st.booleans()), max_size=20))
def test_equal_values_have_equal_tokens_and_others_others(values: list[tuple[bytes, bool]]) -> None:
    known = Known()
    seen: dict[bytes, bytes] = {}
    for value, _ in values:
        token = R.token(value)
        assert TOKEN.fullmatch(token)
        assert seen.setdefault(value, token) == token
    assert len(set(seen.values())) == len(seen)
    assert not known.forms


@example([4096], 290805, 4097)
@example([4096], 290810, 4095)
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(OVERLAP // 8, 3 * WINDOW), min_size=1, max_size=6),
    st.integers(0, 2 * WINDOW),
    st.integers(1, OVERLAP // 2),
)
def test_a_body_too_large_to_hold_is_redacted_across_its_windows(sizes: list[int], before: int, size: int) -> None:
    secret = b"S" * size
    raw = b"." * before + b'{"token": "%b"}' % secret + b"." * 3 * WINDOW
    stretch = R.stretch((), of_answer=True)
    assert not Shape.of(()).coded
    out, at, number = [], 0, 0
    while at < len(raw):
        step = sizes[number % len(sizes)]
        out += stretch.feed(raw[at : at + step], number)
        at, number = at + step, number + 1
    out += stretch.end()
    assert b"".join(piece for piece, _ in out) == raw.replace(secret, R.token(secret))
    assert [instant for _, instant in out] == sorted(instant for _, instant in out if instant is not None)


# What is done to be quick agrees with what it is done for.

TELLING = st.sampled_from(
    [b"token", b"pass", b"authorization", b"api_key", b"signature", b"curl -u a:", b"http://", b"@", b"%3Ftoken%3D",
     b"%22", b"\\u0074oken", b"=", b":", b"'", b'"', b"\\", b" ", b"\n", b"-", b"_", b"a1", b"x9x9x9x9", b"<input",
     b"Bearer ", b"\0"]
)  # fmt: skip
TEXTS = st.lists(TELLING | st.binary(max_size=3), max_size=14).map(b"".join)


@settings(max_examples=1000)
@given(TEXTS)
def test_where_nothing_can_be_assigned_nothing_is(data: bytes) -> None:
    if redact_text._MAY_ASSIGN.search(data) is None:
        assert redact_text._ASSIGNED.search(data) is None
    if b"authorization" not in data.lower():
        assert redact_text._CREDENTIAL.search(data) is None


@settings(max_examples=300)
@given(
    st.sampled_from(["token", "my-key", "a_b"]), st.text(" \t\n\r\f\v", max_size=4), st.sampled_from([":", "="]),
    st.text(" \t\n", max_size=4), st.sampled_from(["", "\\", "\\\\"]), st.sampled_from("'\""),
)  # fmt: skip
def test_what_is_assigned_is_never_passed_over(
    name: str, space: str, sign: str, more: str, depth: str, quote: str
) -> None:
    data = f"{name}{space}{sign}{more}{depth}{quote}x9x9x9x9{depth}{quote}".encode()
    assert redact_text._ASSIGNED.search(data) is not None
    assert redact_text._MAY_ASSIGN.search(data) is not None


@settings(max_examples=1000)
@given(TEXTS)
def test_in_a_dull_text_nothing_is_found(data: bytes) -> None:
    if redact_text.is_dull(data):
        assert redact_text.in_text(data, lambda value, _: b"<" + value + b">", Known()) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"Content-Type", b"content-type", b"Content-Encoding", b"CONTENT-ENCODING", b"X"]),
            st.sampled_from(
                [b"application/json", b"multipart/form-data; boundary=a", b"application/x-www-form-urlencoded", b"gzip",
                 b" Deflate ", b"", b"br", b"text/html; charset=utf-8", b"x" * 500]
            ) | st.binary(max_size=12),
        ), max_size=5,
    ).map(tuple)
)  # fmt: skip
def test_the_shape_of_a_head_is_that_of_the_fields_that_matter(fields: tuple[tuple[bytes, bytes], ...]) -> None:
    assert Shape.of(fields) == redact_body._shape(fields)
