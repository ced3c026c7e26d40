"""Commands that are proposed run as they stand: they name the archive's file and the `--store` that was given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from replayproxy.cli.common import safe

_READS = "show|check|diff|ls|explain|replay|mask|blame|grep|export"
_COMMAND = re.compile(rf"replayproxy (?:{_READS}|redrive|reproduce|race)(?= )(?! --store)")


def runnable(line: str, stores: Sequence[Path] = (), archives: Mapping[str, str] | None = None) -> str:
    """A line with proposed commands. `archives`: by run, the file that it was named in, if it was."""
    for run, archive in (archives or {}).items():
        line = _in_archive(line, re.escape(safe(run)), safe(archive)) if archive else line
    named = "".join(f" --store {shlex.quote(safe(str(one)))}" for one in stores)
    return _COMMAND.sub(lambda match: match[0] + named, line) if named else line


def _in_archive(line: str, run: str, file: str) -> str:
    """`run`: a pattern. What sends something again begins with the archive's import."""
    end = r"(?=[/#' ]|\Z)"
    line = re.sub(
        rf"replayproxy (?:(?:redrive|race) {run}{end}|reproduce ).*", lambda _: f"replayproxy import {file}", line
    )
    return re.sub(rf"(replayproxy (?:{_READS}) '?)({run}){end}", lambda match: f"{match[1]}{file}/{match[2]}", line)
