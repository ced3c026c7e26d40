"""Names and addresses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.names import (
    Address,
    decode_name,
    encode_name,
    parse_address,
    suggestion,
    variable,
    why_not_a_name,
    why_not_an_env,
)  # fmt: skip


@pytest.mark.parametrize("name", ["a", "crm-7-a1", "größe", "日本", "a:b", "50%", "x" * 200, "..a", "F3"])
def test_an_episode_may_be_called(name: str) -> None:
    assert why_not_a_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "unattributed",
        "a b",
        "a/b",
        "a#b",
        "a\x00",
        "a\n",
        "\u00a0",
        "x" * 201,
        "e\u0301",
        "\ud800",
        "x.replay",
    ],
)
def test_an_episode_may_not_be_called(name: str) -> None:
    assert why_not_a_name(name)
    assert why_not_a_name(suggestion(name)) is None


@pytest.mark.parametrize("name", ["latest", "F1", "F99", "state-bleed-0123456789ab"])
def test_a_run_may_not_be_called_like_an_address(name: str) -> None:
    assert why_not_a_name(name, of="run")
    assert why_not_a_name(name) is None


@pytest.mark.parametrize(
    ("name", "fine"), [("crm", True), ("c-r_m2", True), ("2c", False), ("c.x", False), ("", False)]
)
def test_environment_names(name: str, fine: bool) -> None:
    assert (why_not_an_env(name) is None) is fine


def test_two_environments_can_give_one_variable() -> None:
    assert variable("my-crm") == variable("my_crm") == "MY_CRM"


@given(st.text(min_size=1).filter(lambda text: why_not_a_name(text) is None))
def test_a_name_survives_its_carrier(name: str) -> None:
    assert decode_name(encode_name(name)) == name
    assert "/" not in encode_name(name)


def test_a_carrier_with_bad_utf8_gives_no_name() -> None:
    assert decode_name(b"%ff") is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("nightly", Address(text="nightly", run="nightly")),
        ("latest", Address(text="latest", run="latest")),
        ("nightly/e", Address(text="nightly/e", run="nightly", episode="e")),
        ("nightly/e#12", Address(text="nightly/e#12", run="nightly", episode="e", seq=12)),
        ("nightly/e/12", Address(text="nightly/e/12", run="nightly", episode="e", seq=12)),
        ("nightly/e/s0", Address(text="nightly/e/s0", run="nightly", episode="e", snapshot=0)),
        ("nightly/unattributed", Address(text="nightly/unattributed", run="nightly", episode="unattributed")),
        ("F3", Address(text="F3", finding="F3")),
        ("nightly-20261129174012", Address(text="nightly-20261129174012", run="nightly-20261129174012")),
        ("state-bleed-0123456789ab", Address(text="state-bleed-0123456789ab", finding="state-bleed-0123456789ab")),
        ("dir/x.replay", Address(text="dir/x.replay", archive="dir/x.replay")),
    ],
)
def test_an_address_is_taken_apart(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "a/b/c/d", "a/b#0", "a/b#x", "a#1", "a/b/x", "a//1", "a b", "a/b/s", "a/b/0"])
def test_what_is_no_address_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_address(text)
