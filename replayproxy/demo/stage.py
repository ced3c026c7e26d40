"""What the demo needs around it: instances of the suite as processes, and the commands that a user would type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replayproxy.errors import WorldTrouble


@dataclass(slots=True)
class Instance:
    """One running suite."""

    name: str
    url: str
    process: subprocess.Popen[str]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        if self.process.stdout:
            self.process.stdout.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command's exit code, its JSON document (None when it printed none), and what it told on stderr."""

    code: int
    document: Any
    told: str


@dataclass(slots=True)
class Stage:
    """A folder with the store and the databases of the instances that run now."""

    folder: Path
    store: Path
    instances: dict[str, Instance] = field(default_factory=dict)

    def start(self, instances: Mapping[str, Sequence[str]]) -> None:
        """Starts one suite per name with the faults given; returns when all of them answer."""
        for name, faults in instances.items():
            database = self.folder / f"{name}.db"
            words = [sys.executable, "-m", "replayproxy.demo.environment", "--db", str(database)]
            for fault in faults:
                words += ["--fault", fault]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            self.instances[name] = Instance(name=name, url="", process=process)
        for name in instances:
            self.instances[name].url = _url(self.instances[name].process)

    def url(self, name: str) -> str:
        return self.instances[name].url

    def stop(self, *names: str) -> None:
        """Stops the named instances, or all."""
        for name in names or tuple(self.instances):
            self.instances.pop(name).stop()

    def command(self, *words: str) -> Ran:
        """`replayproxy WORDS --json` on the stage's store, as a process of its own, as a user would run it."""
        at = words.index("--") if "--" in words else len(words)
        argv = [sys.executable, "-m", "replayproxy", words[0], "--store", str(self.store), *words[1:at], "--json"]
        done = subprocess.run(
            [*argv, *words[at:]], capture_output=True, text=True, timeout=180, env=_plain_environment()
        )
        try:
            document = json.loads(done.stdout)
        except ValueError:
            document = None
        return Ran(code=done.returncode, document=document, told=done.stderr)


def _plain_environment() -> dict[str, str]:
    """Ours without any REPLAYPROXY_ variable: the demo must not act on a user's own store or recorder."""
    return {name: value for name, value in os.environ.items() if not name.startswith("REPLAYPROXY_")}


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise WorldTrouble(
            f"the demo suite did not start (it ended with {process.wait(5)})",
            hint="python -m replayproxy.demo.environment",
        )
    return str(json.loads(line)["url"])
