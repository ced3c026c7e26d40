"""What is never one request, as families: empty parameters, percent-encoding, numbers, no bytes, validators."""

from __future__ import annotations

import json
from decimal import Decimal
from urllib.parse import quote, unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from replayproxy.core.canonical import KEY_TABLE, body_of, request_key, view
from replayproxy.core.values import Request
from replayproxy.testing import request
from tests.core.world import relaxed

JSON = {"Content-Type": "application/json"}


def key(target: str | bytes = "/x", body: object = b"", method: str = "GET", **headers: str) -> object:
    return request_key(
        "app", request(method, target, body, headers={n.replace("_", "-"): v for n, v in headers.items()})
    )


names = st.sampled_from(["tag", "a", "q"])
parameters = st.lists(st.tuples(names, st.sampled_from([None, "", "1", "2"])), max_size=4)


def query(pairs: list[tuple[str, str | None]]) -> str:
    return "&".join(name if value is None else f"{name}={value}" for name, value in pairs)


def by_name(pairs: list[tuple[str, str | None]]) -> dict[str, list[str | None]]:
    return {name: [value for other, value in pairs if other == name] for name, _ in pairs}


@relaxed
@given(parameters, parameters)
def test_two_queries_are_one_exactly_when_each_name_holds_the_same_values_in_order(a, b) -> None:
    left, right = (f"/list?{query(pairs)}" for pairs in (a, b))
    assert (key(left) == key(right)) is (by_name(a) == by_name(b))


@relaxed
@given(parameters)
def test_a_question_mark_alone_is_not_no_question_mark(pairs) -> None:
    assert key(f"/list?{query(pairs)}") != key("/list")
    assert key("/list?") != key("/list")


encodable = st.text(st.sampled_from("a/~'%& é="), min_size=1, max_size=6)


@relaxed
@given(encodable, st.sampled_from(["", "/", "~'", "/~"]), st.sampled_from(["", "/", "~'", "/~"]))
def test_two_spellings_of_one_path_are_two_requests(text: str, safe_a: str, safe_b: str) -> None:
    a, b = "/p/" + quote(text, safe=safe_a), "/p/" + quote(text, safe=safe_b)
    assert unquote(a) == unquote(b)
    assert (key(a) == key(b)) is (a == b)
    assert (key(f"/x?q={a}") == key(f"/x?q={b}")) is (a == b)


@pytest.mark.parametrize(
    ("a", "b"), [("/x/../y//z", "/y/z"), ("/a%2Fb", "/a/b"), ("/%7Eu", "/~u"), ("/a%2fb", "/a%2Fb")]
)
def test_no_target_is_put_in_order(a: str, b: str) -> None:
    assert key(a) != key(b)


numbers = st.integers(-(2**70), 2**70) | st.decimals(allow_nan=False, allow_infinity=False, places=6)


@st.composite
def spelled(draw, number=numbers) -> tuple[Decimal, str]:
    value = Decimal(draw(number))
    forms = [f"{value:f}", f"{value:e}", f"{value:f}" + ("0" if "." in f"{value:f}" else ".0")]
    text = draw(st.sampled_from(forms))
    return Decimal(text), text


@relaxed
@given(spelled(), spelled())
def test_two_json_numbers_are_one_exactly_when_their_values_are(a: tuple[Decimal, str], b: tuple[Decimal, str]) -> None:
    left, right = (key("/x", b'{"n":' + text.encode() + b"}", "POST", Content_Type="application/json")
                   for _, text in (a, b))  # fmt: skip
    assume(a[0] or b[0] or a[0].is_signed() == b[0].is_signed())
    assert (left == right) is (a[0] == b[0])


@relaxed
@given(spelled())
def test_a_number_in_another_spelling_is_the_same_request(one: tuple[Decimal, str]) -> None:
    value, text = one
    kind = {"Content_Type": "application/json"}
    other = f"{value.normalize():e}"
    assert key("/x", text.encode(), "POST", **kind) == key("/x", other.encode(), "POST", **kind)
    assert key("/x", text.encode(), "POST", **kind) != key("/x", json.dumps(text).encode(), "POST", **kind)


TYPES = [
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
    "text/plain",
    "x/y",
]
CODINGS = ["", "gzip", "br", "gzip, br", "aws-chunked"]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("coding", CODINGS)
def test_no_parser_runs_on_nothing_and_nothing_is_not_the_empty_text(kind: str, coding: str) -> None:
    fields = ((b"Content-Type", kind.encode()), *(((b"Content-Encoding", coding.encode()),) if coding else ()))
    keys = [view(fields, body).key for body in (None, body_of(b""), body_of(b'""'))]
    assert keys[:2] == [b"missing", b"empty"]
    assert len(set(keys)) == 3


validators = st.dictionaries(
    st.sampled_from(["Range", "If-None-Match", "If-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"]),
    st.sampled_from(["a", "b"]), max_size=3,
)  # fmt: skip


@relaxed
@given(validators, validators, st.booleans())
def test_requests_with_other_validators_are_never_one(a: dict[str, str], b: dict[str, str], lower: bool) -> None:
    def made(fields: dict[str, str]) -> Request:
        return request("GET", "/b", headers=[(n.lower() if lower else n, v) for n, v in fields.items()])

    assert (request_key("app", made(a)) == request_key("app", made(b))) is (a == b)


def test_a_semicolon_inside_quotes_separates_no_parameter_and_a_long_line_of_them_costs_nothing() -> None:
    plain = key("/x", b"a", "POST", Content_Type='a/b; x="1;2"; y=3')
    assert plain == key("/x", b"a", "POST", Content_Type='A/B;y=3;x="1;2"')
    assert plain != key("/x", b"a", "POST", Content_Type='a/b; x="1; y=3; 2"')
    assert key("/x", b"a", "POST", Content_Type="a/b" + ';"' * 500_000) != plain


def test_every_row_of_the_table_says_something() -> None:
    assert all(all(row) for row in KEY_TABLE)
    assert len({part for part, _, _ in KEY_TABLE}) == len(KEY_TABLE)
