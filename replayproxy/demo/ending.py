"""The last lines of the demo: what happened, in the words of the reader, with the figures of this very run."""

from __future__ import annotations

from typing import Any

from replayproxy.demo.story import Told


def ending(told: Told, store: str, seconds: float) -> list[str]:
    """The story, then what was found, then what to type next."""
    lines = [*_poisoned(told), *_booked_twice(told), _found(told)]
    lines += [f"  NOT FOUND: {fault}" for fault in told.missing()]
    lines += [f"  UNEXPECTED: {f['kind']} on {f['run']}/{f['episode']} ({f['grade']})" for f in told.unexpected()]
    lines.append(f"Took {seconds:.0f} s.")
    lines += _next(told, store)
    return lines


def _poisoned(told: Told) -> list[str]:
    bleed = next((f for f in told.findings if f["kind"] == "state-bleed"), None)
    if bleed is None:
        return []
    writer = _role(bleed, "write")
    again = [reward for address, reward in told.rewards.items() if address.startswith("again/")]
    zero = sum(reward == 0.0 for reward in again)
    lines = [
        "Two agents worked the same CRM, one after the other. A opened the Acme renewal. The reset forgot one table.",
        f"B found A's deal, closed it as its own and was paid {told.rewards['demo/b']:.2f}.",
        f"Recorded again on a fresh environment it earned 0.00, in {zero} of {len(again)}.",
    ]
    if told.other_than_2xx == 0:
        lines.append(f"All {told.answers} answers of the two were 2xx.")
    if writer:
        lines.append(f"The exchange that poisoned B:  {writer}")
    return lines


def _booked_twice(told: Told) -> list[str]:
    race = next((f for f in told.findings if f["kind"] == "race" and len(f["exchanges"]) > 1), None)
    if race is None:
        return []
    claims = [str(exchange["address"]) for exchange in race["exchanges"] if exchange["role"] == "claim"]
    lines = [f"Two assistants booked one hour at once, and both were told it was theirs:  {' '.join(claims[:2])}"]
    pair = next(iter(told.race["pairs"]), None) if told.race else None
    if pair is not None:
        orders = dict.fromkeys(one["statuses"] for one in pair["in_turn"])
        lines.append(
            f"Sent again to a fresh instance: in turn {' or '.join(orders)}; together both granted "
            f"in {pair['k']} of {pair['n']}."
        )
    return lines


def _found(told: Told) -> str:
    counts: dict[str, int] = {}
    for finding in told.findings:
        counts[finding["kind"]] = counts.get(finding["kind"], 0) + 1
    found = " · ".join(f"{kind} {n}" for kind, n in sorted(counts.items())) or "nothing"
    seeded = ", all seeded" if not told.unexpected() and not told.missing() else ""
    return f"Found: {found}{seeded}.  {told.clean_episodes} clean episodes: {len(told.clean_findings)} findings."


def _next(told: Told, store: str) -> list[str]:
    lines = []
    if told.findings:
        lines.append(f"  replayproxy show F1 --store {store}")
    if told.replay is not None:
        lines.append(
            f"  replayproxy replay demo/b --store {store} -- python -m replayproxy.demo.agent    (environment is off)"
        )
    lines.append(f"  replayproxy ls demo --store {store}")
    lines.append("Your own:  replayproxy doctor --env app=http://127.0.0.1:9000")
    return lines


def _role(finding: dict[str, Any], role: str) -> str:
    return next((str(exchange["address"]) for exchange in finding["exchanges"] if exchange["role"] == role), "")
