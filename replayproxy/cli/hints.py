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


_NUMBER = re.compile(r"F\d+\Z")


def _imported(match: re.Match[str], file: str) -> str:
    """A number is this archive's: another check of the store may have it too."""
    first, (whole, verb, finding, rest) = f"replayproxy import {file}", match.groups()
    if whole is None and _NUMBER.match(finding):
        return first
    return f"{first} && {whole or verb + finding + rest}"


def _in_archive(line: str, run: str, file: str) -> str:
    """`run`: a pattern. What sends something again begins with the archive's import, since it keeps what came out."""
    end = r"(?=[/#' ]|\Z)"
    sends = rf"(replayproxy (?:redrive|race) {run}{end}.*)|(replayproxy reproduce )(\S+)(.*)"
    line = re.sub(sends, lambda match: _imported(match, file), line)
    return re.sub(rf"(replayproxy (?:{_READS}) '?)({run}){end}", lambda match: f"{match[1]}{file}/{match[2]}", line)
