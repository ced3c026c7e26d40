"""The canaries as checks: one for all clients that met with the same end and need the same done about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replayproxy.errors import Exit
from replayproxy.session.canary import NO_TIME, Canary
from replayproxy.session.canary_clients import STYLES, Style
from replayproxy.session.diagnosis import Check, Level


def told(canaries: Sequence[Canary]) -> list[Check]:
    """In the order of the styles, what is well first; what was not tried comes last, and is never `ok`."""
    groups: dict[tuple[Style, str, str, bool], list[Canary]] = {}
    for one in canaries:
        if not _untried(one):
            groups.setdefault((one.style, one.result, one.hint, one.episode), []).append(one)
    styles = [
        _check(group)
        for style in STYLES
        for (of, *_), group in sorted(groups.items(), key=lambda item: _RANK[item[0][1]])
        if of == style
    ]
    return [*_interpreters(canaries), *styles, *_not_tried([one for one in canaries if _untried(one)])]


_RANK: dict[str, int] = {"recorded": 0, "passed-by": 1, "failed": 2}


def _untried(canary: Canary) -> bool:
    return canary.result == "not-found" or canary.hint == NO_TIME


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
        end = f"failed: {first.hint} -> alone: --clients {','.join(_words(group))}"
    good = first.result == "recorded" and first.episode
    level: Level = "ok" if good else "FAIL" if first.named else "WARN"
    code = Exit.UNJUDGED if level == "FAIL" else Exit.OK
    return Check(level=level, what="clients", text=f"{STYLES[first.style]}: {names}: {end}", exit=int(code))


def _names(group: Iterable[Canary]) -> list[str]:
    """Each client once, with its version, and with the transports where it is more than plain HTTP."""
    transports: dict[str, list[str]] = {}
    for one in group:
        transports.setdefault(f"{one.client.name}/{one.version}", []).append(one.transport)
    return [name if ways == ["http"] else f"{name} ({', '.join(ways)})" for name, ways in transports.items()]


def _words(group: Iterable[Canary]) -> list[str]:
    """As `--clients` takes them."""
    return list(dict.fromkeys(f"{one.client.name}:{one.style}" for one in group))


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


def _not_tried(canaries: Sequence[Canary]) -> list[Check]:
    absent = [one for one in canaries if one.result == "not-found"]
    late = [one for one in canaries if one.result != "not-found"]
    needs = {one.client.name: one.client.needs for one in absent}
    shown = [name if name == need else f"{name} ({need})" for name, need in needs.items()]
    texts = {
        "not tried, because they are not there: " + ", ".join(shown): absent,
        f"not tried, because {NO_TIME}: " + ", ".join(_words(late)): late,
    }
    return [
        Check(
            level="FAIL" if group[0].named else "----", what="clients", text=text,
            exit=int(Exit.UNJUDGED if group[0].named else Exit.OK),
        )
        for text, group in texts.items()
        if group
    ]  # fmt: skip
