"""Commands that are proposed run as they stand: they name the archive's file and the `--store` that was given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from replayproxy.cli.common import safe

_READS = "show|check|diff|ls|explain|replay"
_COMMAND = re.compile(rf"replayproxy (?:{_READS}|redrive)(?= )(?! --store)")


def runnable(line: str, stores: Sequence[Path] = (), archives: Mapping[str, str] | None = None) -> str:
    """A line with proposed commands. `archives`: by run, the file that it was named in, if it was."""
    for run, archive in (archives or {}).items():
        if not archive:
            continue
        name, file = re.escape(safe(run)), safe(archive)
        end = r"(?=[/#' ]|\Z)"
        line = re.sub(rf"replayproxy redrive {name}{end}.*", lambda _, file=file: f"replayproxy import {file}", line)
        line = re.sub(rf"(replayproxy (?:{_READS}) '?)({name}){end}", lambda m, file=file: f"{m[1]}{file}/{m[2]}", line)
    named = "".join(f" --store {shlex.quote(safe(str(one)))}" for one in stores)
    return _COMMAND.sub(lambda match: match[0] + named, line) if named else line
