"""What a benchmark ran on, and what its processes used: cores, CPU seconds, memory."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

_TICK = os.sysconf("SC_CLK_TCK")

PROXY_CORE, LOAD_CORE = 0, 1
"""The program under test has a core of its own; load and environment share the other one."""


def pinned(core: int | None) -> list[str]:
    """What goes before a command line so that it runs on one core; nothing for None, or where there is only one."""
    if core is None:
        return []
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cores[core % len(cores)])] if len(cores) > 1 else []


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found, asked = [], [pid]
    while asked:
        one = asked.pop()
        found.append(one)
        for path in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                asked.extend(int(child) for child in path.read_text().split())
            except OSError:
                continue
    return found


def cpu_seconds(pid: int, *, alone: bool = False) -> float:
    """User and system time of a process and (if not `alone`) its living descendants."""
    total = 0
    for one in [pid] if alone else family(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


def own_cpu_seconds() -> float:
    """Of this process and of those that it has waited for: of the load."""
    return sum(os.times()[:4])


def busy_seconds() -> float:
    """Seconds for which the machine's processors were busy, whoever used them."""
    words = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(words) - words[3] - words[4]) / _TICK


def private_mib(pid: int) -> float:
    """Private memory of a process and its descendants. Pages of a mapped store do not count: the kernel gives them up
    when it needs them, and calls them private where nobody else has the store open."""
    total = 0
    for one in family(pid):
        try:
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Anonymous:"):
                    total += int(line.split()[1])
        except OSError:
            continue
    return total / 1024


def counting_loop() -> float:
    """Seconds that this Python needs to add up five million squares: how fast a core is right now."""
    began, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number * number
    return time.process_time() - began


def describe() -> dict[str, Any]:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return {
        "cpu": model, "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(),
        "mitmproxy": importlib.metadata.version("mitmproxy"), "aiohttp": importlib.metadata.version("aiohttp"),
        "lmdb": importlib.metadata.version("lmdb"), "counting_loop_s": round(counting_loop(), 2),
    }  # fmt: skip
