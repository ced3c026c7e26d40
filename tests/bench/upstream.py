"""The environment of the benchmarks: nginx with static answers, on plain HTTP and on TLS; and an event stream.

python -m tests.bench.upstream PORT       the event stream alone: 20 events of 100 bytes each, at once
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.machine import LOAD_CORE, cpu_seconds, pinned

SMALL = json.dumps({
    "id": "D-1", "stage": "lead", "owner": "ada", "amount": 48200, "updated_at": "2026-11-29T10:00:00Z",
    "notes": "Asked for a quote of forty seats, with a pilot in two teams first. " * 6, "tags": ["new", "north"],
}).encode()  # fmt: skip
LARGE = json.dumps({"items": [json.loads(SMALL) | {"id": f"D-{n}"} for n in range(108)]}).encode()

_CONF = """
user root; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 20000; }}
http {{
  access_log off; keepalive_requests 10000000; default_type application/json;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{
    listen 127.0.0.1:{port} backlog=4096; {tls}
    root {folder};
    location = /large {{ try_files /large.json =404; }}
    location / {{ if ($request_method = PUT) {{ return 204; }} error_page 405 =204 @none; try_files /small.json =404; }}
    location @none {{ return 204; }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Base URLs without a slash at the end."""

    plain: str
    tls: str
    events: str
    certificate: Path
    pids: tuple[int, ...]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for(port: int, seconds: float = 60, process: subprocess.Popen[bytes] | None = None) -> None:
    """Until somebody listens. Raises TimeoutError, or RuntimeError where the process ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with {process.returncode} before it listened")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port}")


@contextmanager
def upstream(folder: Path, *, core: int | None = LOAD_CORE) -> Iterator[Upstream]:
    """Runs until the block ends. `folder` is where its files go."""
    if shutil.which("nginx") is None:
        raise RuntimeError("the benchmark needs nginx: install nginx-light")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "small.json").write_bytes(SMALL)
    (folder / "large.json").write_bytes(LARGE)
    _certificate(folder)
    processes, ports = [], [free_port() for _ in range(3)]
    secure = f"ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;"
    for port, tls in zip(ports[:2], ("", secure), strict=True):
        home = folder / f"nginx-{port}"
        home.mkdir()
        conf = _CONF.format(folder=folder, port=f"{port} ssl" if tls else port, tls=tls)
        (home / "conf").write_text(conf.replace(f"{folder}/nginx.pid", f"{home}/nginx.pid"))
        processes.append(subprocess.Popen([*pinned(core), "nginx", "-p", str(home), "-c", str(home / "conf")]))
    processes.append(subprocess.Popen([*pinned(core), sys.executable, "-m", "tests.bench.upstream", str(ports[2])]))
    try:
        for port, process in zip(ports, processes, strict=True):
            wait_for(port, process=process)
        plain, tls_port, events = ports
        yield Upstream(
            plain=f"http://127.0.0.1:{plain}", tls=f"https://127.0.0.1:{tls_port}",
            events=f"http://127.0.0.1:{events}", certificate=folder / "cert.pem",
            pids=tuple(process.pid for process in processes),
        )  # fmt: skip
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(10)


def _certificate(folder: Path) -> None:
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            str(folder / "key.pem"),
            "-out",
            str(folder / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "key.pem").chmod(0o644)


EVENT = b"data: " + b"x" * 92 + b"\n\n"


async def _events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    chunk = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head + chunk * 20 + b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _serve(port: int) -> None:
    server = await asyncio.start_server(_events, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
