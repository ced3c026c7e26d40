"""Verifies a whole store from outside: the reading is done by a child process, which damage may end."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from replayproxy.errors import StoreTrouble, UnknownAddress
from replayproxy.storage.environment import why_not_whole
from replayproxy.storage.layout import DATA_FILE


@dataclass(slots=True)
class Report:
    """What a verification found. `read`: how many records of each kind it could read. A damage with `removed` is of
    what is marked as removed: `gc` frees it."""

    damaged: list[dict[str, str]] = field(default_factory=list)
    read: dict[str, int] = field(default_factory=dict)


def verify(path: Path) -> Report:
    """Reads everything. Raises StoreTrouble only when there is nothing to say about records: a newer format."""
    if not (path / DATA_FILE).exists():
        raise UnknownAddress(f"there is no store at {path}", hint="--store DIR")
    report = Report()
    if reason := why_not_whole(path):
        report.damaged.append({"kind": "file", "address": DATA_FILE, "why": reason})
        return report
    skipped: list[str] = []
    while True:
        said = _scan(path, skipped)
        report.damaged += [damage for damage in said.damaged if damage not in report.damaged]
        if said.newer:
            raise StoreTrouble(said.newer, hint="upgrade replayproxy")
        if said.read is not None:
            report.read = said.read
            return report
        why = f"reading it ends the process: {said.ending}"
        report.damaged.append({"kind": "file", "address": said.stage or DATA_FILE, "why": why})
        if said.stage is None:
            return report
        skipped.append(said.stage)  # what lies behind it is still looked at


@dataclass(slots=True)
class _Said:
    """What the child said until it ended. `read` None: it did not come to its end."""

    damaged: list[dict[str, str]] = field(default_factory=list)
    read: dict[str, int] | None = None
    stage: str | None = None
    newer: str = ""
    ending: str = ""


def _scan(path: Path, skipped: list[str]) -> _Said:
    command = [sys.executable, "-P", "-m", "replayproxy.storage.scan", str(path)]
    command += [part for stage in skipped for part in ("--skip", stage)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    said = _Said()
    for line in child.stdout:
        try:
            told = orjson.loads(line)
        except orjson.JSONDecodeError:
            break  # the line that it was ended in
        said.stage = told.get("stage", said.stage)
        said.read = told.get("read", said.read)
        said.newer = told.get("newer", said.newer)
        if "damaged" in told:
            said.damaged.append(told["damaged"])
    complaint = child.communicate()[1].decode("utf-8", "replace").strip()
    said.ending = _ending(child.returncode, complaint)
    return said


def _ending(code: int, complaint: str) -> str:
    if code < 0:
        return signal.Signals(-code).name
    return complaint.splitlines()[-1] if complaint else f"exit {code}"
