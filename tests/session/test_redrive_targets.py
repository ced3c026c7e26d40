"""What was recorded, aimed at the live environment; and what is left alone."""

from __future__ import annotations

import socket

import pytest

from replayproxy.core.values import Run
from replayproxy.drive.origin import is_loopback, origin
from replayproxy.errors import CannotJudge, WrongUsage
from replayproxy.session.config import Config
from replayproxy.session.redrive_targets import _recorded_spec, aimed, elsewhere

LIVE = origin("http://127.0.0.1:8000")
MOVED = {"app": (("http://127.0.0.1:9000",), LIVE)}


@pytest.mark.parametrize(
    ("text", "aimed_text"),
    [
        ("http:http://127.0.0.1:9000/state", "http:http://127.0.0.1:8000/state"),
        ('http:http://127.0.0.1:9000/s,restore="PUT http://127.0.0.1:9000/r"',
         'http:http://127.0.0.1:8000/s,restore="PUT http://127.0.0.1:8000/r"'),
        ("http:http://127.0.0.1:90001/state", "http:http://127.0.0.1:90001/state"),
        ("sqlite:/data/app.db", "sqlite:/data/app.db"),
    ],
)  # fmt: skip
def test_only_the_recorded_address_of_an_environment_is_replaced(text: str, aimed_text: str) -> None:
    assert aimed(text, MOVED) == aimed_text


def test_what_leads_past_the_live_environment_is_left_alone_while_the_recorded_one_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as recorded:
        url = f"http://127.0.0.1:{recorded.getsockname()[1]}"
        moved = {"app": ((url,), LIVE)}
        assert f"still at {url}" in elsewhere([], "app", moved)
        assert f"still at {url}" in elsewhere(["http://127.0.0.1:7/reset"], "app", moved)
        assert elsewhere(["http://127.0.0.1:8000/reset"], "app", moved) == ""
        assert elsewhere([], "app", {"app": ((url,), origin(url))}) == ""
    assert elsewhere([], "app", moved) == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "app.localhost", "::1", "[::1]", "0.0.0.0"])
def test_this_machine_is_known_by_its_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "example.org", "localhost.example.org", "127.0.0.1.example.org"])
def test_any_other_host_is_not_this_machine(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("http://Env.test", "env.test"), ("http://env.test:80", "env.test"), ("https://env.test:443/v1/", "env.test"),
        ("http://[::1]:8080/x", "[::1]:8080"), ("https://env.test:80", "env.test:80"),
    ],
)  # fmt: skip
def test_an_authority_is_written_as_a_host_field_would(url: str, authority: str) -> None:
    assert origin(url).authority == authority


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://u:p@x", "http://x?q", "http://x:99999", "x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(WrongUsage):
        origin(url)


def test_a_snapshot_whose_spec_came_by_the_api_says_which_option_gives_it_again() -> None:
    run = Run(key=0, name="r", opened_wall=1, envs={}, snapshots={"app": ""})
    with pytest.raises(CannotJudge, match="--snapshot app=SPEC"):
        _recorded_spec("app", run, Config(), {})
    assert _recorded_spec("app", run, Config(snapshot={"app": "sqlite:app.db"}), {}) == "sqlite:app.db"
