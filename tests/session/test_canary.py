"""What becomes of a canary is seen at the recorder and at the stand-in, whatever the client says of it."""

from __future__ import annotations

import socket
import time
from dataclasses import replace

import pytest

from replayproxy.errors import WrongUsage
from replayproxy.session.canary import NO_TIME, Canary, Wanted, canaries, find_clients, proxied, wanted
from replayproxy.session.canary_clients import CLIENTS, JOBS, STYLES, Client, Way
from replayproxy.session.proxied import PROXY_VARIABLES
from tests.session.canary_fakes import (
    BABBLES,
    CRASHES,
    DROPS_THE_PATH,
    HANGS,
    IGNORES_THE_PROXY,
    OBEYS,
    SENDS_AND_FAILS,
    SEVERAL,
    fake,
)


async def sent_by(*clients: Client, seconds: float = 120.0) -> list[Canary]:
    """`seconds`: much, because a test's machine may be busy."""
    asked = wanted(None, clients=clients)
    return await canaries(asked, await find_clients(asked), seconds=seconds)


async def tried(*clients: Client, **given: float) -> dict[str, Canary]:
    return {one.client.name: one for one in await sent_by(*clients, **given)}


async def test_each_client_s_end_is_what_the_recorder_and_the_stand_in_saw() -> None:
    ends = await tried(
        fake("obeys", OBEYS), fake("drops", DROPS_THE_PATH), fake("hangs", HANGS, seconds=1.5),
        fake("crashes", CRASHES), fake("babbles", BABBLES), fake("sends-and-fails", SENDS_AND_FAILS),
        replace(fake("absent", OBEYS), program=("no-such-client",)),
    )  # fmt: skip
    assert {name: (one.result, one.episode) for name, one in ends.items()} == {
        "obeys": ("recorded", True), "drops": ("recorded", False), "hangs": ("failed", False),
        "crashes": ("failed", False), "babbles": ("failed", False), "sends-and-fails": ("failed", False),
        "absent": ("not-found", False),
    }  # fmt: skip
    assert ends["hangs"].hint == "no end within 1.5 s"
    assert ends["crashes"].hint == "it ended with 1: no such option"
    assert ends["babbles"].hint == "it ended well, and nothing arrived anywhere"
    assert ends["sends-and-fails"].hint == "it was recorded, but the client failed: I do not like it"
    assert ends["absent"].hint == "no-such-client is not there"
    assert ends["drops"].hint == "in no episode, its URLs drop the base path: --url-style port"


async def test_of_several_in_one_process_each_has_its_own_end() -> None:
    ways: tuple[Way, ...] = (("append", "http"), ("port", "http"), ("append", "https"), ("forward", "http"))
    several = replace(fake("several", SEVERAL, *ways, seconds=2.0), argv=("-c", SEVERAL, JOBS))
    sent = await sent_by(several)
    assert [(one.style, one.transport) for one in sent] == list(ways)
    assert [one.result for one in sent] == ["recorded", "failed", "failed", "passed-by"]
    assert [one.hint for one in sent[1:3]] == ["it ended with 1: cannot do that", "no end within 6 s"]


async def test_in_forward_style_one_that_ignores_the_variables_is_seen_to_pass_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")  # as many machines have it; record takes it out
    ends = await tried(
        fake("obeys", OBEYS, ("forward", "http")),
        fake("ignores", IGNORES_THE_PROXY, ("forward", "http"), past="do this"),
        fake("unset", OBEYS, ("forward", "http"), without=("http_proxy",)),
        fake("tells-no-name", OBEYS.replace("at.username", "False"), ("forward", "http")),
        fake("does-both", IGNORES_THE_PROXY + OBEYS, ("forward", "http")),
    )
    assert {name: (one.result, one.episode) for name, one in ends.items()} == {
        "obeys": ("recorded", True), "ignores": ("passed-by", False), "unset": ("passed-by", False),
        "tells-no-name": ("recorded", False), "does-both": ("passed-by", False),
    }  # fmt: skip
    assert ends["ignores"].hint == "do this"
    assert "--episode NAME" in ends["tells-no-name"].hint


async def test_an_inherited_proxy_that_takes_the_listener_s_traffic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    obeys_always = OBEYS.replace('if how == "forward" else None', "")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        for name in PROXY_VARIABLES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{nobody.getsockname()[1]}")
        ends = await tried(fake("sent-elsewhere", obeys_always), fake("obeys", OBEYS))
    assert ends["sent-elsewhere"].result == "failed"
    assert ends["sent-elsewhere"].hint.endswith("NO_PROXY=127.0.0.1")
    assert ends["obeys"].result == "recorded"


@pytest.mark.parametrize(
    ("environ", "known"),
    [
        ({}, False), ({"HTTP_PROXY": ""}, False), ({"HTTP_PROXY": "http://p"}, True), ({"all_proxy": "p"}, True),
        ({"https_proxy": "http://p", "NO_PROXY": "localhost, 127.0.0.1"}, False),
        ({"https_proxy": "http://p", "no_proxy": "*"}, False), ({"https_proxy": "http://p", "no_proxy": ".corp"}, True),
    ],
)  # fmt: skip
def test_whether_a_proxy_would_take_the_listener_s_traffic(environ: dict[str, str], known: bool) -> None:
    assert proxied(environ) is known


async def test_what_has_no_time_left_is_not_taken_for_good() -> None:
    ends = await tried(fake("obeys", OBEYS), seconds=0.0)
    assert (ends["obeys"].result, ends["obeys"].hint) == ("failed", NO_TIME)


async def test_however_many_hang_the_whole_has_its_end() -> None:
    began = time.monotonic()
    ends = await tried(*(fake(f"hangs-{n}", HANGS) for n in range(9)), seconds=2.0)
    assert {one.hint for one in ends.values()} == {NO_TIME}
    assert time.monotonic() - began < 15


async def test_without_a_client_no_recorder_is_started() -> None:
    assert await canaries(wanted("none"), {}) == []


def test_clients_are_chosen_by_name_and_style() -> None:
    every = wanted(None)
    assert every.ways == {one.name: one.ways for one in CLIENTS}
    assert not every.named
    some = wanted("curl, aiohttp:port,aiohttp:resolve")
    assert some.named
    assert set(some.ways) == {"curl", "aiohttp"}
    assert some.ways["aiohttp"] == (("port", "http"), ("resolve", "http"))
    assert wanted("none") == Wanted(ways={}, named=True)


@pytest.mark.parametrize(("text", "hint"), [("lynx", "curl"), ("curl:port", "append, forward"), ("", "none")])
def test_a_client_or_style_that_is_not_there_is_wrong_usage_that_names_those_there_are(text: str, hint: str) -> None:
    with pytest.raises(WrongUsage) as wrong:
        wanted(text)
    assert hint in wrong.value.hint


def test_every_client_of_the_table_is_found_by_its_name_and_tried_in_known_styles() -> None:
    assert len({one.name for one in CLIENTS}) == len(CLIENTS)
    for client in CLIENTS:
        assert client.ways
        assert {style for style, _ in client.ways} <= set(STYLES)
        assert any(word in (JOBS, "{url}", "{page}") for word in client.argv)
