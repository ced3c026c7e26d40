"""Writes the table of docs/matching.md from the rules in the code. `--check` only says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from replayproxy.core.canonical import KEY_TABLE

PAGE = Path(__file__).parent / "matching.md"
BEGIN, END = "<!-- made from the code by `make docs` -->\n", "<!-- end -->\n"


def table() -> str:
    rows = [("part of a request", "in the key", "rule"), ("---", "---", "---"), *KEY_TABLE]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def page(text: str) -> str:
    """The page with the table between its marks made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


def main() -> int:
    text = PAGE.read_text()
    made = page(text)
    if "--check" in sys.argv:
        return 0 if made == text else 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
