"""Runs COMMAND beside us: its variables and placeholders, where its output goes, and what its end means."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from replayproxy.core.names import variable
from replayproxy.errors import Exit

_PLACE = re.compile(r"\{([A-Za-z][A-Za-z0-9_-]*)(?:\.(host|port))?\}")


def variables(
    *, control: str | None, run: str | None, token: str | None, urls: Mapping[str, str], own: Mapping[str, str | None]
) -> dict[str, str]:
    """What COMMAND finds in its environment. `own`: environment -> the variable of its `as=`."""
    found = {"REPLAYPROXY_CONTROL": control, "REPLAYPROXY_RUN": run, "REPLAYPROXY_TOKEN": token}
    for env, url in urls.items():
        found[f"REPLAYPROXY_URL_{variable(env)}"] = url
        if name := own.get(env):
            found[name] = url
    return {name: value for name, value in found.items() if value is not None}


def filled(command: Sequence[str], urls: Mapping[str, str]) -> list[str]:
    """`{crm}`, `{crm.host}` and `{crm.port}` filled in; braces around anything else stay as they are."""

    def place(match: re.Match[str]) -> str:
        url = urls.get(match[1])
        if url is None:
            return match[0]
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return {None: url, "host": parts.hostname or "", "port": str(port)}[match[2]]

    return [_PLACE.sub(place, word) for word in command]


class Child:
    """A started COMMAND. `code` is its exit code as a shell would give it: 128+N when signal N ended it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def code(self) -> int | None:
        code = self._process.returncode
        return code if code is None or code >= 0 else 128 - code

    async def wait(self) -> int:
        await self._process.wait()
        code = self.code
        assert code is not None
        return code

    async def stop(self, sent: int, grace: float) -> None:
        """Makes it end within about `grace` seconds.

        A terminal's Ctrl-C has reached it already, and a second would be taken for impatience; so after SIGINT it
        gets half the time, and only then SIGTERM; after that SIGKILL.
        """
        if sent == signal.SIGINT and await self._ended(grace / 2):
            return
        self._signal(signal.SIGTERM)
        if not await self._ended(grace / 2 if sent == signal.SIGINT else grace):
            self._signal(signal.SIGKILL)
            await self._ended(1.0)

    def kill(self) -> None:
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)

    async def _ended(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(asyncio.shield(self.wait()), seconds)
        except TimeoutError:
            return False
        return True

    def _signal(self, number: int) -> None:
        try:
            self._process.send_signal(number)
        except ProcessLookupError:
            pass  # it has ended in this very moment, which is what was wanted


class NotStarted(Exception):
    """COMMAND could not be run; `code` is 125, 126 or 127."""

    def __init__(self, what: str, code: Exit) -> None:
        super().__init__(what)
        self.code = code


async def start(command: Sequence[str], environ: Mapping[str, str], *, stdout_to_stderr: bool) -> Child:
    """Starts COMMAND in our own process group, so that a terminal's signals reach it. Raises NotStarted."""
    options: dict[str, Any] = {"stdout": sys.stderr.fileno()} if stdout_to_stderr else {}
    try:
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **environ}, **options)
    except FileNotFoundError:
        raise NotStarted(f"{command[0]}: command not found", Exit.CHILD_NOT_FOUND) from None
    except PermissionError:
        raise NotStarted(f"{command[0]}: it is not executable", Exit.CHILD_NOT_EXECUTABLE) from None
    except (OSError, ValueError) as wrong:
        code = Exit.CHILD_NOT_EXECUTABLE if isinstance(wrong, OSError) and wrong.errno == 8 else Exit.CHILD_NOT_STARTED
        raise NotStarted(f"{command[0]}: {wrong}", code) from None
    return Child(process)
