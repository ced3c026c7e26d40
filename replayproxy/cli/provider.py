"""`replayproxy provider check`: the conformance suite on a snapshot provider, bundled or of one's own."""

from __future__ import annotations

import sys
from typing import Any

import click

from replayproxy.cli.common import columns, echo_json, json_option, safe
from replayproxy.errors import Exit, WrongUsage
from replayproxy.state.conformance import Check, conform, failures
from replayproxy.state.loader import Loaded, load, parse_named


@click.group(short_help="Run the conformance suite on a snapshot provider.")
def command() -> None:
    """Snapshot providers: is this one fit to record and restore a state?"""


@command.command("check", short_help="Run the conformance suite.")
@click.argument("named", metavar="NAME=SPEC")
@click.option(
    "--restore", "write", is_flag=True, help="Also try restores: the state is WRITTEN, and put back at the end."
)
@click.option(
    "--with", "words", multiple=True, metavar="WORD=VALUE", help="What stands in braces: episode=e1, meta.X=.."
)
@json_option
def check(named: str, write: bool, words: tuple[str, ...], as_json: bool) -> int:
    """Read the state as a recording would, and say what of the provider's contract holds.

    While it runs, nobody else may write the state. Without --restore nothing is written. Exit 0: all that was checked
    holds; 1: something does not.
    """
    name, spec = parse_named(named)
    loaded = load(name, spec, context=dict(map(_word, words)))
    if write:
        print(
            f"replayproxy: writing the state of {safe(name)} ({safe(loaded.spec)}), and putting it back",
            file=sys.stderr,
        )
    checks = conform(lambda: loaded.make(loaded.context), write=write)
    if as_json:
        echo_json(_document(loaded, checks))
    else:
        _tell(loaded, checks)
    return int(Exit.DIFFERENT if failures(checks) else Exit.OK)


def _word(text: str) -> tuple[str, str]:
    word, equals, value = text.partition("=")
    if not equals:
        raise WrongUsage(f"--with {text}: it is WORD=VALUE", hint="for instance --with episode=e1")
    return word, value


def _document(loaded: Loaded, checks: list[Check]) -> dict[str, Any]:
    return {
        "snapshot": loaded.name,
        "spec": loaded.spec,
        "conforms": not failures(checks),
        "checks": [{"name": one.name, "outcome": one.outcome, "detail": one.detail} for one in checks],
    }


def _tell(loaded: Loaded, checks: list[Check]) -> None:
    checked = [one for one in checks if one.outcome != "not checked"]
    wrong = len(failures(checks))
    verdict = (
        f"{wrong} of {len(checked)} promises broken" if wrong else f"all {len(checked)} promises that were checked hold"
    )
    print(f"{safe(loaded.name)}={safe(loaded.spec)}: {verdict}")
    for line in columns([["", one.outcome, one.name, safe(one.detail)] for one in checks]):
        print(line)
    if any("was not allowed" in one.detail for one in checks):
        print(
            f"next: replayproxy provider check {safe(loaded.name)}=.. --restore   (writes the state, and puts it back)"
        )
