"""The proxy's own answers."""

from __future__ import annotations

import json

from replayproxy.core.values import Outcome
from replayproxy.proxy.problems import MARK, assembled, problem


def test_an_own_answer_is_marked_and_says_why() -> None:
    fields, body = problem(502, Outcome.REFUSED, "connection refused")
    assert (MARK, b"refused") in fields
    document = json.loads(body)
    assert (document["status"], document["outcome"], document["detail"]) == (502, "refused", "connection refused")
    assert document["answered_by"] == "replayproxy"


def test_to_head_the_assembled_answer_is_its_head() -> None:
    whole = assembled(502, Outcome.REFUSED, "connection refused", b"GET")
    assert assembled(502, Outcome.REFUSED, "connection refused", b"HEAD") == whole.partition(b"{")[0]


def test_the_assembled_answer_has_its_length() -> None:
    raw = assembled(504, Outcome.TIMED_OUT, "too slow – é")
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
    assert b"Content-Length: %d" % len(body) in head
