"""Whose an exchange is, when rules speak beside its carriers: who is named, who contradicts, which ids are new.

Rules of this file: the strongest carrier that names an episode decides, and whoever names another one is a
contradiction, which is told and never obeyed. An id that belongs to nobody yet joins the episode that was decided on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replayproxy.core.extract import Extracted, Found
from replayproxy.core.identity import CARRIERS, Claims

type Alias = tuple[str, str]
"""An id: the space it is of, and the value as it may be shown (a secret's token)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`name` None: nothing named an episode that is known. `carrier` is who named it. `rivals` are (who, other name).
    `unknown`: ids that belong to no episode yet."""

    name: str | None
    carrier: str
    rivals: tuple[tuple[str, str], ...]
    unknown: tuple[tuple[Alias, Found], ...]


def alias_of(found: Found, shown: Callable[[str], str]) -> Alias:
    """A redacted value is its own token already."""
    secret = found.rule.secret and not found.redacted
    return (found.rule.space, shown(found.value) if secret else found.value)


def at_odds(claims: Claims) -> bool:
    """Whether the marks of one request name two episodes."""
    named = [name for slot, _ in CARRIERS if (name := getattr(claims, slot)) is not None]
    return len(named) > 1 and len(set(named)) > 1


def decide(
    claims: Claims,
    extracted: Extracted,
    owner: Callable[[Alias], str | None],
    shown: Callable[[str], str],
) -> Decision:
    """`owner` gives the episode that an id belongs to."""
    named: list[tuple[str, str]] = []
    for slot, carrier in CARRIERS:
        name: str | None = getattr(claims, slot)
        if name is not None:
            named.append((carrier, name))
    named += [(f"rule {one.rule.name}", one.value) for one in extracted.found if one.rule.fills == "episode"]
    unknown: dict[Alias, Found] = {}
    for one in extracted.aliases:
        alias = alias_of(one, shown)
        belongs = owner(alias)
        if belongs is None:
            unknown.setdefault(alias, one)
        else:
            named.append((f"rule {one.rule.name}", belongs))
    carrier, name = named[0] if named else ("", None)
    rivals = dict.fromkeys((who, other) for who, other in named[1:] if other != name)
    return Decision(name=name, carrier=carrier, rivals=tuple(rivals), unknown=tuple(unknown.items()))
