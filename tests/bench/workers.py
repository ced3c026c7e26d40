"""How much two proxy processes carry, against one: `record --workers 1` and `record --workers 2` in turns.

    python -m tests.bench.workers                      5 pairs of 8 s each, 32 connections
    python -m tests.bench.workers --pairs 3 --seconds 4 --connections 64
    python -m tests.bench.workers --counts 1,2,4       other numbers of workers

The environment is nginx where it is installed, else asyncio in a process of its own; the load is wrk where it is
installed, else asyncio too. Both share the machine with the recorder, so a ratio is bounded by the processors that are
left: what each part used is printed beside it. `by processor time` is arithmetic from that, for a machine with nothing
else to do: as many requests as the processors have time for, no process of Python using more than one of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

BODY = json.dumps({"id": 42, "title": "a deal", "notes": "x" * 540}).encode()
TICK = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{ default_type application/json; return 200 '{body}'; }}
  }}
}}
"""


class Answering(asyncio.Protocol):
    """The environment where there is no nginx: every request without a body is answered with `BODY`."""

    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.held = transport, b""

    def data_received(self, data: bytes) -> None:
        *whole, self.held = (self.held + data).split(b"\r\n\r\n")
        self.transport.write(self.answer * len(whole))  # type: ignore[attr-defined]


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


@contextmanager
def environment(folder: Path) -> Iterator[tuple[str, int]]:
    """(its URL, its process)."""
    port = free_port()
    if nginx := shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
        conf = folder / "nginx.conf"
        conf.write_text(NGINX.format(folder=folder, port=port, body=BODY.decode()))
        words = [nginx, "-p", str(folder), "-c", str(conf), "-e", "stderr"]
    else:
        words = [sys.executable, "-m", "tests.bench.workers", "--serve", str(port)]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        until(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/").status == 200)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait()


def until(ready: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if ready():  # type: ignore[operator]
                return
        except OSError:
            pass
        if time.monotonic() > end:
            raise TimeoutError("it did not come up")
        time.sleep(0.05)


@contextmanager
def recorder(folder: Path, url: str, workers: int, *more: str) -> Iterator[tuple[str, int, dict[str, object]]]:
    """(the agent's URL, the recorder's process, what its summary says once it has ended)."""
    ready, summary = folder / "ready.json", folder / "summary.json"
    words = [
        "record",
        "--env",
        f"app={url}",
        "--episode",
        "bench",
        "--store",
        str(folder / "store"),
        "--log-every",
        "0s",
    ]
    words += ["--ready-file", str(ready), "--summary", str(summary), "--workers", str(workers), *more]
    process = subprocess.Popen([sys.executable, "-m", "replayproxy", *words], stderr=subprocess.DEVNULL)
    told: dict[str, object] = {}
    try:
        until(ready.exists)
        yield json.loads(ready.read_text())["envs"]["app"], process.pid, told
    finally:
        process.send_signal(signal.SIGTERM)
        told["exit"] = process.wait()
    told |= json.loads(summary.read_text())["recording"]


def load(url: str, connections: int, seconds: float) -> int:
    """Answers got. Every connection asks again as soon as it has its answer."""
    if wrk := shutil.which("wrk"):
        words = [wrk, "-t1", f"-c{connections}", f"-d{max(round(seconds), 1)}s", f"{url}/deals/42"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        if wrong := re.search(r"(Socket errors.*|Non-2xx.*)", said):
            raise RuntimeError(wrong[1])
        found = re.search(r"(\d+) requests in", said)
        assert found is not None, said
        return int(found[1])
    return asyncio.run(_load(url, connections, seconds))


async def _load(url: str, connections: int, seconds: float) -> int:
    host, _, port = url.removeprefix("http://").partition(":")
    end, count = time.monotonic() + seconds, 0
    asked = f"GET /deals/42 HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()

    async def one() -> None:
        nonlocal count
        reader, writer = await asyncio.open_connection(host, int(port))
        while time.monotonic() < end:
            writer.write(asked)
            head = await reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"(?i)content-length: (\d+)", head)
            assert found is not None, head
            assert head.startswith(b"HTTP/1.1 200"), head
            await reader.readexactly(int(found[1]))
            count += 1
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return count


def processes_of(pid: int) -> list[int]:
    """The process and all that it started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += processes_of(int(child))
    return found


def cpu(pid: int) -> float:
    """Seconds of processor time of one process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


def own() -> float:
    """Seconds of processor time of this process and of those that it has waited for: of the load."""
    return sum(os.times()[:4])


def rest() -> float:
    """Seconds for which the machine's processors were busy, whoever used them."""
    words = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(words) - words[3] - words[4]) / TICK


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    workers: int
    rate: float
    parts: tuple[float, ...]  # processors used by the recorder's processes, the first one first
    environment: float
    load: float
    machine: float

    @property
    def free(self) -> float:
        """Requests per second that the machine's processors would have time for."""
        whole = (sum(self.parts) + self.environment + self.load) / self.rate
        busiest = max(self.parts) / self.rate
        return min((os.cpu_count() or 1) / whole, 1 / busiest)


def once(folder: Path, workers: int, connections: int, seconds: float, more: list[str]) -> Run:
    with ExitStack() as stack:
        url, its_pid = stack.enter_context(environment(folder))
        with recorder(folder, url, workers, *more) as (at, pid, told):
            load(at, connections, 1.0)  # the first requests find cold caches
            pids = processes_of(pid)
            its = processes_of(its_pid)
            before, env_before, all_before = [cpu(one) for one in pids], sum(map(cpu, its)), rest()
            began, load_before = time.monotonic(), own()
            done = load(at, connections, seconds)
            took = time.monotonic() - began
            parts = tuple((cpu(one) - was) / took for one, was in zip(pids, before, strict=True))
            loaded = (own() - load_before) / took
            theirs, whole = (sum(map(cpu, its)) - env_before) / took, (rest() - all_before) / took
        exchanges = told["exchanges"]
        assert isinstance(exchanges, int)
        if told["exit"] or exchanges < done:
            raise RuntimeError(f"{done} answers, {exchanges} exchanges recorded, exit code {told['exit']}")
    return Run(workers=workers, rate=done / took, parts=parts, environment=theirs, load=loaded, machine=whole)


def told(run: Run) -> str:
    parts = " + ".join(f"{part:.2f}" for part in run.parts)
    return (
        f"  workers {run.workers}   {run.rate:7.0f} requests/s   processors: recorder {parts}, "
        f"environment {run.environment:.2f}, load {run.load:.2f}, whole machine {run.machine:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--counts", default="1,2")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("more", nargs="*", help="options for record, behind --")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve))
        return
    counts = [int(word) for word in given.counts.split(",")]
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.2f} before anything was started", flush=True)
    runs: dict[int, list[Run]] = {count: [] for count in counts}
    for pair in range(given.pairs):
        for count in counts if pair % 2 == 0 else reversed(counts):
            with tempfile.TemporaryDirectory() as folder:
                run = once(Path(folder), count, given.connections, given.seconds, given.more)
            runs[count].append(run)
            print(told(run), flush=True)
    base = runs[counts[0]]
    for count in counts[1:]:
        ratios = sorted(b.rate / a.rate for a, b in zip(base, runs[count], strict=True))
        print(
            f"{count} workers against {counts[0]}: {statistics.median(ratios):.2f} times "
            f"(median of {len(ratios)} pairs, {ratios[0]:.2f} to {ratios[-1]:.2f})"
        )
        free = sorted(b.free / a.free for a, b in zip(base, runs[count], strict=True))
        print(f"  by processor time alone: {statistics.median(free):.2f} times ({free[0]:.2f} to {free[-1]:.2f})")
    for count in counts:
        each = statistics.median(sum(run.parts) / run.rate for run in runs[count]) * 1e6
        whole = statistics.median(run.machine / run.rate for run in runs[count]) * 1e6
        print(f"{count} workers: {each:.0f} us of recorder per request, {whole:.0f} us of the machine")


if __name__ == "__main__":
    main()
