"""Doctor's lines about clients: what is well, what passes by and what to do, and what was not tried."""

from __future__ import annotations

from typing import Any

from replayproxy.session.canary import NO_TIME, Canary
from replayproxy.session.canary_clients import Client, Style, Transport
from replayproxy.session.canary_text import told
from replayproxy.session.diagnosis import Diagnosis


def canary(name: str, style: Style = "append", transport: Transport = "http", **given: Any) -> Canary:
    client = Client(name=name, argv=(), ways=(), program=(given.pop("program", name),))
    known = {"result": "recorded", "episode": True, "version": "1.0"}
    return Canary(client=client, style=style, transport=transport, **{**known, **given})


def lines(*canaries: Canary) -> list[tuple[str, str]]:
    return [(check.level, check.text) for check in told(canaries)]


def exit_of(*canaries: Canary) -> int:
    return Diagnosis(checks=told(canaries), clients=canaries).exit


def past(**given: Any) -> Canary:
    return canary("b", "forward", result="passed-by", episode=False, hint="trust_env=True", **given)


def test_clients_with_the_same_end_share_a_line_and_what_is_well_comes_first() -> None:
    shown = lines(past(), canary("a", "forward"), canary("c", "forward"), canary("a"), canary("a", transport="h2"))
    assert shown == [
        ("ok", "listener URL, path appended: a/1.0 (http, h2): recorded"),
        ("ok", "proxy variables (record --forward): a/1.0, c/1.0: recorded"),
        ("WARN", "proxy variables (record --forward): b/1.0: would silently pass by -> trust_env=True"),
    ]


def test_one_that_passes_by_is_a_warning_and_fails_only_when_it_was_named() -> None:
    assert exit_of(past(), canary("a")) == 0
    assert exit_of(past(named=True), canary("a", named=True)) == 3
    assert exit_of(canary("a", named=True)) == 0


def test_one_that_is_recorded_in_no_episode_is_not_well() -> None:
    stray = canary("a", "resolve", episode=False, hint="in no episode")
    assert lines(stray) == [("WARN", "listener URL, path resolved against it: a/1.0: recorded, but in no episode")]
    assert exit_of(canary("a", "resolve", episode=False, named=True)) == 3


def test_one_that_failed_says_why() -> None:
    failed = [canary(name, result="failed", episode=False, hint="no end") for name in "ab"]
    assert lines(*failed) == [
        (
            "WARN",
            "listener URL, path appended: a/1.0, b/1.0: failed: no end -> alone: --clients a:append,b:append",
        )
    ]


def test_one_that_there_was_no_time_for_is_no_failure_of_it_and_no_success() -> None:
    late = canary("a", result="failed", episode=False, hint=NO_TIME)
    assert lines(late) == [("----", "not tried, because no time was left: --clients tries fewer: a:append")]
    assert exit_of(canary("a", result="failed", episode=False, hint=NO_TIME, named=True)) == 3


def test_what_is_not_there_is_listed_as_not_tried_and_never_as_good() -> None:
    absent = canary("a", result="not-found", episode=False, version="", program="a-browser")
    assert lines(absent, canary("b")) == [
        ("ok", "listener URL, path appended: b/1.0: recorded"),
        ("----", "not tried, because they are not there: a (a-browser)"),
    ]
    assert exit_of(absent) == 0
    assert exit_of(canary("a", result="not-found", episode=False, named=True)) == 3


def test_it_says_which_python_the_libraries_are_of() -> None:
    shown = lines(
        canary("a", python="/p/python3"), canary("a", "port", python="/p/python3"), canary("b", python="/q/python3")
    )
    assert shown[:2] == [("----", "clients of /p/python3: a"), ("----", "clients of /q/python3: b")]


def test_the_document_has_each_canary_with_all_its_members() -> None:
    document = Diagnosis(clients=[past(python="/p/python3")]).document()
    assert document["clients"] == [
        {
            "client": "b", "version": "1.0", "style": "forward", "transport": "http", "result": "passed-by",
            "episode": False, "hint": "trust_env=True", "python": "/p/python3",
        }
    ]  # fmt: skip
