from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.patterns import endpoint, glob, one_group


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "no regular expression"),
        ("abc", "has 0 groups"),
        ("(a)(b)", "has 2 groups"),
        ("((a+)+)$", "groups"),
        ("((?:a+)+)$", "repeat inside a repeat"),
        ("((?:a|ab)*)c", "choice inside a repeat"),
        ("((?:a?b?)*)c", "repeat inside a repeat"),
        ("((?:x*?)*)", "repeat inside a repeat"),
        ("(.*).*.*.*x", "4 unbounded repeats"),
        ("(" * 5000, "no regular expression"),
    ],
)
def test_a_pattern_that_could_run_away_or_has_not_one_group_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        one_group(pattern)


@pytest.mark.parametrize("pattern", [r"sid=([0-9a-f]{8,32})", r"^(\w+)-\d+$", r"(?:a|b)-(.+)", r"(?P<id>[^.]+)\."])
def test_patterns_that_people_write_are_taken(pattern: str) -> None:
    assert one_group(pattern).groups == 1


def test_the_worst_pattern_taken_over_the_longest_value_ends() -> None:
    began = time.perf_counter()
    assert one_group(r"(\w+)-\w+!").search("w" * 4096) is None
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("at", "line", "fits"),
    [
        ("", "GET /x", True),
        ("*", "POST /x/y", True),
        ("POST /step", "POST /step", True),
        ("POST /step", "GET /step", False),
        ("POST /step", "POST /step/2", False),
        ("/step", "PUT /step", True),
        ("* /a/{id}/b", "GET /a/7/b", True),
        ("* /a/{id}/b", "GET /a/7/8/b", False),
        ("GET */ws", "GET /base/ws", True),
        ("DELETE *", "DELETE /x/y", True),
        ("GET /a.b", "GET /axb", False),
    ],
)
def test_an_endpoint_is_a_method_and_a_template(at: str, line: str, fits: bool) -> None:
    assert bool(endpoint(at).match(line)) is fits


@pytest.mark.parametrize("at", ["POST step", "PO ST /x", "GET /x /y", "()"])
def test_what_is_no_endpoint_is_refused(at: str) -> None:
    with pytest.raises(ValueError, match="METHOD TEMPLATE"):
        endpoint(at)


@given(st.text(), st.text(), st.text())
def test_a_star_in_a_name_is_any_text(lead: str, middle: str, tail: str) -> None:
    plain = lead.replace("*", "") + "*" + tail.replace("*", "")
    assert glob(plain).match(lead.replace("*", "") + middle + tail.replace("*", ""))
