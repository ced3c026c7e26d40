"""What a replay did, as documents: the receipt of an episode, the receipt of a run.

`reproduced` is strict: something was served that an environment had answered, all of it exact or canonical, nothing
missed, left unused, out of order, ambiguous or faulty. A receipt that cannot know says so in `lane_ambiguous`, or by
no `environment_answers`, and is not reproduced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.misses import Document, message_document, miss_document, named, near_document
from replayproxy.core.nonces import CREDENTIALS, Binding
from replayproxy.core.relax import Relaxation
from replayproxy.core.replayer import Divergence, Grade, Replayer
from replayproxy.core.script import Entry, Script
from replayproxy.core.unlike import plain
from replayproxy.errors import Exit

LISTED = 100
"""So many unused exchanges and misses are listed in a receipt; the numbers count all."""

BINDINGS_LISTED = 10_000

SUMMED = (
    "missed", "unused", "unused_writes", "order_divergences", "lane_ambiguous", "half_sent", "departures", "recorded",
    "requests", "environment_answers",
)  # fmt: skip


def episode_receipt(replayer: Replayer, *, contacts: int = 0) -> Document:
    """The receipt of one episode, as it stands now."""
    tally, script = replayer.tally, replayer.script
    unused = replayer.unused()
    receipt: Document = {
        "run": script.run,
        "episode": script.episode,
        "reproduced": False,
        "served": {grade.value: tally.served[grade] for grade in Grade},
        "missed": tally.misses,
        "unused": len(unused),
        "unused_writes": sum(entry.write for entry in unused),
        "order_divergences": tally.order_divergences,
        "lane_ambiguous": script.lane_ambiguous + tally.overlapping,
        "half_sent": tally.half_sent,
        "departures": tally.departures,
        "upstream_contacts": contacts,
        "faults": list(tally.faults[:LISTED]),
        "recorded": sum(entry.owed for entry in script.entries),
        "requests": replayer.requests,
        "environment_answers": sum(script.entries[at].exchange.is_the_environments for at in replayer.consumers),
        "redrivable": any(not entry.skip and entry.exchange.websocket is None for entry in script.entries),
        "credentials_compared": all(one.scope != CREDENTIALS for one in replayer.bindings),
        "requests_missed": tally.requests_missed,
        "first_divergence": _first(replayer, unused),
        "unused_exchanges": [_unused(script, entry) for entry in unused[:LISTED]],
        "bindings": [binding_document(script, one) for one in replayer.bindings[:BINDINGS_LISTED]],
        **_rules(script.rules, replayer.uses),
        "misses": [
            *(miss_document(script, miss) for miss in list(replayer.misses.values())[:LISTED]),
            *(message_document(script, miss) for miss in replayer.message_misses[:LISTED]),
        ],
    }
    receipt["reproduced"] = is_reproduced(receipt)
    if receipt["first_divergence"]:
        receipt["supported"] = "nothing the agent saw after the first divergence is supported by the recording"
    return receipt


def binding_document(script: Script, binding: Binding) -> Document:
    """A value that stood for a recorded one: which, since which exchange, at which place of its request."""
    pair = (binding.recorded, binding.live)
    if binding.scope == "json-rpc":
        pair = tuple(plain(jsonvalue.parse(text)) for text in pair)
    return {
        "recorded": pair[0],
        "live": pair[1],
        "exchange": f"{script.address}/{binding.exchange}",
        "place": binding.place,
        "kind": binding.scope,
    }


def _rules(rules: Relaxation, uses: Mapping[str, int]) -> Document:
    """Every rule with how often it was needed; those never needed, of these the ones that matched
    nothing at all, and those that have expired, by name."""
    return {
        "rules": [{"name": rule.name, "action": rule.action, "uses": uses.get(rule.name, 0)} for rule in rules.rules],
        "unused_rules": [rule.name for rule in rules.rules if not uses.get(rule.name)],
        "unmatched_rules": [rule.name for rule in rules.rules if rule.name not in rules.found],
        "expired_rules": [rule.name for rule in rules.expired],
    }


def is_reproduced(receipt: Document) -> bool:
    """The strict rule, over one receipt's numbers."""
    served = receipt["served"]
    faithful = served["exact"] + served["canonical"]
    wrong = ("missed", "unused", "order_divergences", "lane_ambiguous", "half_sent", "departures", "upstream_contacts")
    return bool(
        faithful
        and receipt["environment_answers"]
        and not served["relaxed"]
        and not served["repeat"]
        and not any(receipt[name] for name in wrong)
        and not receipt["faults"]
    )


def _unused(script: Script, entry: Entry) -> Document:
    return {
        "exchange": f"{script.address}/{entry.seq}",
        "lane": entry.lane,
        "request": named(entry.exchange.request),
        "reason": entry.skip or "not asked for",
    }


def _first(replayer: Replayer, unused: Sequence[Entry]) -> Document | None:
    script, first = replayer.script, replayer.tally.first
    of = sum(entry.owed for entry in script.entries)
    if first is None:
        if not unused:
            return None
        return {"kind": "unused", "number": None, "of": of, **_unused(script, unused[0])}
    found: Document = {"kind": first.kind, "number": first.number, "of": of, "lane": first.lane, "at": first.at}
    found.update(_detail(script, first))
    return found


def _detail(script: Script, first: Divergence) -> Document:
    if first.miss is not None:
        request = first.miss.asked.request
        nearest = near_document(script, first.miss.near[0], first.miss.lane) if first.miss.near else {}
        recorded = named(first.miss.near[0].entry.exchange.request) if first.miss.near else None
        return {"request": named(request), "recorded_request": recorded, **nearest}
    if first.entry is None:
        return {"text": first.text}
    found: Document = {
        "request": named(first.entry.exchange.request),
        "exchange": f"{script.address}/{first.entry.seq}",
    }
    if first.text:
        found["text"] = first.text
    if first.message is not None:
        document = message_document(script, first.message)
        near = document["nearest"][0] if document["nearest"] else {"pointer": None, "recorded": None, "asked": None}
        found |= {"detail": document["detail"], "message": document["message"], **near}
    if first.other is not None:
        found |= {"waited_for": f"{script.address}/{first.other.seq}", "waited_for_lane": first.other.lane}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A request that no episode could be asked for: `count` times. `reason` says why."""

    request: str
    reason: str
    at: int
    count: int = 1


def run_receipt(
    run: str,
    episodes: Sequence[Document],
    *,
    not_replayed: Sequence[str],
    incomplete: Sequence[str] = (),
    strays: Sequence[Stray] = (),
    faults: Sequence[str] = (),
    contacts: int = 0,
    rules: Relaxation | None = None,
) -> Document:
    """The receipt of a run: the sums, one receipt per touched episode, and the untouched by name.

    A run is reproduced when something was served, every touched episode is reproduced, and every request belonged to
    one. Untouched episodes are named and do not count: an agent may be given a part of a run.
    """
    total: Document = {
        "run": run,
        "reproduced": False,
        "served": {grade.value: sum(one["served"][grade.value] for one in episodes) for grade in Grade},
    }
    for name in SUMMED:
        total[name] = sum(one[name] for one in episodes)
    total["missed"] += len(strays)
    total["upstream_contacts"] = contacts
    total["faults"] = [*faults, *(f"{one['episode']}: {fault}" for one in episodes for fault in one["faults"])][:LISTED]
    total["first_divergence"] = _earliest(episodes, strays)
    uses: dict[str, int] = {}
    for one in episodes:
        for rule in one["rules"]:
            uses[rule["name"]] = uses.get(rule["name"], 0) + rule["uses"]
    total |= _rules(Relaxation(()) if rules is None else rules, uses)
    total["redrivable"] = any(one["redrivable"] for one in episodes)
    total["credentials_compared"] = all(one["credentials_compared"] for one in episodes)
    total["bindings"] = [binding for one in episodes for binding in one["bindings"]][:BINDINGS_LISTED]
    total["not_replayed"] = list(not_replayed)
    total["incomplete"] = list(incomplete)
    total["unattributed"] = [
        {"request": stray.request, "reason": stray.reason, "count": stray.count} for stray in strays[:LISTED]
    ]
    total["episodes"] = list(episodes)
    total["reproduced"] = bool(episodes and is_reproduced(total) and all(one["reproduced"] for one in episodes))
    return total


def _earliest(episodes: Sequence[Document], strays: Sequence[Stray]) -> Document | None:
    found = [{**one["first_divergence"], "episode": one["episode"]} for one in episodes if one["first_divergence"]]
    found += [
        {"kind": "miss", "number": None, "of": None, "lane": None, "at": stray.at, "episode": None,
         "request": stray.request, "text": stray.reason}
        for stray in strays
    ]  # fmt: skip
    # What was left unused has no instant: it comes after everything that has one.
    return min(found, key=lambda one: one.get("at") or 1 << 63, default=None)


def judged(receipt: Mapping[str, Any]) -> int:
    """The exit code that a receipt stands for: 0 reproduced, 1 not, 3 nothing asked for or not to be known.

    Faults are not looked at: what they are worth (our own, or the store's) is known where they were caught.
    """
    if receipt["reproduced"]:
        return int(Exit.OK)
    if not sum(receipt["served"].values()):
        return int(Exit.DIFFERENT if receipt["missed"] or receipt["departures"] else Exit.UNJUDGED)
    unknown = receipt["lane_ambiguous"] or unanswered(receipt)
    return int(Exit.UNJUDGED if unknown and receipt["first_divergence"] is None else Exit.DIFFERENT)


def unanswered(receipt: Mapping[str, Any]) -> bool:
    """Whether what was served, in all or of one episode, holds no answer of an environment: it shows nothing."""
    return any(not one["environment_answers"] for one in (receipt, *receipt.get("episodes", ())))
