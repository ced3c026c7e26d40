"""Whatever is sent: what was no secret stays byte-equal, redaction is idempotent, and lengths fit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

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
