"""What `replay` says to people: the addresses, each miss, the receipt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from replayproxy.cli.common import count
from replayproxy.core.receipt import unanswered
from replayproxy.errors import Exit

WIDTH = 100
LISTED = 10
PAST = (
    "recorded through a forward proxy -> --forward 0; a client that goes past the replay reaches its real environment"
    " unseen"
)


def serving_lines(address: str, exchanges: int | None, urls: Mapping[str, str], control: str) -> list[str]:
    held = "" if exchanges is None else f"   {count(exchanges, 'exchange')}"
    lines = [f"replaying {address}{held}   no environment is contacted"]
    width = max(map(len, (*urls, "control")))
    return [*lines, *(f"  {name.ljust(width)}  {url}" for name, url in {**urls, "control": control}.items())]


def value(shown: Any) -> str:
    """A value of a near miss; what is not there is `-`."""
    return "-" if shown is None else json.dumps(shown, ensure_ascii=False)


def miss_lines(document: Mapping[str, Any]) -> list[str]:
    """A 470 as the log shows it; the same one again in one line."""
    asked = document["request"]
    if document["episode"] is None:
        return [f"470  {asked}      {document['detail']}     (from replayproxy, not the environment)"]
    where = f"{document['episode']}  lane {document['lane']}  request {document['number']}"
    if document["count"] > 1:
        return [f"470  {asked}      {where}     again, {document['count']} times now"]
    if "message" in document:
        where += f"  message {document['message']}"
    lines = [f"{document['status']}  {asked}      {where}     (from replayproxy, not the environment)"]
    near = document["nearest"]
    places = [_short(one["exchange"]) + (f" message {one['message']}" if "message" in one else "") for one in near]
    width = max(map(len, places), default=0)
    for number, (place, one) in enumerate(zip(places, near, strict=True), 1):
        what = one.get("note") or f"{one['pointer']}  {value(one['recorded'])} | {value(one['asked'])}"
        lines.append(f"  {number}  {place.ljust(width)}  {one['state'].ljust(10)}  {what}")
    if not near or all(one["state"] == "answered" for one in near):
        lines.append(f"     {document['detail']}")
    return lines


def _short(exchange: str) -> str:
    """EPISODE/SEQ of RUN/EPISODE/SEQ."""
    return exchange.partition("/")[2]


def receipt_lines(receipt: Mapping[str, Any], code: int) -> list[str]:
    """The receipt of an episode or of a run: verdict first, the next command last."""
    name = f"{receipt['run']}/{receipt['episode']}" if "episode" in receipt else receipt["run"]
    verdict = _verdict(receipt)
    contacted = f"the replay itself contacted the environment {count(receipt['upstream_contacts'], 'time')}"
    lines = [f"{verdict}  {name}   ".ljust(WIDTH - len(contacted)) + contacted, *_numbers(receipt)]
    if "episodes" in receipt:
        lines += _episodes(receipt)
    if not receipt["credentials_compared"]:
        lines.append("  credentials were recorded under another key: any would have matched")
    lines += loosely(receipt)
    lines += _because(receipt)
    lines += _divergence(receipt)
    lines += [f"  FAULT OF REPLAYPROXY  {fault}" for fault in receipt["faults"][:LISTED]]
    if receipt["lane_ambiguous"]:
        lines.append(
            f"  {count(receipt['lane_ambiguous'], 'exchange')} overlap an equal one in the same lane: which answer "
            "belongs to which cannot be known -> mark lanes (X-Replay-Lane)"
        )
    return [*lines, _next(receipt, code)]


def _verdict(receipt: Mapping[str, Any]) -> str:
    if receipt["reproduced"]:
        return "REPRODUCED"
    if not receipt["requests"] and not receipt["missed"] and not receipt["faults"]:
        return "CANNOT BE JUDGED (nothing was asked for)"
    if receipt["lane_ambiguous"] and receipt["first_divergence"] is None:
        return "CANNOT BE JUDGED (lanes ambiguous)"
    if unanswered(receipt) and receipt["first_divergence"] is None:
        return "CANNOT BE JUDGED (nothing served was an environment's answer)"
    return "NOT REPRODUCED"


def _numbers(receipt: Mapping[str, Any]) -> list[str]:
    served = receipt["served"]
    grades = "  ".join(f"{grade} {number:,}" for grade, number in served.items())
    writes = f" ({count(receipt['unused_writes'], 'write')})" if receipt["unused_writes"] else ""
    counts = f"missed {receipt['missed']:,}   unused {receipt['unused']:,}{writes}"
    order = f"out of order {receipt['order_divergences']:,}"
    lines = [f"  served {sum(served.values()):,} of {receipt['recorded']:,}   {grades}      {counts}   {order}"]
    reasons: dict[str, int] = {}
    for one in receipt.get("unused_exchanges", ()):
        reasons[one["reason"]] = reasons.get(one["reason"], 0) + 1
    lines += [f"  unused: {reason} {number}" for reason, number in reasons.items() if reason != "not asked for"]
    if receipt["departures"]:
        lines.append(
            f"  {count(receipt['departures'], 'answer')} the agent left, or stayed at, otherwise than recorded"
        )
    if receipt["half_sent"]:
        lines.append(f"  {count(receipt['half_sent'], 'request')} broke off before they were whole")
    return lines


def _episodes(receipt: Mapping[str, Any]) -> list[str]:
    touched = receipt["episodes"]
    wrong = [one["episode"] for one in touched if not one["reproduced"]]
    lines = [f"  episodes  {len(touched) - len(wrong):,} of {len(touched):,} reproduced" + _named(wrong, "not: ")]
    if receipt.get("adopted"):
        lines.append(
            f"  adopted  {len(receipt['adopted']):,}"
            + _named([f"{one['episode']} by {one['by']}" for one in receipt["adopted"]], "")
        )
    if receipt["not_replayed"]:
        lines.append(f"  not replayed  {len(receipt['not_replayed']):,}" + _named(receipt["not_replayed"], ""))
    if receipt["incomplete"]:
        lines.append(
            f"  incomplete, cannot be replayed  {len(receipt['incomplete']):,}" + _named(receipt["incomplete"], "")
        )
    for one in receipt["unattributed"][:LISTED]:
        again = f" ({one['count']} times)" if one["count"] > 1 else ""
        lines.append(f"  of no episode  {one['request']}{again}: {one['reason']}")
    return lines


def loosely(receipt: Mapping[str, Any]) -> list[str]:
    """What stood for what, and what the rules did."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for one in receipt.get("bindings", ()):
        kinds.setdefault(one["kind"], []).append(one)
    lines = []
    for kind, bound in kinds.items():
        first = bound[0]
        example = f"{value(first['recorded'])} is {value(first['live'])} at {first['place']}"
        lines.append(f"  bound  {len(bound):,} {kind}   {_short(first['exchange'])}: {example}")
    used = [one for one in receipt.get("rules", ()) if one["uses"]]
    lines += [f"  rule {one['name']} ({one['action']})  needed {count(one['uses'], 'time')}" for one in used]
    nowhere = receipt.get("unmatched_rules", ())
    lines += [
        f"  rule {name} matched nothing: no request has that place" if name in nowhere
        else f"  rule {name} was never needed"
        for name in receipt.get("unused_rules", ())
    ]  # fmt: skip
    lines += [f"  rule {name} has expired and was not applied" for name in receipt.get("expired_rules", ())]
    return lines


def _because(receipt: Mapping[str, Any]) -> list[str]:
    """Why it is not reproduced where nothing diverged: rules were needed."""
    if receipt["reproduced"] or receipt["first_divergence"] is not None:
        return []
    used = [one for one in receipt.get("rules", ()) if one["uses"]]
    lines = []
    if number := receipt["served"]["relaxed"]:
        names = ", ".join(one["name"] for one in used if one["action"] != "repeat")
        lines.append(f"  because {count(number, 'answer')} needed rule {names}")
    if number := receipt["served"]["repeat"]:
        names = ", ".join(one["name"] for one in used if one["action"] == "repeat")
        lines.append(
            f"  because {count(number, 'answer')} {'was a repeat' if number == 1 else 'were repeats'} (rule {names})"
        )
    return lines


def _named(names: Sequence[str], lead: str) -> str:
    if not names:
        return ""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return f"   {lead}{', '.join(names[:LISTED])}{more}"


def _divergence(receipt: Mapping[str, Any]) -> list[str]:
    first = receipt["first_divergence"]
    if first is None:
        return []
    number = _where(first)
    lane = f", lane {first['lane']}" if first.get("lane") else ""
    episode = f"{first['episode']}  " if first.get("episode") and "episodes" in receipt else ""
    lines = [f"  first divergence  {episode}{number}{lane}", *(f"    {line}" for line in _what(first))]
    if first["kind"] == "unused":
        return lines
    lines.append("  after it nothing the agent saw is supported by the recording")
    if first["kind"] == "miss" and str(first.get("pointer") or "").startswith("body"):
        lines.append(
            "  an agent that chooses its own words cannot be replayed closed: redrive the requests, or record the "
            "model too"
        )
    return lines


def _where(first: Mapping[str, Any]) -> str:
    if first.get("number"):
        return f"request {first['number']} of {first['of']}"
    if first["kind"] == "unused":
        return "at the end"
    return "at a request of no episode" if first["kind"] == "miss" else "before the first request"


def _what(first: Mapping[str, Any]) -> list[str]:
    kind = first["kind"]
    if kind == "unused":
        return [f"not asked for  {first['request']}     {_short(first['exchange'])}: {first['reason']}"]
    if kind == "order":
        waited = _short(first.get("waited_for") or "//?")
        return [f"{first['request']}     waited 5 s for {waited}, lane {first.get('waited_for_lane')}, and was served"]
    if kind == "message":
        return [f"{first['request']}     {first['detail']}"]
    if first.get("text") and "exchange" in first:
        return [f"{first['request']}     {first['text']}"]
    if kind == "stayed":
        return [f"{first['request']}     the recorded agent left in the middle of this answer; this one did not"]
    if kind == "left":
        return [f"{first['request']}     the agent left before it had the whole answer; the recorded one had it"]
    if "exchange" not in first:
        return ["     ".join(str(one) for one in (first.get("request"), first.get("text")) if one)]
    if first["pointer"] is None:
        return [f"asked     {first['request']}", f"recorded  {_short(first['exchange'])}: {first['note']}"]
    pointer, unused = first["pointer"], f"{_short(first['exchange'])}, {first['state']}"
    return [
        f"asked     {first['request']}   {pointer} {value(first['asked'])}",
        f"recorded  {first['recorded_request']}   {pointer} {value(first['recorded'])}     {unused}",
    ]


def _next(receipt: Mapping[str, Any], code: int) -> str:
    first = receipt["first_divergence"] or {}
    shown = first.get("exchange")
    if code == Exit.OK:
        name = f"{receipt['run']}/{receipt['episode']}" if "episode" in receipt else receipt["run"]
        if not receipt["redrivable"]:  # WebSocket conversations are not re-driven
            return f"exit 0     next: replayproxy check {receipt['run']}"
        return f"exit 0     next: replayproxy redrive {name} --env NAME=URL"
    return f"exit {code}     explain: replayproxy show {shown or receipt['run']}"
