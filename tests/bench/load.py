"""Load from wrk, read back as figures. One thread: the other core is the program's."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.machine import LOAD_CORE, pinned

_DONE = """
done = function(summary, latency, requests)
  local e = summary.errors
  io.stderr:write(string.format('{"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"errors":%d,"not_2xx":%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    e.connect + e.read + e.write + e.timeout, e.status))
end
"""

_IN_ORDER = """
local paths, at = {}, 0
for line in io.lines("%s") do paths[#paths + 1] = line end
request = function()
  at = at + 1
  return wrk.format("GET", paths[(at - 1) %% #paths + 1])
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """`seconds`: of wall time. `errors`: connections that failed; `not_2xx`: answers with another status."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    errors: int
    not_2xx: int

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    def to_json(self) -> dict[str, Any]:
        return {"rate": round(self.rate, 1), **{name: getattr(self, name) for name in self.__slots__}}


def wrk(
    url: str, *, connections: int = 16, seconds: float = 5, headers: Mapping[str, str] | None = None,
    write_every: int = 0,
    core: int | None = LOAD_CORE,
) -> Load:  # fmt: skip
    """Closed loop on one URL. `write_every`: each so many requests is a PUT of a small document."""
    script = ""
    if write_every:
        script = f"""
local n = 0
request = function()
  n = n + 1
  if n % {write_every} == 0 then
    return wrk.format("PUT", nil, {{["Content-Type"] = "application/json"}}, string.format('{{"n": %d}}', n))
  end
  return wrk.format("GET")
end
"""
    return _run(url, script, connections, seconds, headers or {}, core)


def in_order(base: str, paths: Path, *, connections: int = 16, seconds: float = 2) -> Load:
    """Asks for the paths of a file (one a line) in order. A recording answers each once: have enough."""
    return _run(base, _IN_ORDER % paths, connections, seconds, {}, LOAD_CORE)


def _run(
    url: str, script: str, connections: int, seconds: float, headers: Mapping[str, str], core: int | None
) -> Load:  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as lua:
        lua.write(script + _DONE)
        lua.flush()
        given = [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
        ran = subprocess.run(
            [
                *pinned(core),
                "wrk",
                "-t1",
                f"-c{connections}",
                f"-d{seconds:.0f}s",
                "--timeout",
                "30s",
                "-s",
                lua.name,
                *given,
                url,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    for line in reversed(ran.stderr.splitlines()):
        if line.startswith("{"):
            return Load(**json.loads(line))
    raise RuntimeError(f"wrk told nothing about {url}: {ran.stderr.strip() or ran.stdout.strip()}")
