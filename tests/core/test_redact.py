"""An exchange without its secrets: what is found, what is left as it is, and that lengths are right."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from dataclasses import replace

import pytest

from replayproxy.core.canonical import body_of
from replayproxy.core.redact import GIVEN_UP, TOKEN, Known, Redactor, SecretRule
from replayproxy.core.values import (
    Chunk,
    Exchange,
    Fields,
    Message,
    Outcome,
    Request,
    Response,
    Times,
    WebSocket,
)

R = Redactor(b"k" * 32)
SECRET = b"s3cr3t/Val+ue=9"
T = R.token(SECRET)


def request(*fields: tuple[bytes, bytes], body: bytes = b"", target: bytes = b"/x", method: bytes = b"POST") -> Request:
    return Request(method=method, target=target, version=b"HTTP/1.1", fields=fields, body=body_of(body))


def response(*fields: tuple[bytes, bytes], body: bytes = b"") -> Response:
    return Response(status=200, reason=b"OK", version=b"HTTP/1.1", fields=fields, body=body_of(body))


def exchange(asked: Request, answer: Response | None = None, **more: object) -> Exchange:
    made = Exchange(
        seq=0, order=(1, 1), env="app", lane="main", request=asked, response=answer, outcome=Outcome.ANSWERED,
        times=Times(head=1, wall=1), carrier="header",
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def body(message: Request | Response) -> bytes:
    assert message.body is not None
    assert message.body.inline is not None
    assert message.body == replace(body_of(message.body.inline), chunks=message.body.chunks)
    return message.body.inline


@pytest.mark.parametrize(
    ("name", "value", "made"),
    [
        (b"AUTHORIZATION", b"Bearer " + SECRET, b"Bearer " + T),
        (b"proxy-authorization", b"Basic " + base64.b64encode(b"u:" + SECRET), b"Basic " + base64.b64encode(b"u:" + T)),
        (b"Authorization", b"Basic " + base64.b64encode(SECRET + b":"), b"Basic " + base64.b64encode(T + b":")),
        (b"Authorization", SECRET, T),
        (b"Authorization", b"Basic %%%", b"Basic " + R.token(b"%%%")),
        (b"X-Api-Key", SECRET, T),
        (b"api-key", SECRET, T),
        (b"X-Auth-Token", SECRET, T),
        (b"x-amz-security-token", SECRET, T),
        (b"X-CSRF-Token", SECRET, T),
        (b"Mcp-Session-Id", SECRET, T),
        (b"Cookie", b'a=%b; b="%b";c; d=' % (SECRET, SECRET), b'a=%b; b="%b";c; d=' % (T, T)),
        (b"set-cookie", b"sid=%b; Path=/; HttpOnly; Expires=x" % SECRET, b"sid=%b; Path=/; HttpOnly; Expires=x" % T),
        (b"Location", b"https://u:pw@h/?token=a%20b#x",
         b"https://u:%b@h/?token=%b#x" % (R.token(b"pw"), R.token(b"a b"))),
        (b"WWW-Authenticate", b'Basic realm="x"', b'Basic realm="x"'),
        (b"Idempotency-Key", b"abc-123456", b"abc-123456"),
    ],
)  # fmt: skip
def test_a_header(name: bytes, value: bytes, made: bytes) -> None:
    asked = request((b"Host", b"h"), (name, value), (b"Accept", b"*/*"))
    assert R.request(asked).fields == ((b"Host", b"h"), (name, made), (b"Accept", b"*/*"))


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (b"application/json", b'{ "password" : "%b","n":1.0}'),
        (b"application/json", b'{"a":[{"b":{"clientSecret":"%b"}}]}'),
        (b"application/json", b'{"api_key":["%b"]}'),
        (b"application/json", b'{"pass\\u0077ord":"%b"}'),
        (b"application/json", b'{"jsonrpc":"2.0","params":{"token":"%b"}}'),
        (b"text/event-stream", b'id: 1\ndata: {"access_token":"%b"}\n\n'),
        (b"text/html", b'<input type=hidden name="csrf_token" value="%b">'),
        (b"text/xml", b"<r><Password>%b</Password></r>"),
        (b"text/plain", b"see http://h/?api_key=%b&x=1"),
        (
            b"multipart/form-data; boundary=B",
            b'--B\r\nContent-Disposition: form-data; name="password"\r\n\r\n%b\r\n--B--\r\n',
        ),
        (b"application/x-www-form-urlencoded", b"user=u&user[password]=%b&x=1"),
    ],
)
def test_a_body(kind: bytes, raw: bytes) -> None:
    secret = b"abc-def-123"
    asked = request((b"Content-Type", kind), (b"Content-Length", b"%d" % len(raw % secret)), body=raw % secret)
    clean = R.request(asked)
    assert body(clean) == raw % R.token(secret)
    assert clean.fields[1] == (b"Content-Length", b"%d" % len(body(clean)))
    assert R.request(clean) == clean


def test_a_member_inside_a_json_string_is_found_with_its_escapes() -> None:
    secret = "in\"n\\er'"
    text = json.dumps({"text": json.dumps({"secret": secret, "u": 1}), "password": secret})
    clean = json.loads(body(R.request(request(body=text.encode()))))
    token = R.token(secret.encode()).decode()
    assert (json.loads(clean["text"]), clean["password"]) == ({"secret": token, "u": 1}, token)


def test_numbers_booleans_and_empty_strings_are_left() -> None:
    raw = b'{"token": 12345678, "secret": true, "password": null, "api_key": "", "sid": {"a": 1}}'
    asked = request(body=raw)
    assert R.request(asked) is asked


def test_a_query_is_matched_decoded_and_only_its_value_changes() -> None:
    asked = request(target=b"/p?%61pi_key=a%2Bb&x=%20&token=&password=a%20b&passes=1")
    made = b"/p?%%61pi_key=%b&x=%%20&token=&password=%b&passes=1" % (R.token(b"a+b"), R.token(b"a b"))
    assert R.request(asked).target == made


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_a_coded_body_is_coded_anew_only_if_something_in_it_was_replaced(coding: bytes) -> None:
    encode = gzip.compress if coding == b"gzip" else zlib.compress
    head = (b"Content-Encoding", coding)
    plain = request(head, body=encode(b'{"a": 1}'))
    assert R.request(plain) is plain
    asked = request(head, (b"content-length", b"7"), body=encode(b'{"token": "%b"}' % SECRET))
    clean = R.request(asked)
    undo = gzip.decompress if coding == b"gzip" else zlib.decompress
    assert undo(body(clean)) == b'{"token": "%b"}' % T
    assert body(R.request(asked)) == body(clean)


def test_a_coded_body_that_was_cut_is_given_up_when_a_secret_is_in_it() -> None:
    whole = gzip.compress(b'{"token": "%b", "pad": "%b"}' % (SECRET, bytes(range(256)) * 40), 9)
    answer = response((b"Content-Encoding", b"gzip"), body=whole[:-40])
    clean = R.exchange(exchange(request(), answer, outcome=Outcome.CUT, cut_at=len(whole) - 40))
    assert clean.response is not None
    assert (clean.response.body, clean.notes) == (None, (GIVEN_UP,))


def test_a_coding_that_cannot_be_undone_is_said_once() -> None:
    answer = response((b"Content-Encoding", b"br"), body=b"\x0b\x02\x80hello\x03")
    clean = R.exchange(exchange(request(), answer))
    assert clean.response == answer
    assert clean.notes == ("not looked into for secrets: br",)
    assert R.exchange(clean) == clean


def test_a_known_credential_is_replaced_wherever_else_it_stands() -> None:
    percent = b"s3cr3t%2FVal%2Bue%3D9"
    asked = request(
        (b"Authorization", b"Bearer " + SECRET), (b"X-Echo", b"<" + SECRET + b">"),
        target=b"/p/" + percent, body=b"x " + SECRET + b" s3cr3t\\/Val+ue=9 " + base64.b64encode(SECRET),
    )  # fmt: skip
    answer = response((b"X-You", SECRET), body=b'{"headers":{"Authorization":"Bearer %b"}}' % SECRET)
    clean = R.exchange(exchange(asked, answer, error=f"cannot reach http://h/?x={SECRET.decode()}"))
    assert clean.request.target == b"/p/" + T
    assert body(clean.request) == b"x " + T + b" " + T + b" " + base64.b64encode(T)
    assert clean.request.fields[1] == (b"X-Echo", b"<" + T + b">")
    assert clean.response is not None
    assert body(clean.response) == b'{"headers":{"Authorization":"Bearer %b"}}' % T
    assert clean.error == f"cannot reach http://h/?x={T.decode()}"


def test_what_one_exchange_showed_is_known_in_the_next() -> None:
    known = Known()
    login = response((b"Set-Cookie", b"sid=%b; Path=/" % SECRET), body=b'{"access_token":"tok-12345678"}')
    R.exchange(exchange(request(), login), known)
    later = request(body=b"%b|tok-12345678" % SECRET, target=b"/t/tok-12345678/x")
    clean = R.request(later, known)
    other = R.token(b"tok-12345678")
    assert (body(clean), clean.target) == (T + b"|" + other, b"/t/" + other + b"/x")
    assert R.request(later) is later


def test_words_and_numbers_of_a_cookie_are_not_taken_for_secrets_elsewhere() -> None:
    asked = request((b"Cookie", b"theme=darkmode; uid=12345678"), body=b'{"theme":"darkmode","id":12345678}')
    clean = R.request(asked)
    assert body(clean) == body(asked)


def test_trailers_interim_answers_and_messages() -> None:
    field = (b"X-Auth-Token", SECRET)
    made = (b"X-Auth-Token", T)
    answer = replace(response(), trailers=(field,), informational=((103, (field,)),))
    said = Message(from_agent=True, text=True, payload=b'{"token":"%b"}' % SECRET, at=1)
    talk = WebSocket(messages=(said,), close_code=4000, close_reason="see /?token=abc")
    clean = R.exchange(exchange(replace(request(), trailers=(field,)), answer, websocket=talk))
    assert clean.request.trailers == (made,)
    assert clean.response is not None
    assert (clean.response.trailers, clean.response.informational) == ((made,), ((103, (made,)),))
    assert clean.websocket is not None
    assert clean.websocket.messages[0].payload == b'{"token":"%b"}' % T
    assert clean.websocket.close_reason == f"see /?token={R.token(b'abc').decode()}"


def test_chunk_boundaries_stay_and_one_inside_a_secret_moves_to_its_end() -> None:
    raw = b'{"a":1,"token":"abcdef","z":2}'
    parts = (raw[:5], raw[5:18], raw[18:20], raw[20:])
    chunks = tuple(Chunk(size=len(part), at=at) for at, part in enumerate(parts))
    answer = replace(response(), body=replace(body_of(raw), chunks=chunks))
    clean = R.response(answer, request())
    new = body(clean)
    assert clean.body is not None
    ends = [chunk.size for chunk in clean.body.chunks]
    assert (sum(ends), [chunk.at for chunk in clean.body.chunks]) == (len(new), [0, 1, 3])
    assert new[: ends[0]] == raw[:5]
    assert new[ends[0] : ends[0] + ends[1]] == b'1,"token":"' + R.token(b"abcdef")


def test_a_cut_answer_keeps_how_much_was_missing() -> None:
    raw = b'{"token":"abcdef", "rest": '
    answer = response((b"Content-Length", b"100"), body=raw)
    clean = R.exchange(exchange(request(), answer, outcome=Outcome.CUT, cut_at=len(raw)))
    assert clean.response is not None
    assert clean.cut_at == len(body(clean.response))
    assert clean.response.fields == ((b"Content-Length", b"%d" % (100 + clean.cut_at - len(raw))),)


def test_rules_of_the_user() -> None:
    rules = [
        SecretRule.of_table({"name": "h", "header": "X-Team"}),
        SecretRule.of_table({"name": "q", "query": "pin"}),
        SecretRule.of_table({"name": "p", "pointer": "/users/*/ssn", "at": "POST /x"}),
        SecretRule.of_table({"name": "r", "pattern": r"AKIA[0-9A-Z]{8}"}),
    ]
    redactor = Redactor(b"k" * 32, rules)
    raw = b'{"users":[{"ssn":123,"n":"AKIA12345678"},{"ssn":"4\\u0035"}],"ssn":"x"}'
    asked = request((b"x-team", b"blue"), (b"Content-Type", b"application/json"), body=raw, target=b"/x?pin=12&y=1")
    clean = redactor.request(asked)
    t = redactor.token
    assert clean.fields[0] == (b"x-team", t(b"blue"))
    assert clean.target == b"/x?pin=%b&y=1" % t(b"12")
    assert body(clean) == b'{"users":[{"ssn":"%b","n":"%b"},{"ssn":"%b"}],"ssn":"x"}' % (
        t(b"123"), t(b"AKIA12345678"), t(b"45"),
    )  # fmt: skip
    assert redactor.request(clean) == clean
    assert body(redactor.request(replace(asked, target=b"/other"))).count(b"123,") == 1


def test_with_the_secrets_kept_all_passes_as_it_is() -> None:
    keeper = Redactor(None)
    whole = exchange(request((b"Authorization", b"Bearer x"), body=b'{"token":"abc"}'))
    assert keeper.exchange(whole) is whole
    assert (keeper.key_id, keeper.keeps, keeper.token(b"a")) == ("", True, b"a")


def test_the_key_decides_the_token_and_its_id_tells_keys_apart() -> None:
    other = Redactor(b"x" * 32)
    assert other.token(SECRET) != T
    assert other.key_id != R.key_id
    assert TOKEN.fullmatch(T)
    assert R.token(T) == T


def test_values_of_a_harness_lose_secrets_by_name_and_inside_texts() -> None:
    given = {"model": "m", "api_key": "abc", "n": [{"password": "x", "url": "http://u:pw@h"}], "token": 5}
    clean = R.value(given)
    assert clean == {
        "model": "m", "api_key": R.token(b"abc").decode(), "token": 5,
        "n": [{"password": R.token(b"x").decode(), "url": f"http://u:{R.token(b'pw').decode()}@h"}],
    }  # fmt: skip
    assert R.value(clean) == clean


def test_the_agents_own_host_is_not_touched() -> None:
    fields: Fields = ((b"Host", b"h"),)
    asked = replace(request(*fields), agent_host=b"localhost:8080")
    assert R.request(asked).agent_host == b"localhost:8080"


def test_a_credential_that_is_in_every_request_outlasts_any_number_of_those_that_are_in_one() -> None:
    known = Known()
    for n in range(200):
        asked = request((b"Authorization", b"Bearer " + SECRET), body=b'{"password":"own-%03d-x9"}' % n)
        answer = response(body=b'{"seen":"%s","sent":"own-%03d-x9"}' % (SECRET, n))
        made = R.exchange(exchange(asked, answer), known)
        assert made.response is not None
        assert SECRET not in body(made.response)
        assert b"own-" not in body(made.response)
