"""A secret in a line that is no HTTP: nothing names it, so no text that is kept may quote the line."""

from __future__ import annotations

import pytest

from replayproxy.core.values import Outcome
from replayproxy.storage import Store
from tests.cases.h2lab import Ask, Desk, Say, Site, recorded, replayed
from tests.cases.lab import get, recording, replaying, talker
from tests.proxy.wire import says

SECRET = b"AAAkJ3v9QzX7hidden"
OK = b"HTTP/1.1 200 OK\r\n"
ANSWERS = {
    "the status line": b"HTTP/1.1 " + SECRET + b"\r\n\r\n",
    "no status line at all": b"{'token': '" + SECRET + b"'}\r\n\r\n",
    "another protocol": b"SSH-2.0-" + SECRET + b"\r\n\r\n",
    "a header line": OK + b"token " + SECRET + b"\r\n\r\n",
    "a header's name": OK + b"a b" + SECRET + b": 1\r\n\r\n",
    "a header line of a 1xx": b"HTTP/1.1 103 Early\r\ntoken " + SECRET + b"\r\n\r\n" + OK + b"\r\n",
    "the length": OK + b"Content-Length: " + SECRET + b"\r\n\r\n",
    "two lengths": OK + b"Content-Length: 1\r\nContent-Length: '" + SECRET + b'"\r\n\r\n',
    "the coding": OK + b"Transfer-Encoding: " + SECRET + b"\r\n\r\n",
    "a chunk's first line": OK + b"Transfer-Encoding: chunked\r\n\r\nzz" + SECRET + b"\r\n",
    "behind a chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na" + SECRET + b"\r\n",
    "a trailer": OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\ntoken " + SECRET + b"\r\n\r\n",
}


def nowhere(store: Store, *shown: object) -> None:
    assert SECRET not in repr(shown).encode()
    for path in store.path.rglob("*"):
        assert not path.is_file() or SECRET not in path.read_bytes(), path


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_that_cannot_be_read_is_told_without_its_bytes(store: Store, answer: bytes) -> None:
    async with recording(store, says(answer, close=True), discreet=True) as on:
        agent = await on.agent()
        await agent.send(get())
        told = await agent.read_to_end()
        (one,) = await on.exchanges(count=1)
        said = on.said
    assert one.outcome is Outcome.INVALID
    assert one.error
    assert SECRET not in told or one.response is not None
    reader = store.reader()
    nowhere(store, one, said, list(reader.events(reader.episode(reader.run("r"), "e"))))
    async with replaying(store) as origin:
        again = await talker(origin.ports["app"])
        await again.send(get())
        assert await again.read_to_end() == told, "the agent is told the same again"


REQUESTS = {
    "the request line": b"GET" + SECRET + b"\r\n\r\n",
    "a header line": b"GET / HTTP/1.1\r\nHost: x\r\ntoken " + SECRET + b"\r\n\r\n",
    "a header's name": b"GET / HTTP/1.1\r\nHost: x\r\na " + SECRET + b": 1\r\n\r\n",
    "the length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + SECRET + b"\r\n\r\n",
    "a chunk's first line": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz" + SECRET + b"\r\n",
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_a_request_that_cannot_be_read_is_kept_without_its_bytes(store: Store, request_: bytes) -> None:
    async with recording(store, says(OK + b"Content-Length: 0\r\n\r\n"), discreet=True) as on:
        agent = await on.agent()
        await agent.send(request_)
        assert (await agent.read_to_end()).startswith(b"HTTP/1.1 400 ")
        said = on.said
    reader = store.reader()
    kept = [
        (list(reader.exchanges(episode)), list(reader.events(episode))) for episode in reader.episodes(reader.run("r"))
    ]
    if b"\r\na " not in request_ and b"Content-Length" not in request_:  # these are kept, as a field's name or value
        nowhere(store, said, kept)
    errors = [one.error for exchanges, _ in kept for one in exchanges]
    assert not any(SECRET.decode() in one for one in errors)


FIELDS = {
    "a value with white space": (b"x-a", b" " + SECRET),
    "a value with a control character": (b"x-a", SECRET + b"\x00"),
    "a name in upper case": (SECRET, b"1"),
    "a name with a backslash": (b"a\\" + SECRET.lower(), b"1"),
    "a pseudo field": (b":" + SECRET.lower(), b"1"),
    "a length": (b"content-length", SECRET),
}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
async def test_fields_that_http2_forbids_are_told_without_their_bytes(
    store: Store, desk: Desk, field: tuple[bytes, bytes]
) -> None:
    async with Site(desk, "h2", lambda heard: Say((b"ok",), (field,))) as site:
        async with recorded(store, site, discreet=True) as on:
            (heard,) = await on.ask(Ask(b"/x"))
            (one,) = await on.on.exchanges(count=1)
            said = on.on.said
    assert one.outcome is not Outcome.ANSWERED or field[0] == b"x-a", one
    assert SECRET.decode().lower() not in one.error.lower()
    assert b"/x" not in heard.body
    reader = store.reader()
    if one.outcome is not Outcome.ANSWERED:
        nowhere(store, one, said, list(reader.events(reader.episode(reader.run("r"), "e"))))
    async with replayed(store, site) as again:
        (told,) = await again.ask(Ask(b"/x"))
    assert told.said == heard.said


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
async def test_an_agent_s_fields_that_http2_forbids_are_kept_without_their_bytes(
    store: Store, desk: Desk, field: tuple[bytes, bytes]
) -> None:
    async with Site(desk, "h2", lambda heard: Say()) as site:
        async with recorded(store, site, discreet=True) as on:
            (heard,) = await on.ask(Ask(b"/x", (field,)))
            said = on.on.said
    assert heard.ended
    reader = store.reader()
    kept = [
        (list(reader.exchanges(episode)), list(reader.events(episode))) for episode in reader.episodes(reader.run("r"))
    ]
    if heard.status != 200:
        nowhere(store, said, kept)


async def test_what_a_connection_is_closed_with_is_not_kept(store: Store, desk: Desk) -> None:
    def goes_away(heard: object) -> Say:
        site.ends[0].http.close_connection(2, b"token " + SECRET[:12])
        site.ends[0].flush()
        return Say(then="silence")

    async with Site(desk, "h2", goes_away) as site:
        async with recorded(store, site, discreet=True) as on:
            await on.ask(Ask(b"/x"))
            (one,) = await on.on.exchanges(count=1)
    assert one.outcome is Outcome.CUT
    assert SECRET[:8].decode() not in one.error
