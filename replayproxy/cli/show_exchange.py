"""`show RUN/EPISODE#SEQ`."""

from __future__ import annotations

from typing import Any

from replayproxy.cli.bodies import body_json, fields_json, text_of
from replayproxy.cli.common import safe
from replayproxy.cli.moments import clock, duration
from replayproxy.cli.show_talk import talk_json
from replayproxy.core.values import Episode, Exchange, Fields, Outcome, Run
from replayproxy.storage import Reader


def exchange_text(run: Run, episode: Episode, exchange: Exchange) -> list[str]:
    """What was asked, what came of it, and when."""
    request, response, t = exchange.request, exchange.response, exchange.times
    head = f"{safe(run.name)}/{safe(episode.name)}#{exchange.seq}   {safe(exchange.env)}   lane {safe(exchange.lane)}"
    lines = [f"{head}   {clock(t.wall)}   {exchange.outcome.value}   by {safe(exchange.carrier)}"]
    took = [
        ("request in", t.c_in), ("sent on", t.fwd), ("answer began", t.first), ("answer ended", t.up_end),
        ("agent has it", t.c_out),
    ]  # fmt: skip
    lines.append("  " + "   ".join(f"{name} {duration(at - t.head)}" for name, at in took if at is not None))
    if exchange.held_ns:
        lines.append(f"  the answer waited {duration(exchange.held_ns)} for a snapshot")
    lines += [f"  {safe(note)}" for note in (exchange.error, *exchange.notes) if note]
    lines += ["", f"> {safe(request.method)} {safe(request.target)} {safe(request.version)}"]
    lines += _fields("> ", request.fields)
    if request.agent_host is not None:
        lines.append(f"  (the agent's Host: {safe(request.agent_host)})")
    lines += ["", *text_of(request.fields, request.body), *_fields("> ", request.trailers)]
    lines.append("")
    if response is None:
        lines.append(f"no answer: {exchange.outcome.value}")
    else:
        own = "  (by the proxy itself)" if exchange.outcome is Outcome.LOCAL else ""
        for status, early in response.informational:
            lines += [f"< {safe(response.version)} {status}", *_fields("< ", early)]
        lines.append(f"< {safe(response.version)} {response.status} {safe(response.reason)}{own}".rstrip())
        lines += _fields("< ", response.fields)
        lines += ["", *text_of(response.fields, response.body), *_fields("< ", response.trailers)]
        if exchange.cut_at is not None:
            lines.append(f"cut after {exchange.cut_at:,} bytes")
    return lines


def _fields(mark: str, fields: Fields) -> list[str]:
    return [f"{mark}{safe(name)}: {safe(value)}" for name, value in fields]


def exchange_json(reader: Reader, run: Run, episode: Episode, exchange: Exchange) -> dict[str, Any]:
    """All that is known of it."""
    request, response, t = exchange.request, exchange.response, exchange.times
    return {
        "run": run.name, "episode": episode.name, "seq": exchange.seq, "env": exchange.env, "lane": exchange.lane,
        "outcome": exchange.outcome.value, "error": exchange.error, "carrier": exchange.carrier,
        "upstream": exchange.upstream, "cut_at": exchange.cut_at, "held_ns": exchange.held_ns,
        "notes": list(exchange.notes), "is_reset": exchange.is_reset, "is_probe": exchange.is_probe,
        "closed_by_agent": exchange.closed_by_agent,
        "times": {name: getattr(t, name) for name in ("head", "wall", "c_in", "fwd", "first", "up_end", "c_out")},
        "request": {
            "method": safe(request.method), "target": safe(request.target), "version": safe(request.version),
            "fields": fields_json(request.fields), "trailers": fields_json(request.trailers),
            "agent_host": None if request.agent_host is None else safe(request.agent_host),
            "body": body_json(reader, request.body),
        },
        "response": response and {
            "status": response.status, "reason": safe(response.reason), "version": safe(response.version),
            "fields": fields_json(response.fields), "trailers": fields_json(response.trailers),
            "informational": [[status, fields_json(early)] for status, early in response.informational],
            "body": body_json(reader, response.body),
        },
        "websocket": exchange.websocket and talk_json(reader, exchange.websocket),
    }  # fmt: skip
