"""The canaries as checks: one for all clients that met with the same end and need the same done about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replayproxy.errors import Exit
from replayproxy.session.canary import NO_TIME, Canary
from replayproxy.session.canary_clients import STYLES
from replayproxy.session.diagnosis import Check, Level


def told(canaries: Sequence[Canary]) -> list[Check]:
    """In the order of the styles, what is well first; what could not be tried comes last, and is never `ok`."""
    groups: dict[tuple[str, str, str, bool], list[Canary]] = {}
    for one in canaries:
        groups.setdefault((one.style, one.result, one.hint, one.episode), []).append(one)
    absent = [one for one in canaries if one.result == "not-found"]
    styles = [
        _check(group)
        for style in STYLES
        for _, group in sorted(groups.items(), key=lambda item: _RANK[item[0][1]])
        if group[0].style == style and group[0].result != "not-found"
    ]
    return [*_interpreters(canaries), *styles, *_absent(absent)]


_RANK = {"recorded": 0, "passed-by": 1, "failed": 2, "not-found": 3}


def _check(group: Sequence[Canary]) -> Check:
    first = group[0]
    names = ", ".join(_names(group))
    if first.result == "recorded" and first.episode:
        end = "recorded"
    elif first.result == "recorded":
        end = f"recorded, but {first.hint}"
    elif first.result == "passed-by":
        end = f"would silently pass by -> {first.hint}"
    else:
        end = first.hint if first.hint == NO_TIME else f"failed: {first.hint}"
    good = first.result == "recorded" and first.episode
    level: Level = "ok" if good else "FAIL" if first.named else "----" if first.hint == NO_TIME else "WARN"
    code = Exit.UNJUDGED if level == "FAIL" else Exit.OK
    return Check(level=level, what="clients", text=f"{STYLES[first.style]}: {names}: {end}", exit=int(code))


def _names(group: Iterable[Canary]) -> list[str]:
    """Each client once, with its version, and with the transports where it is more than plain HTTP."""
    transports: dict[str, list[str]] = {}
    for one in group:
        transports.setdefault(f"{one.client.name}/{one.version}", []).append(one.transport)
    return [name if ways == ["http"] else f"{name} ({', '.join(ways)})" for name, ways in transports.items()]


def _interpreters(canaries: Sequence[Canary]) -> list[Check]:
    """Which Python has what was tried: the agent's may have another version, or another default."""
    clients: dict[str, dict[str, None]] = {}
    for one in canaries:
        if one.python:
            clients.setdefault(one.python, {})[one.client.name] = None
    return [
        Check(level="----", what="clients", text=f"clients of {python}: {', '.join(names)}")
        for python, names in clients.items()
    ]


def _absent(canaries: Sequence[Canary]) -> list[Check]:
    if not canaries:
        return []
    named = canaries[0].named
    names = ", ".join(
        f"{name} ({needs})" for name, needs in {one.client.name: one.client.needs for one in canaries}.items()
    )
    level: Level = "FAIL" if named else "----"
    text = f"not tried, because they are not there: {names}"
    return [Check(level=level, what="clients", text=text, exit=int(Exit.UNJUDGED if named else Exit.OK))]
