"""The ready rule sets: how known frameworks tell their episodes apart, as rules that come with the package."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from importlib import resources
from typing import Any

from replayproxy.core.extractrule import extract_rules
from replayproxy.errors import WrongUsage


@cache
def names() -> tuple[str, ...]:
    """The ready rule sets, by name."""
    folder = resources.files("replayproxy.session") / "rulesets"
    return tuple(sorted(one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml")))


def rule_tables(wanted: Sequence[str]) -> list[dict[str, Any]]:
    """The `[[rule]]` tables of the named sets, in order. WrongUsage for a name that is none."""
    tables: list[dict[str, Any]] = []
    for name in dict.fromkeys(wanted):
        if name not in names():
            raise WrongUsage(
                f"--rules {name}: there is no rule set of that name", hint=f"there are {', '.join(names())}"
            )
        text = (resources.files("replayproxy.session") / "rulesets" / f"{name}.toml").read_text(encoding="utf-8")
        tables += tomllib.loads(text)["rule"]
    return tables


def kept(tables: Sequence[Mapping[str, Any]], today: date) -> list[dict[str, Any]]:
    """Rules as a run keeps them: an example has done its work when the file was read, and what was not applied does
    not belong to the run."""
    expired = {rule.name for rule in extract_rules(tables) if rule.until is not None and today > rule.until}
    applied = (table for table in tables if table.get("action") != "extract" or table.get("name") not in expired)
    return [{key: value for key, value in table.items() if key != "example"} for table in applied]
