"""The origin over real sockets: what an agent gets, byte for byte."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from replayproxy.core.values import Exchange, Outcome
from replayproxy.storage import Store
from replayproxy.testing import exchange
from tests.serve.staged import Staged, record, staged

CHUNKED = {"Transfer-Encoding": "chunked"}


def head_and_body(answer: bytes) -> tuple[list[bytes], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n"), body


def problem(answer: bytes) -> tuple[list[bytes], dict[str, Any]]:
    lines, body = head_and_body(answer)
    return lines, json.loads(body)


async def played(store: Store, *exchanges: Exchange, target: str = "/x", method: str = "GET", **headers: str) -> bytes:
    run = record(store, {"e": exchanges})
    async with staged(store, run) as on:
        return await on.get(target, method=method, **headers)


async def test_an_answer_is_the_recorded_bytes(store: Store) -> None:
    fields = [
        ("X-Name", b"caf\xe9"),
        ("Set-Cookie", "sid=a; Expires=Wed, 01 Jan 2031 00:00:00 GMT"),
        ("set-COOKIE", "lang=en"),
        ("Date", "Thu, 21 Mar 2030 12:45:00 GMT"),
        ("Expires", "0"),
        ("Link", "<a>; rel=x"),
        ("Link", "<b>"),
        ("X-Empty", ""),
        ("Content-Length", "2"),
    ]
    recorded = exchange("GET", "/x", status=203, body=b"ok", headers=fields)
    answer = await played(store, recorded)
    lines = b"".join(b"%b: %b\r\n" % field for field in recorded.response.fields)
    assert answer == b"HTTP/1.1 203 Whatever\r\n" + lines + b"\r\nok"


async def test_a_gzip_answer_is_sent_as_it_was_packed(store: Store) -> None:
    packed = gzip.compress(b"hello")
    fields = {"Content-Encoding": "gzip", "Content-Length": str(len(packed))}
    assert (await played(store, exchange(body=packed, headers=fields))).endswith(b"\r\n\r\n" + packed)


@pytest.mark.parametrize(
    ("method", "status", "fields"),
    [
        ("HEAD", 200, {"Content-Length": "4096"}),
        ("GET", 304, {"Content-Length": "10", "ETag": '"v1"'}),
        ("GET", 204, {}),
    ],
)
async def test_an_answer_without_a_body_keeps_its_header_and_the_connection(
    store: Store, method: str, status: int, fields: dict[str, str]
) -> None:
    one = exchange(method, "/x", status=status, headers=fields)
    run = record(store, {"e": [one, exchange("GET", "/y", body=b"next", headers={"Content-Length": "4"})]})
    async with staged(store, run) as on:
        request = f"{method} /x HTTP/1.1\r\nHost: h\r\n\r\nGET /y HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        answer = await on.call(request.encode())
        assert on.receipt()["reproduced"] is True
    shown = "".join(f"{n}: {v}\r\n" for n, v in fields.items())
    first = f"HTTP/1.1 {status} {one.response.reason.decode()}\r\n{shown}\r\n"
    assert answer == first.encode() + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"


async def test_chunk_boundaries_and_trailers_are_those_recorded(store: Store) -> None:
    one = exchange(body=b"abcdef", headers={"Transfer-Encoding": "chunked"}, chunks=[(1, 1), (3, 2), (2, 3)])
    from dataclasses import replace

    one = replace(one, response=replace(one.response, trailers=((b"X-Sum", b"7"),)))
    answer = await played(store, one)
    assert answer.endswith(b"\r\n\r\n1\r\na\r\n3\r\nbcd\r\n2\r\nef\r\n0\r\nX-Sum: 7\r\n\r\n")


async def test_a_body_until_the_end_of_the_connection_ends_with_it(store: Store) -> None:
    run = record(store, {"e": [exchange(body=b"all of it", headers={})]})
    async with staged(store, run) as on:
        answer = await on.call(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
    assert answer == b"HTTP/1.1 200 OK\r\n\r\nall of it"


async def test_a_cut_answer_is_cut_at_the_same_byte(store: Store) -> None:
    run = record(store, {"e": [
        exchange(body=b"abc", headers={"Content-Length": "10"}, outcome=Outcome.CUT, cut_at=3),
        exchange("GET", "/y", body=b"abc", headers=CHUNKED, chunks=[(3, 1)], outcome=Outcome.CUT),
        exchange("GET", "/z", status=None, outcome=Outcome.CUT),
    ]})  # fmt: skip
    async with staged(store, run) as on:
        request = b"GET /%s HTTP/1.1\r\nHost: h\r\n\r\n"
        assert await on.call(request % b"x") == b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"
        assert await on.call(request % b"y") == b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
        assert await on.call(request % b"z") == b""
        assert on.receipt()["reproduced"] is True


@pytest.mark.parametrize(
    ("outcome", "status"), [(Outcome.REFUSED, b"502"), (Outcome.INVALID, b"502"), (Outcome.TIMED_OUT, b"504")]
)
async def test_where_the_environment_gave_no_answer_the_agent_is_told_so_again(
    store: Store, outcome: Outcome, status: bytes
) -> None:
    lines, document = problem(await played(store, exchange(status=None, outcome=outcome, error="no route")))
    assert lines[0].split()[1] == status
    assert b"Replay-Local: " + outcome.value.encode() in lines
    assert document["detail"] == "no route"


async def test_an_answer_that_the_agent_left_is_held_open_until_it_leaves(store: Store) -> None:
    stream = exchange(
        body=b"data: 1\n\n", headers={"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"},
        chunks=[(9, 1)], outcome=Outcome.CLIENT_GONE,
    )  # fmt: skip
    run = record(store, {"e": [stream, exchange("POST", "/step", status=None, outcome=Outcome.CLIENT_GONE)]})
    async with staged(store, run) as on:
        for request, seen in [
            (b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n", b"9\r\ndata: 1\n\n\r\n"),
            (b"POST /step HTTP/1.1\r\nHost: h\r\n\r\n", b""),
        ]:
            reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
            writer.write(request)
            if seen:
                assert (await asyncio.wait_for(reader.readuntil(seen), 2)).endswith(seen)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.1)
            writer.close()
        assert on.receipt()["reproduced"] is True


async def test_a_miss_is_a_470_that_names_what_comes_near(store: Store) -> None:
    run = record(store, {"e": [exchange("GET", "/deals/42?fields=owner,name")]})
    async with staged(store, run) as on:
        lines, document = problem(await on.get("/deals/42?fields=name,owner"))
        assert (await on.get("/other", method="HEAD")).endswith(b"\r\n\r\n")
        receipt = on.receipt()
    assert lines[0].startswith(b"HTTP/1.1 470 ")
    assert b"Replay-Miss: 1" in lines
    assert b"Content-Type: application/problem+json" in lines
    assert document["nearest"] == [
        {
            "exchange": "r/e/1",
            "state": "free",
            "pointer": "query.fields",
            "recorded": "owner,name",
            "asked": "name,owner",
        }
    ]
    assert (receipt["missed"], receipt["reproduced"]) == (2, False)
    assert [one["request"] for one in on.misses] == ["GET /deals/42?fields=name,owner", "HEAD /other"]


async def test_the_fourth_counter_says_consumed_and_a_stranger_does_not(store: Store) -> None:
    run = record(store, {"e": [
        exchange("GET", "/counter", body={"n": 1}),
        exchange("POST", "/inc"),
        exchange("GET", "/counter", body={"n": 2}),
        exchange("POST", "/inc"),
        exchange("GET", "/counter", body={"n": 3}),
    ]})  # fmt: skip
    async with staged(store, run) as on:
        seen = [problem(await on.get("/counter"))[1] for _ in range(3)]
        assert seen == [{"n": 1}, {"n": 2}, {"n": 3}]
        fourth = problem(await on.get("/counter"))[1]
        stranger = await on.get("/never")
    assert fourth["nearest"][0]["state"] == "consumed"
    assert b"consumed" not in stranger


async def test_marks_are_taken_off_and_links_are_put_right_for_each_agent(store: Store) -> None:
    fields = {"Location": "/next", "Set-Cookie": "a=1; Path=/", "X-Self": "http://127.0.0.1:9/y", "Content-Length": "0"}
    run = record(store, {name: [exchange("GET", "/x", status=302, headers=fields)] for name in ("a", "b:c", "d")})
    async with staged(store, run, sole=None) as on:
        prefixed = await on.get("/rp/a/x")
        by_header = await on.get("/x", X_Replay_Episode="b%3Ac")
        by_baggage = await on.get("/x", baggage="k=v, replay.episode=d")
        receipt = on.receipt()
    base = on.url().encode()
    assert b"Location: /rp/a/next\r\n" in prefixed
    assert b"Path=/rp/a\r\n" in prefixed
    assert b"X-Self: " + base + b"/rp/a/y\r\n" in prefixed
    assert b"Location: /next\r\n" in by_header == by_baggage
    assert receipt["reproduced"] is True


async def test_a_request_of_no_episode_is_a_miss_of_the_run(store: Store) -> None:
    run = record(store, {"a": [exchange()], "b": [exchange()]})
    async with staged(store, run, sole=None) as on:
        unmarked = problem(await on.get("/x"))[1]
        unknown = problem(await on.get("/rp/ghost/x"))[1]
        assert b"200 OK" in await on.get("/rp/a/x")
        receipt = on.receipt()
    assert (unmarked["episode"], unknown["episode"]) == (None, None)
    assert "'ghost'" in unknown["detail"]
    assert (receipt["missed"], receipt["reproduced"], receipt["not_replayed"]) == (2, False, ["b"])


async def test_one_episode_answers_unmarked_and_foreign_traffic(store: Store) -> None:
    run = record(store, {"e": [exchange("GET", "/1"), exchange("GET", "/2")], "f": [exchange("GET", "/1")]})
    async with staged(store, run) as on:
        assert b"200 OK" in await on.get("/1")
        assert b"200 OK" in await on.get("/rp/f/2")
        assert on.receipt()["reproduced"] is True


async def test_requests_that_cannot_be_read_are_counted_as_missed(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    run = record(store, {"e": [exchange()]})
    async with staged(store, run) as on:
        assert b"200 OK" in await on.get("/x")
        for wrong in (
            b"GET /x HTTP/one\r\n\r\n",
            b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        ):
            assert b" 400 " in (await on.call(wrong)).partition(b"\r\n")[0]
        receipt = on.receipt()
    assert (receipt["missed"], receipt["reproduced"]) == (3, False)
    assert capfd.readouterr().err == ""


async def test_two_waiting_lanes_are_answered_in_the_recorded_order(store: Store) -> None:
    run = record(store, {"e": [
        exchange("POST", "/deals", lane="a", at_ms=0, body=b"made"),
        exchange("GET", "/deals", lane="b", at_ms=50, body=b"seen"),
    ]})  # fmt: skip
    async with staged(store, run) as on:
        read = asyncio.ensure_future(on.get("/deals", X_Replay_Lane="b"))
        await asyncio.sleep(0.05)
        assert not read.done()
        assert b"made" in await on.get("/deals", method="POST", X_Replay_Lane="a")
        assert b"seen" in await read
        assert on.receipt()["reproduced"] is True


async def test_expect_is_answered_before_the_body_is_sent(store: Store) -> None:
    run = record(store, {"e": [exchange("POST", "/up", sent=b"12345", request_headers={}, body=b"ok")]})
    async with staged(store, run) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
        writer.write(
            b"POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"12345")
        assert (await asyncio.wait_for(reader.read(), 2)).endswith(b"ok")
        writer.close()


async def test_a_request_that_breaks_off_is_no_request(store: Store) -> None:
    run = record(
        store, {"e": [exchange("POST", "/up", sent=b"123", status=None, outcome=Outcome.HALF_SENT), exchange()]}
    )
    async with staged(store, run) as on:
        for _ in range(2):
            _, writer = await asyncio.open_connection("127.0.0.1", on.ports["app"])
            writer.write(b"POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n123")
            await asyncio.sleep(0.05)
            writer.close()
            await asyncio.sleep(0.05)
            await on.get("/x")
        receipt = on.receipt()
    assert (receipt["half_sent"], receipt["unused"]) == (1, 0)


async def test_a_fault_of_ours_is_a_local_error_and_taints_the_episode(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = record(store, {"e": [exchange()]})
    async with staged(store, run) as on:
        await _with_broken(on, monkeypatch)
        receipt = on.receipt()
    assert receipt["reproduced"] is False
    assert receipt["faults"]
    assert [type(fault) for fault in on.faults] == [ZeroDivisionError]


async def _with_broken(on: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_more: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("replayproxy.core.replayer.Replayer.ask", broken)
    lines, document = problem(await on.get("/x"))
    assert lines[0] == b"HTTP/1.1 500 Replay Failed"
    assert "planted" in document["detail"]


async def test_an_absolute_target_is_answered_like_its_path(store: Store) -> None:
    run = record(store, {"e": [exchange("GET", "/x?a=1", body=b"ok")]})
    async with staged(store, run) as on:
        answer = await on.get(f"http://127.0.0.1:{on.ports['app']}/x?a=1")
    assert answer.endswith(b"ok")


async def test_pipelined_requests_are_answered_in_their_order(store: Store) -> None:
    count = 50
    run = record(store, {"e": [exchange("GET", f"/{n}", body=b"n%d;" % n) for n in range(count)]})
    async with staged(store, run) as on:
        heads = [f"GET /{n} HTTP/1.1\r\nHost: h\r\n" for n in range(count)]
        answers = await on.call(("\r\n".join(heads) + "Connection: close\r\n\r\n").encode())
        assert on.receipt()["reproduced"] is True
    assert [part.rpartition(b"n")[2] for part in answers.split(b";")[:-1]] == [b"%d" % n for n in range(count)]


async def test_an_answer_put_together_beforehand_is_the_same_bytes(store: Store) -> None:
    run = record(store, {"e": [
        exchange("GET", "/a", body=b"abc", headers=CHUNKED, chunks=[(1, 1), (2, 2)]),
        exchange("GET", "/b", status=404, body={"no": 1}),
        exchange("HEAD", "/c", headers={"Content-Length": "7"}),
        exchange("GET", "/d", body=b"to the end", headers={}),
        exchange("GET", "/e", headers={"Location": "/a", "Content-Length": "0"}),
    ]})  # fmt: skip
    seen = []
    for prepared in (True, False):
        async with staged(store, run, prepared=prepared) as on:
            asks = [("GET", "/a"), ("GET", "/b"), ("HEAD", "/c"), ("GET", "/d"), ("GET", "/e")]
            seen.append([await on.get(target, method=method) for method, target in asks])
            assert on.receipt()["reproduced"] is True
    assert seen[0] == seen[1]
