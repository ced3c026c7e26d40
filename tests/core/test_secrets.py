from __future__ import annotations

import base64
from typing import Any

import pytest

from replayproxy.core.comparison import NOT_SHOWN
from replayproxy.core.difference import Difference
from replayproxy.core.secretnames import is_secret_name
from replayproxy.core.secrets import Secrets, excerpts
from replayproxy.core.treediff import ABSENT
from replayproxy.testing import exchange

AT_BODY = Difference(tokens=("body", "note"), kind="value", a=0, b=0)


def secrets(**headers: str) -> Secrets:
    return Secrets([exchange(request_headers={k.replace("_", "-"): v for k, v in headers.items()})])


@pytest.mark.parametrize(
    ("headers", "credential"),
    [
        ({"Authorization": "Bearer AAA-token-1"}, "AAA-token-1"),
        ({"AUTHORIZATION": "rawcredential"}, "rawcredential"),
        ({"Cookie": "sid=BBBsecret; lang=en"}, "BBBsecret"),
        ({"X_Api_Key": "CCCsecret"}, "CCCsecret"),
        ({"Mcp_Session_Id": "DDDsecret"}, "DDDsecret"),
        ({"Authorization": "Basic " + base64.b64encode(b"ann:EEEsecret").decode()}, "EEEsecret"),
    ],
)
def test_a_credential_is_never_shown_wherever_it_stands(headers: dict[str, str], credential: str) -> None:
    found = secrets(**headers)
    assert found.hide(AT_BODY, f"it is {credential}!") == f"it is {NOT_SHOWN}!"
    assert found.hide(AT_BODY, {"a": [credential], credential: 1}) == {"a": [NOT_SHOWN], NOT_SHOWN: 1}


def test_cookies_that_were_set_are_credentials() -> None:
    found = Secrets([exchange(headers=[("Set-Cookie", "sid=FFFsecret; Path=/")])])
    assert found.hide(AT_BODY, "FFFsecret") == NOT_SHOWN


def test_very_many_credentials_are_all_hidden() -> None:
    found = Secrets([exchange(request_headers={"Cookie": f"sid=secret-{n:06d}-x"}) for n in range(3000)])
    assert found.hide(AT_BODY, "set sid=secret-002999-x; done") == f"set sid={NOT_SHOWN}; done"


@pytest.mark.parametrize(
    "name", ["password", "client_secret", "access_token", "apiKey", "api-key", "session_id", "csrf"]
)
def test_members_named_like_credentials_are_not_shown(name: str) -> None:
    assert is_secret_name(name.replace("apiKey", "api_key"))
    hidden = Difference(tokens=("body", name.replace("apiKey", "api_key")), kind="value", a="x", b="y")
    assert secrets().hide(hidden, "x") == NOT_SHOWN


@pytest.mark.parametrize("name", ["amount", "token_count", "tokens_used", "design", "keyboard", "secretary", "side"])
def test_other_members_are_shown(name: str) -> None:
    assert not is_secret_name(name)


def test_secret_places_are_not_shown_and_absence_is() -> None:
    cookie = Difference(tokens=("header", "set-cookie", "sid"), kind="added", a=ABSENT, b="x", secret=True)
    assert secrets().hide(cookie, "x") == NOT_SHOWN
    assert secrets().hide(cookie, ABSENT) is ABSENT


def test_a_request_line_loses_the_values_of_secret_parameters() -> None:
    assert secrets().request("GET /x?a=1&api_key=K3Y&b=2") == f"GET /x?a=1&api_key={NOT_SHOWN}&b=2"


@pytest.mark.parametrize("value", ["y" * 10_000, ["z" * 100] * 200, {str(n): n for n in range(5000)}])
def test_what_is_too_long_to_be_read_is_shortened(value: Any) -> None:
    assert len(repr(secrets().hide(AT_BODY, value))) < 3000


def test_two_long_texts_are_shown_from_where_they_differ() -> None:
    a, b = excerpts("x" * 500 + "one", "x" * 500 + "two")
    assert (a[-3:], b[-3:]) == ("one", "two")
    assert a[0] == b[0] == "…"
    assert excerpts("short", 3) == ("short", 3)
