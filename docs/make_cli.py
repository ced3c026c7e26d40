"""Writes docs/cli.md from each command's `--help`. `--check` only says whether it is up to date (exit 1 if not)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from replayproxy.cli.main import COMMANDS, cli

PAGE = Path(__file__).parent / "cli.md"
HEAD = """# Command line

This page is made from `--help` by `make docs`; a test holds it to that.
Exit codes: 0 as hoped · 1 a difference or a failing finding · 2 wrong usage · 3 cannot be judged · 4 trouble with the
store · 5 trouble with the world · 70 our own fault · 130 a second interrupt. With `-- COMMAND`: 125, 126, 127 when it
could not be started, 128+N when signal N ended it.
"""


def page() -> str:
    parts = [HEAD, "## replayproxy\n", _help(cli, "replayproxy")]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if command is None or name == "verify":
            continue
        parts += [f"## replayproxy {name}\n", _help(command, f"replayproxy {name}")]
    return "\n".join(parts)


def _help(command: click.Command, name: str) -> str:
    # The names of the help option come down from the group, as they do when the program is called.
    names = cli.context_settings["help_option_names"]
    context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100, help_option_names=names)
    return "```\n" + command.get_help(context).rstrip() + "\n```\n"


def main() -> int:
    made = page()
    if "--check" in sys.argv:
        return 0 if PAGE.read_text() == made else 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
