"""Runs one small program to its end, within its time, and leaves nothing of it behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KEPT = 64 * 1024
"""Bytes of its output that are kept, the last ones; all is read, so that it never waits for us."""


PARTING = 1.0
"""Seconds in which what a group has said before it was ended is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """`code` None: it was ended because its time was over, or could not be started."""

    code: int | None
    out: str = ""
    err: str = ""

    @property
    def last_words(self) -> str:
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        return lines[-1][:200] if lines else ""


async def ended(words: Sequence[str], *, seconds: float, environ: Mapping[str, str] | None = None) -> Ended:
    """How it ended. It is a group of its own: what it started ends with it."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words, env=None if environ is None else dict(environ), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return Ended(code=None, err=f"it could not be started: {error}")
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = bytearray(), bytearray()
    reading = [asyncio.ensure_future(_read(process.stdout, out)), asyncio.ensure_future(_read(process.stderr, err))]
    code: int | None = None
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
            await asyncio.gather(*reading)
    except TimeoutError:
        pass  # it has not ended, or has, and what it left behind holds its output open
    finally:
        code = process.returncode
        if code is None:
            err += f"\nno end within {seconds:g} s".encode()
        _end_group(process.pid)
        await process.wait()
        # With the group its ends of the pipes are gone, and ours close when that has been read. Who left the group may
        # hold them for longer: they are closed on our side, or they would stay open past the loop.
        await asyncio.wait(reading, timeout=PARTING)
        for one in reading:
            one.cancel()
        process._transport.close()  # type: ignore[attr-defined]  # it has no public name
        await asyncio.gather(*reading, return_exceptions=True)
    return Ended(code=code, out=out.decode(errors="replace"), err=err.decode(errors="replace"))


async def _read(stream: asyncio.StreamReader, into: bytearray) -> None:
    while piece := await stream.read(KEPT):
        into += piece
        del into[:-KEPT]


def _end_group(leader: int) -> None:
    """Its own session's group, whose number no other can have while one of the group lives."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # nothing of it is left
