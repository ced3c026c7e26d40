"""`record` from call to exit code: the environments reached, the recorder run, COMMAND run, everything sealed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replayproxy.errors import Exit, StoreTrouble, worst
from replayproxy.session import child, secrecy, tally_text
from replayproxy.session.child import Child, NotStarted
from replayproxy.session.files import is_special
from replayproxy.session.reaching import reachable
from replayproxy.session.record_options import RecordOptions
from replayproxy.session.recorder import Recorder, Say
from replayproxy.session.signals import Signals
from replayproxy.storage import Store, Writer, open_store

SEAL_SECONDS = 5.5
"""From the first signal until nothing more is waited for; the rest of the 8 s is for seals and closing."""

CHILD_SECONDS = 2.5

type Told = tuple[Say, Say | None]
"""Where lines go, and where progress goes if anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """How it ended. `exit` is ours; `command_exit` COMMAND's, None when there was none or it could not be started."""

    exit: int
    command_exit: int | None
    document: dict[str, Any]
    lines: list[str]


class Interrupted(Exception):
    """A second signal came: nothing more is waited for."""


async def record(
    options: RecordOptions,
    command: Sequence[str] = (),
    *,
    say: Say,
    progress: Say | None = None,
    stdout_to_stderr: bool = False,
) -> Recorded:
    """Records until COMMAND ends, or without one until a signal. Raises Problem when it cannot begin.

    `progress` is told how things stand, often, in place of the log lines that `say` gets.
    """
    main = asyncio.current_task()
    assert main is not None
    given_up = asyncio.Event()

    def give_up() -> None:
        given_up.set()
        main.cancel()

    with Signals(give_up).installed() as signals:
        try:
            return await _record(options, command, (say, progress), stdout_to_stderr, signals)
        except asyncio.CancelledError:
            if given_up.is_set():
                raise Interrupted from None
            raise


async def _record(
    options: RecordOptions, command: Sequence[str], told: Told, stdout_to_stderr: bool, signals: Signals
) -> Recorded:
    began = time.monotonic()
    if options.ready_file is not None and not is_special(options.ready_file):
        # One that an earlier recording left would name a recorder that is gone.
        options.ready_file.unlink(missing_ok=True)
    await reachable(options.envs)
    with _opened(options) as (store, writer):
        async with _recorder(options, store, writer, told) as recorder:
            early = signals.came.is_set()
            outcome = await _run_command(recorder, command, signals, stdout_to_stderr)
            await recorder.stop(None if signals.number is None else signals.began + SEAL_SECONDS)
            if early or isinstance(outcome, NotStarted):
                recorder.take_back()
    return _result(recorder, outcome, seconds=time.monotonic() - began)


@contextmanager
def _opened(options: RecordOptions) -> Iterator[tuple[Store, Writer]]:
    """The store, and the right to be its recorder."""
    with open_store(options.store, create=True) as store:
        redactor = secrecy.for_recording(options.store, keep=options.keep_secrets, rules=options.secrets)
        writer = store.writer(redactor=redactor)
        try:
            yield store, writer
        finally:
            try:
                writer.close()
            except StoreTrouble:
                pass  # what is not on disk has shown at the seals, and is in the exit code


@asynccontextmanager
async def _recorder(options: RecordOptions, store: Store, writer: Writer, told: Told) -> AsyncIterator[Recorder]:
    recorder = Recorder(options, store, writer, *told)
    try:
        await recorder.start()
        yield recorder
    except BaseException:
        await recorder.abandon()
        raise


async def _run_command(
    recorder: Recorder, command: Sequence[str], signals: Signals, stdout_to_stderr: bool
) -> int | NotStarted | None:
    """COMMAND's exit code, why it could not be started, or None when there is none and a signal came."""
    if not command or signals.came.is_set():
        await signals.came.wait()
        return None
    urls = recorder.addresses.plain_urls()
    environ = child.variables(
        control=recorder.control, run=recorder.run.name, token=recorder.options.token, urls=urls,
        own={env.name: env.variable for env in recorder.options.envs},
    )  # fmt: skip
    environ |= recorder.child_variables(os.environ)
    try:
        started = await child.start(child.filled(command, urls), environ, stdout_to_stderr=stdout_to_stderr)
    except NotStarted as problem:
        return problem
    return await _until_end(started, signals)


async def _until_end(started: Child, signals: Signals) -> int:
    """COMMAND's exit code; a signal to us is its end too."""
    ended = asyncio.ensure_future(started.wait())
    came = asyncio.ensure_future(signals.came.wait())
    try:
        await asyncio.wait((ended, came), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            assert signals.number is not None
            await started.stop(signals.number, CHILD_SECONDS)
        return await ended
    except asyncio.CancelledError:
        started.kill()
        raise
    finally:
        came.cancel()


def _result(recorder: Recorder, outcome: int | NotStarted | None, *, seconds: float) -> Recorded:
    """The exit code by the one table, and what is shown."""
    counts, trouble = recorder.recording.tally, recorder.episodes.store_trouble
    document = counts.document() | {"store": str(recorder.options.store), "seconds": round(seconds, 3)}
    store = recorder.options.store
    lines = tally_text.lines(
        counts, seconds=seconds, upstreams={env.name: env.upstream for env in recorder.options.envs},
        instances=recorder.episodes.instances(), store=str(store), size=store_size(store),
    )  # fmt: skip
    if trouble:
        document["store_trouble"] = trouble
        lines.insert(1, f"TROUBLE WITH THE STORE  {trouble}")
    if isinstance(outcome, NotStarted):
        document["command_trouble"] = str(outcome)
        told = [f"replayproxy: {outcome} -> nothing was run, and nothing kept"]
        return Recorded(exit=int(outcome.code), command_exit=None, document=document, lines=told)
    whole = not counts.why_not_whole()
    code = worst(Exit.STORE if trouble else 0, 0 if whole else Exit.UNJUDGED)
    if outcome and not trouble:
        code = outcome
    return Recorded(exit=code, command_exit=outcome, document=document, lines=lines)


def store_size(path: Path) -> int:
    """Bytes that the store takes on the disk; its map is sparse."""
    return sum(one.stat().st_blocks * 512 for one in path.glob("*") if one.is_file())
