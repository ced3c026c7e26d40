"""The rules that a replay obeys: those of the config, and those that the run was recorded with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from replayproxy.core.relax import Relaxation
from replayproxy.core.rules import Rule, parse_rules
from replayproxy.core.values import Run
from replayproxy.errors import WrongUsage


def relaxation(run: Run, rules: Sequence[Rule], today: date) -> Relaxation:
    """Of two rules with one name the config's counts. Raises WrongUsage for a kept rule that cannot be meant."""
    try:
        kept = parse_rules(run.config)
    except WrongUsage as wrong:
        raise WrongUsage(f"a rule that was kept in {run.name}: {wrong.what}", hint=wrong.hint) from None
    named = {rule.name for rule in rules}
    return Relaxation([*rules, *(rule for rule in kept if rule.name not in named)], today)
