"""The process beside a recorder that judges its episodes, so that no judging takes time from the traffic.

It is spoken to by lines of JSON on its standard input, and answers each on its standard output:

    {"store": PATH, "run": NAME, "config": PATH or null}                     the first line, no answer
    {"do": "sealed", "episode": NAME}                                        no answer
    {"do": "judge", "id": N, "episode": NAME, "open": [NAME], "as_of": NS or null}
        -> {"id": N, "verdict": {..}} or {"id": N, "trouble": TEXT}

It ends when its input does, and at no interrupt: the recorder's terminal interrupts both.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import IO, Any

from replayproxy.core.rules import parse_rules
from replayproxy.errors import Problem
from replayproxy.session.config import Config, discover
from replayproxy.session.nearby import Nearby
from replayproxy.session.silences import silences
from replayproxy.storage import open_store

NICENESS = 5
"""Traffic comes first."""


def answers(lines: Iterator[str], nearby: Callable[[], Nearby]) -> Iterator[dict[str, Any]]:
    """The answers to the lines that follow the first. Nothing that goes wrong with one episode ends it."""
    known: Nearby | None = None
    for line in lines:
        asked = json.loads(line)
        try:
            known = known or nearby()
            if asked["do"] == "sealed":
                known.sealed(asked["episode"])
                continue
            told = known.judge(asked["episode"], open_names=asked["open"], as_of=asked["as_of"])
            yield {"id": asked["id"], "verdict": told}
        except Problem as problem:
            yield {"id": asked.get("id"), "trouble": problem.what}
        except Exception as fault:
            yield {"id": asked.get("id"), "trouble": f"{type(fault).__name__}: {fault}; a fault of replayproxy"}


def serve(source: IO[str], sink: IO[str]) -> None:
    """Until `source` ends."""
    lines = iter(source.readline, "")
    first = json.loads(next(lines, "null") or "null")
    if first is None:
        return
    config = discover(Path(first["config"]), Path.cwd(), {}) if first["config"] else Config()
    rules, silenced = parse_rules(config.rules), silences(config.silence)
    with open_store(Path(first["store"])) as store:

        def nearby() -> Nearby:
            return Nearby(store.reader(), first["run"], rules=rules, silences=silenced, today=_today())

        for answer in answers(lines, nearby):
            sink.write(json.dumps(answer, default=str) + "\n")
            sink.flush()


def _today() -> date:
    return datetime.fromtimestamp(time.time(), tz=UTC).date()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(NICENESS)
    sink, sys.stdout = sys.stdout, sys.stderr
    with suppress(BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin, sink)


if __name__ == "__main__":
    main()
