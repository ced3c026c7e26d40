"""`check --md`: the report as Markdown, for the summary of a CI job or a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replayproxy.cli.check_table import table
from replayproxy.cli.check_text import report
from replayproxy.core.shown import safe

SHOWN = 20
MARKS = {0: "✅ PASS", 1: "❌ FAIL"}


def markdown(documents: Sequence[Mapping[str, Any]]) -> str:
    """Per run: the verdict as heading, the rate, a table of kinds, the findings, the whole report folded."""
    return "\n".join(line for told in documents for line in _run(told)) + "\n"


def cell(text: object) -> str:
    """Text that stays text inside a table of Markdown: on one line, nothing in it is markup."""
    shown = safe(str(text))
    return "".join(
        f"\\{char}" if char in "\\`*_{}[]<>()#+!|~$@:" else "&amp;" if char == "&" else char for char in shown
    )


def _run(told: Mapping[str, Any]) -> Iterator[str]:
    lines = report(told)
    yield f"### {cell(told['run'])}: {MARKS.get(told['exit'], '⚠️ NOT JUDGED')}"
    yield ""
    yield f"{cell(lines[1])}"
    yield ""
    yield from (f"- {cell(why)}" for why in told["why"])
    yield from ["", "| kind | findings | episodes | could not look in |", "|---|---|---|---|"]
    yield from _kinds(told)
    yield ""
    yield from _findings(told)
    fence = "`" * 8
    yield from ["<details><summary>The whole report</summary>", "", f"{fence}text", *lines, fence, "</details>", ""]


def _kinds(told: Mapping[str, Any]) -> Iterator[str]:
    for kind in dict.fromkeys(line.split()[0] for line in table(told)[1:] if line[:1].strip()):
        found = [finding for finding in told["findings"] if finding["kind"] == kind]
        by_grade = ", ".join(
            f"{sum(f['grade'] == grade for f in found)} {grade}"
            for grade in ("proven", "confirmed", "statistical", "suspected")
            if any(f["grade"] == grade for f in found)
        )
        blind = sum(kind in seen["not_checked"] for seen in told["coverage"].values())
        episodes = len({finding["episode"] for finding in found})
        yield f"| {kind} | {by_grade or '-'} | {episodes or '-'} | {blind:,} of {len(told['verdicts']):,} |"


def _findings(told: Mapping[str, Any]) -> Iterator[str]:
    if not told["findings"]:
        return
    yield from ["| | grade | kind | episode | what | blame |", "|---|---|---|---|---|---|"]
    for finding in told["findings"][:SHOWN]:
        known = " (known)" if "known" in finding else ""
        cells = (finding["number"] + known, finding["grade"], finding["kind"], finding["episode"], finding["title"],
                 finding["blame"])  # fmt: skip
        yield f"| {' | '.join(map(cell, cells))} |"
    rest = len(told["findings"]) - SHOWN
    yield from [f"\nand {rest:,} more\n" if rest > 0 else ""]
