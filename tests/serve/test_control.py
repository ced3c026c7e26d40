from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from replayproxy.serve.control import (
    ControlServer,
    EndRequest,
    MarkRequest,
    OpenRequest,
    Refused,
    application,
)


class FakeDesk:
    """Remembers what it was asked; `raises` is raised by every call."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.raises: Exception | None = None

    def _note(self, *what: Any) -> None:
        self.asked.append(what)
        if self.raises:
            raise self.raises

    async def open(self, wanted: OpenRequest, reached_by: str) -> dict[str, Any]:
        self._note("open", wanted, reached_by)
        return {"episode": wanted.episode or "e1", "urls": {"app": "http://x"}}

    async def mark(self, name: str, mark: MarkRequest) -> dict[str, Any]:
        self._note("mark", name, mark)
        return {}

    async def snapshot(self, name: str, label: str) -> list[dict[str, Any]]:
        self._note("snapshot", name, label)
        return [{"snapshot": "s1"}]

    async def end(self, name: str, end: EndRequest) -> dict[str, Any]:
        self._note("end", name, end)
        return {"state": "sealed"}

    def describe_all(self) -> list[dict[str, Any]]:
        self._note("describe_all")
        return [{"episode": "e1"}]

    def describe(self, name: str) -> dict[str, Any]:
        self._note("describe", name)
        return {"episode": name}

    def health(self) -> dict[str, Any]:
        self._note("health")
        return {"status": "ok"}


type Call = Callable[..., Any]


class Api:
    def __init__(self, desk: FakeDesk, port: int, http: aiohttp.ClientSession) -> None:
        self.desk, self.port, self._http = desk, port, http

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> tuple[int, Any]:
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        async with self._http.request(
            method, f"http://127.0.0.1:{self.port}{path}", data=data, headers={**sent, **(headers or {})}
        ) as answer:
            self.kind = answer.content_type
            self.headers = answer.headers
            return answer.status, json.loads(await answer.read())


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Any]]:
    running: list[Any] = []

    async def start(**given: Any) -> Api:
        desk = FakeDesk()
        listening = socket.create_server(("127.0.0.1", 0))
        server = ControlServer(application(desk, token=given.pop("token", None), **given))
        await server.start(listening)
        http = aiohttp.ClientSession(skip_auto_headers=["Content-Type"])
        running.append((server, http))
        return Api(desk, listening.getsockname()[1], http)

    yield start
    for server, http in running:
        await http.close()
        await server.stop()


async def test_each_call_reaches_the_desk_with_its_words(serve: Call) -> None:
    api = await serve()
    wanted: dict[str, Any] = {
        "episode": "x", "task": "t", "seed": 1, "attempt": 2, "group": "g", "meta": {"a": 1}, "url_style": "port",
        "envs": {"crm": "http://h"}, "snapshots": {"crm": "http:u"}, "instance": {"crm": "1"},
    }  # fmt: skip
    assert await api("POST", "/v1/episodes", wanted) == (201, {"episode": "x", "urls": {"app": "http://x"}})
    assert await api("POST", "/v1/episodes/x/mark", {"step": 1, "label": "l", "data": [1]}) == (200, {})
    assert await api("POST", "/v1/episodes/x/snapshot", {"label": "l"}) == (200, {"snapshots": [{"snapshot": "s1"}]})
    assert await api("POST", "/v1/episodes/x/end", {"reward": 1, "outcome": "o"}) == (200, {"state": "sealed"})
    assert await api("GET", "/v1/episodes") == (200, {"episodes": [{"episode": "e1"}]})
    assert await api("GET", "/v1/episodes/a%20%C3%A9") == (200, {"episode": "a é"})
    assert await api("GET", "/v1/health") == (200, {"status": "ok"})
    assert api.desk.asked[:4] == [
        ("open", OpenRequest(**wanted), "127.0.0.1"),
        ("mark", "x", MarkRequest(step=1, label="l", data=[1])),
        ("snapshot", "x", "l"),
        ("end", "x", EndRequest(reward=1, outcome="o")),
    ]


async def test_a_call_without_a_body_has_all_defaults_and_null_is_absent(serve: Call) -> None:
    api = await serve()
    assert (await api("POST", "/v1/episodes"))[0] == 201
    assert (await api("POST", "/v1/episodes", {"task": None, "meta": None}))[0] == 201
    assert [asked[1] for asked in api.desk.asked] == [OpenRequest(), OpenRequest()]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"tsak": "x"}, "'tsak' is none of"),
        ({"seed": "7"}, "seed must be an integer"),
        ({"seed": True}, "seed must be an integer"),
        ({"seed": 1.5}, "seed must be an integer"),
        ({"envs": {"crm": 1}}, "envs must be an object of texts"),
        ({"meta": []}, "meta must be an object"),
        ({"url_style": "query"}, 'url_style must be "path" or "port"'),
        ([], "the body must be an object"),
    ],
)
async def test_a_body_of_the_wrong_shape_is_422(serve: Call, body: Any, says: str) -> None:
    api = await serve()
    status, problem = await api("POST", "/v1/episodes", body)
    assert (status, problem["status"], api.kind) == (422, 422, "application/problem+json")
    assert says in problem["detail"]
    assert api.desk.asked == []


@pytest.mark.parametrize("raw", [b'{"reward": NaN}', b"{", b"\xff", b'{"reward": Infinity}', b"[" * 100_000])
async def test_what_is_no_json_is_400(serve: Call, raw: bytes) -> None:
    api = await serve()
    assert (await api("POST", "/v1/episodes/x/end", raw=raw))[0] == 400


async def test_an_infinite_reward_is_refused_however_it_is_written(serve: Call) -> None:
    api = await serve()
    assert (await api("POST", "/v1/episodes/x/end", raw=b'{"reward": 1e999}'))[0] == 422


async def test_a_reward_that_no_float_holds_is_refused(serve: Call) -> None:
    api = await serve()
    assert (await api("POST", "/v1/episodes/x/end", {"reward": 10**400}))[0] == 422
    assert api.desk.asked == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/episodes", '{"meta": ' + '{"a":' * 900 + "1" + "}" * 901),
        ("/v1/episodes/x/mark", '{"data": ' + "[" * 900 + "]" * 900 + "}"),
        ("/v1/episodes/x/mark", '{"data": {"a": [1e400]}}'),
    ],
)
async def test_what_the_store_could_not_keep_is_refused_now_and_not_at_the_seal(
    serve: Call, path: str, body: str
) -> None:
    api = await serve()
    status, problem = await api("POST", path, raw=body.encode())
    assert (status, problem["title"]) == (422, "cannot be kept")
    assert api.desk.asked == []


async def test_a_body_whose_coding_is_broken_is_400(serve: Call) -> None:
    api = await serve()
    headers = {"Content-Encoding": "gzip"}
    assert (await api("POST", "/v1/episodes", raw=b"\x1f\x8b junk", headers=headers))[0] == 400


async def test_a_refusal_of_the_desk_is_a_problem_document_with_its_members(serve: Call) -> None:
    api = await serve()
    api.desk.raises = Refused(409, "name taken", "x is there", **{"try": "x-a2"})
    status, problem = await api("POST", "/v1/episodes", {"episode": "x"})
    assert status == 409
    assert problem == {
        "type": "about:blank", "title": "name taken", "status": 409, "detail": "x is there", "try": "x-a2",
    }  # fmt: skip


async def test_a_fault_of_ours_is_500_and_no_traceback(serve: Call) -> None:
    api = await serve()
    api.desk.raises = KeyError("oops")
    status, problem = await api("GET", "/v1/health")
    assert (status, problem["title"]) == (500, "internal error")
    assert "KeyError" in problem["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("GET", "/metrics", 404), ("DELETE", "/v1/health", 405)]
)
async def test_what_is_not_part_of_the_api_is_a_problem_document_too(
    serve: Call, method: str, path: str, status: int
) -> None:
    api = await serve()
    assert (await api(method, path))[1]["status"] == status


async def test_a_web_page_cannot_drive_it(serve: Call) -> None:
    api = await serve()
    assert (await api("POST", "/v1/episodes", {}, headers={"Origin": "http://evil.example"}))[0] == 403
    assert (await api("GET", "/v1/episodes", headers={"Origin": "null"}))[0] == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert (await api("POST", "/v1/episodes", {}, headers={"Content-Type": kind}))[0] == 415
    assert (await api("GET", "/v1/episodes", headers={"Host": "rebound.example"}))[0] == 403
    assert api.desk.asked == []


async def test_loopback_by_any_of_its_names_and_a_name_that_was_advertised_are_welcome(serve: Call) -> None:
    api = await serve(hosts=frozenset({"gw.example"}))
    for host in ("localhost", "127.0.0.1:1", "[::1]:80", "gw.example:9"):
        assert (await api("GET", "/v1/health", headers={"Host": host}))[0] == 200


async def test_with_a_token_nothing_goes_without_it(serve: Call) -> None:
    api = await serve(token="s3cret")
    for headers in ({}, {"Authorization": "Bearer nope"}, {"Authorization": "s3cret"}):
        status, _ = await api("GET", "/v1/health", headers=headers)
        assert (status, api.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert api.desk.asked == []
    right = {"Authorization": "Bearer s3cret", "Host": "recorder.cluster.local"}
    assert (await api("GET", "/v1/health", headers=right))[0] == 200


async def test_the_desk_is_told_by_which_host_the_caller_came(serve: Call) -> None:
    api = await serve(token="t")
    await api("POST", "/v1/episodes", {}, headers={"Authorization": "Bearer t", "Host": "host.docker.internal:8000"})
    assert api.desk.asked[0][2] == "host.docker.internal"


async def test_a_body_that_is_too_large_is_refused(serve: Call) -> None:
    api = await serve()
    assert (await api("POST", "/v1/episodes", {"meta": {"x": "y" * 5_000_000}}))[0] == 413
