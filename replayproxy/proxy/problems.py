"""The proxy's own answers: problem documents that cannot be taken for the environment's word."""

from __future__ import annotations

import json
from http import HTTPStatus

from replayproxy.core.values import Fields, Outcome

MARK = b"Replay-Local"
"""The header that every answer of the proxy's own carries; its value says why there was none of the environment's."""

STOPPED = 471
"""The status of what an episode asks after `--fail-fast` has stopped it. An unassigned 4xx: clients do not retry it."""

_TITLES = {
    Outcome.REFUSED: "The environment cannot be reached",
    Outcome.INVALID: "The environment's answer cannot be carried",
    Outcome.TIMED_OUT: "The environment did not answer in time",
    Outcome.LOCAL: "The proxy cannot pass this request on",
}


def phrase(status: int) -> bytes:
    """The reason phrase of a status line."""
    return b"Episode Stopped" if status == STOPPED else HTTPStatus(status).phrase.encode()


def problem(status: int, outcome: Outcome, detail: str) -> tuple[Fields, bytes]:
    """Header fields and body of an own answer (RFC 9457). The connection is closed behind it."""
    document = {
        "type": "about:blank",
        "title": _TITLES.get(outcome, _TITLES[Outcome.LOCAL]),
        "status": status,
        "detail": detail,
        "answered_by": "replayproxy",
        "outcome": outcome.value,
    }
    body = json.dumps(document).encode()
    fields = (
        (b"Content-Type", b"application/problem+json"),
        (b"Content-Length", b"%d" % len(body)),
        (MARK, outcome.value.encode()),
        (b"Connection", b"close"),
    )
    return fields, body


def content(method: bytes, body: bytes) -> bytes:
    """What follows the head of an own answer: nothing where only the head was asked for."""
    return b"" if method.upper() == b"HEAD" else body


def assembled(status: int, outcome: Outcome, detail: str, method: bytes = b"") -> bytes:
    """The whole answer as bytes of HTTP/1.1; `method` is the request's, where it could be read."""
    fields, body = problem(status, outcome, detail)
    head = b"HTTP/1.1 %d %s\r\n" % (status, phrase(status))
    return head + b"".join(name + b": " + value + b"\r\n" for name, value in fields) + b"\r\n" + content(method, body)
