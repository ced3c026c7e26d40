"""What `core.har` puts aside, put back: an entry that we wrote becomes the exchange that it was."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from replayproxy.core.canonical import body_of
from replayproxy.core.har import EXTRAS, INSTANTS
from replayproxy.core.harvalues import Members, NotHar
from replayproxy.core.identity import why_not_a_lane
from replayproxy.core.names import why_not_an_env
from replayproxy.core.shapes import wrong_member
from replayproxy.core.values import Body, Chunk, Exchange, Fields, Outcome, WebSocket


def own_entry(read: Exchange, entry: Members, aside: Members) -> Exchange:
    """`read` is what HAR itself says. Raises NotHar: what was put aside may have been edited."""
    try:
        given = entry.given
        asked, answer, response = given["request"], given.get("response"), read.response
        request = replace(
            read.request, version=asked["httpVersion"].encode("latin-1"), fields=_headers(asked["headers"])
        )
        if response is not None and answer is not None:
            response = replace(
                response,
                version=answer["httpVersion"].encode("latin-1"),
                reason=answer["statusText"].encode("latin-1"),
                fields=_headers(answer["headers"]),
            )
    except Exception as error:
        raise NotHar(f"{aside.at} is not what replayproxy writes: {error}") from error
    return own_exchange(replace(read, request=request, response=response), aside)


def own_exchange(read: Exchange, aside: Members) -> Exchange:
    """`read` with what `core.har.aside` gave. Raises NotHar."""
    try:
        made = _put_back(read, aside.given)
    except Exception as error:
        raise NotHar(f"{aside.at} is not what replayproxy writes: {error}") from error
    if (wrong := wrong_member(made)) is not None:
        raise NotHar(f"{aside.at}: {wrong} is not of the right type")
    at, worker = made.order
    if not (0 <= at < 2**64 and 0 <= worker < 2**16):
        raise NotHar(f"{aside.at}.order is no order of arrival")
    if reason := why_not_an_env(made.env) or why_not_a_lane(made.lane):
        raise NotHar(f"{aside.at}: {reason}")
    return made


def _put_back(read: Exchange, given: Mapping[str, Any]) -> Exchange:
    head = given["times"]["head"]
    times = replace(
        read.times, head=head, wall=given["times"]["wall"],
        **{name: given["times"].get(name) for name in INSTANTS},
    )  # fmt: skip
    request = replace(
        read.request,
        target=given["target"].encode("latin-1"),
        agent_host=given["agent_host"].encode("latin-1") if "agent_host" in given else None,
        body=_body(read.request.body, given["request"], head),
        trailers=_fields(given["request"].get("trailers", [])),
    )
    response = read.response
    if response is not None:
        beside = given["response"]
        response = replace(
            response,
            body=_body(response.body, beside, head),
            trailers=_fields(beside.get("trailers", [])),
            informational=tuple((status, _fields(pairs)) for status, pairs in beside.get("informational", [])),
        )
    return replace(
        read, order=tuple(given["order"]), env=given["env"], lane=given["lane"], outcome=Outcome(given["outcome"]),
        carrier=given["carrier"], upstream=given["upstream"], times=times, request=request, response=response,
        websocket=_websocket(read.websocket, given.get("websocket"), head), notes=tuple(given.get("notes", ())),
        error=given.get("error", ""), **{name: given[name] for name in EXTRAS if name in given and name != "error"},
    )  # fmt: skip


def _headers(headers: list[Any]) -> Fields:
    return _fields([(header["name"], header["value"]) for header in headers])


def _fields(pairs: list[Any]) -> Fields:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs)


def _body(read: Body | None, beside: dict[str, Any], head: int) -> Body | None:
    if not beside["captured"]:
        return None
    data = base64.b64decode(beside["body"], validate=True) if "body" in beside else (read and read.inline) or b""
    chunks = tuple(Chunk(size=size, at=at + head) for size, at in beside.get("chunks", []))
    return replace(body_of(data), chunks=chunks)


def _websocket(read: WebSocket | None, given: Any, head: int) -> WebSocket | None:
    if read is None or given is None:
        return read
    messages = tuple(
        replace(message, text=bool(text), at=at + head)
        for message, (text, at) in zip(read.messages, given["messages"], strict=True)
    )
    return WebSocket(
        messages=messages, close_code=given["close_code"], close_reason=given["close_reason"],
        closed_by_agent=given["closed_by_agent"],
    )  # fmt: skip
