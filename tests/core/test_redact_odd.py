"""Secrets in odd places and codings, and texts that are made to take long."""

from __future__ import annotations

import gzip
import json
import time
import zlib

import pytest

from replayproxy.core.canonical import body_of
from replayproxy.core.known import Known
from replayproxy.core.redact import Redactor
from replayproxy.core.values import Fields, Request, Response

SECRET = b"Zq7-Plant3d_Secret9xV"
R = Redactor(b"k" * 32)
T = R.token(SECRET)


def redacted(fields: Fields = (), target: bytes = b"/x", body: bytes | None = None) -> Request:
    asked = Request(
        method=b"POST",
        target=target,
        version=b"HTTP/1.1",
        fields=fields,
        body=body_of(body) if body is not None else None,
    )
    return R.request(asked, Known())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Cookie", 'a="x;%s"; b=1'), ("Cookie", "%s"), ("Cookie", "a=1; %s"), ("Cookie2", "a=%s"),
        ("Set-Cookie", 'sid="a;%s"; Path=/'), ("Set-Cookie", "%s; Path=/"), ("Set-Cookie2", "a=%s"),
        ("Set-Cookie", "a=1; Path=/, sid=%s; Expires=Wed, 09 Jun 2021 10:18:14 GMT"),
        ("X-Figma-Token", "%s"), ("X-RapidAPI-Key", "%s"), ("Stripe-Signature", "t=1,v1=%s"), ("DPoP", "%s"),
        ("X-Hub-Signature-256", "sha256=%s"), ("Ocp-Apim-Subscription-Key", "%s"), ("X-Auth", "%s"),
        ("Location", "/p?next=%%2Fcb%%3Fa%%3D1%%26token%%3D%s%%26b%%3D2"), ("Location", "https://%s@h/"),
        ("Location", "https://u:a@%s@h/"), ("Location", "/p;jsessionid=%s?x=1"), ("Link", "</x?a=1&amp;token=%s>"),
        ("Location", "?code=1;token=%s"), ("baggage", "a=1,token=%s"),
        ("Forwarded", 'for=1;token="%s"'),
    ],
)  # fmt: skip
def test_an_odd_header(name: str, value: str) -> None:
    made = redacted(((name.encode(), (value % SECRET.decode()).encode()),)).fields[0][1]
    assert SECRET not in made
    assert b"rp-secret-" in made
    assert redacted(((name.encode(), made),)).fields[0][1] == made, "what is redacted stays"


@pytest.mark.parametrize("name", ["X-Next-Page-Token", "Idempotency-Key", "Sec-WebSocket-Key", "X-Sync-Token", "ETag"])
def test_a_header_that_is_no_credential(name: str) -> None:
    assert redacted(((name.encode(), SECRET),)).fields == ((name.encode(), SECRET),)


def test_a_reason_phrase() -> None:
    answer = Response(status=400, reason=b"bad ?token=" + SECRET, version=b"HTTP/1.1", fields=(), body=None)
    assert R.response(answer, redacted()).reason == b"bad ?token=" + T


def test_attributes_of_a_cookie_stay() -> None:
    text = b"a=%b; Expires=Wed, 09 Jun 2021 10:18:14 GMT; Max-Age=1; Path=/; Secure; HttpOnly; SameSite=Lax"
    assert redacted(((b"Set-Cookie", text % SECRET),)).fields == ((b"Set-Cookie", text % T),)


@pytest.mark.parametrize(
    "target",
    [
        b"/x;jsessionid=%b", b"/x;sid=%b?a=1", b"/x?a=1;token=%b", b'/x?q={"password":"%b"}',
        b"/x?q=%%7B%%22password%%22%%3A%%22%b%%22%%7D", b"/x?next=http%%3A%%2F%%2Fh%%2F%%3Ftoken%%3D%b",
        b"/x?next=http%%3A%%2F%%2Fu%%3A%b%%40h%%2F",
    ],
)  # fmt: skip
def test_an_odd_target(target: bytes) -> None:
    assert redacted(target=target % SECRET).target == target % T


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", '{"password":["a",1,null,["%s"]],"b":1}'), ("application/json", '{token:"%s"}'),
        ("application/json", '{"GITHUB_TOKEN":"%s","pwd":"%s"}'),
        ("application/json", '{"headers":[["Authorization","Bearer %s"]]}'),
        ("application/json", '{"query":"mutation { login(password: \\"%s\\") }"}'),
        ("application/x-www-form-urlencoded", "payload=%%7B%%22token%%22%%3A%%22%s%%22%%7D"),
        ("multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=password\r\n\r\n%s\r\n--B--"),
        ("multipart/form-data; boundary=B", "--B\nContent-Disposition: form-data; NAME='password'\n\n%s\n--B--\n"),
        ("text/html", '<input name=csrf_token value=%s>'), ("text/html", '<a href="/x?a=1&amp;token=%s">'),
        ("text/html", '<input name="csrf_token" data-x="a>b" value="%s">'), ("text/html", '<p data-token="%s">'),
        ("text/html", '<textarea name="api_key">%s</textarea>'), ("text/javascript", 'var token = "%s";'),
        ("text/xml", '<password><![CDATA[%s]]></password>'), ("text/xml", '<user password="%s"/>'),
        ("message/http", "TRACE / HTTP/1.1\r\nAuthorization: Bearer %s\r\n\r\n"),
    ],
)  # fmt: skip
def test_an_odd_body(kind: str, body: str) -> None:
    text = body.replace("%s", SECRET.decode()).replace("%%", "%").encode()
    made = redacted(((b"Content-Type", kind.encode()), (b"Content-Length", b"%d" % len(text))), body=text)
    assert made.body is not None
    assert made.body.inline is not None
    assert SECRET not in made.body.inline
    assert T in made.body.inline
    assert made.fields[1][1] == b"%d" % made.body.size


@pytest.mark.parametrize(
    "body",
    ['{type:"password",token:"placeholder text"}', "if (token === 1) {}", '{token:"${TOKEN_1234}"}', "a;token=b()"],
)  # fmt: skip
def test_a_script_without_a_secret_stays(body: str) -> None:
    made = redacted(((b"Content-Type", b"text/javascript"),), body=body.encode()).body
    assert made is not None
    assert made.inline == body.encode()


TEXT = b'{"token":"' + SECRET + b'"}'


def raw(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-15)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        (b"gzip", gzip.compress(b'{"a":1}') + gzip.compress(TEXT)), (b"gzip", gzip.compress(b"") + gzip.compress(TEXT)),
        (b"deflate", raw(TEXT)), (b"gzip", gzip.compress(b"{}") + TEXT),
        (b"gzip", gzip.compress(b" " * (9 << 20) + TEXT)),
    ],
    ids=["members", "empty-member", "no-header", "behind-the-end", "much"],
)  # fmt: skip
def test_every_member_and_either_deflate(coding: bytes, body: bytes) -> None:
    made = redacted(((b"Content-Type", b"application/json"), (b"Content-Encoding", coding)), body=body).body
    if made is None:
        return  # given up: not stored
    assert made.inline is not None
    plain = gzip.decompress(made.inline) if coding == b"gzip" else zlib.decompress(made.inline, wbits=-15)
    assert SECRET not in plain
    assert T in plain


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_a_large_body_of_members_is_given_up(coding: bytes) -> None:
    body = gzip.compress(b"{}") + gzip.compress(TEXT) if coding == b"gzip" else raw(TEXT)
    stretch = R.stretch(((b"Content-Encoding", coding),), None, of_answer=False)
    out = [*stretch.feed(body), *stretch.end()]
    assert (stretch.given_up, out) == (True, [])


@pytest.mark.parametrize(
    "body",
    [
        json.dumps([{"token": f"secretvalue{n}"} for n in range(20_000)]).encode(),
        json.dumps({f"n{n}_password": f"secretvalue{n}" for n in range(5_000)}).encode(),
        b"?token=a" * 50_000, b"?a=a" * 50_000 + b"token", b"://a:b" * 50_000 + b"@", b"%3Ftoken" * 40_000,
        b"token:" * 50_000, b"<input " * 20_000 + b"token", b"%22token" * 40_000, b"://a%3A" * 40_000 + b"token",
        b"<input " + b"'" * 20_000 + b"token", b"<textarea " * 20_000 + b"token", b"authorization:" * 30_000,
    ],
    ids=["fields", "names", "parameters", "values", "users", "coded", "assigned", "tags", "members", "coded-users",
         "quotes", "areas", "credentials"],
)  # fmt: skip
def test_no_text_takes_for_ever(body: bytes) -> None:
    began = time.process_time()
    redacted(((b"Content-Type", b"application/json"),), body=body)
    assert time.process_time() - began < 8
