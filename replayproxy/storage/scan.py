"""Reads every record of a store and prints what is damaged: `python -m replayproxy.storage.scan PATH [--skip STAGE]..`.

It runs as a process of its own, because a damaged file can end whatever process reads it (SIGBUS, an assertion in
LMDB); `storage.verify` starts it and understands it. One JSON object a line: {"stage": NAME} before a stage begins,
{"damaged": {...}} for each damage, {"read": {...}} at the end; {"newer": WHY} when the format is not known.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson

from replayproxy.errors import StoreTrouble
from replayproxy.storage import environment
from replayproxy.storage.inspection import Scan, damage
from replayproxy.storage.layout import DATA_FILE

_SPARE = 13
"""Transactions beside the first: one for each stage, if each of them meets an error."""

_TRIES = 20


def lines(path: Path, skipped: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """What is to be said of a store, as it is found out."""
    try:
        env = environment.acquire(path, create=False)
    except environment.NewerFormat as newer:
        yield {"newer": newer.what}
        return
    except StoreTrouble as trouble:
        yield {"damaged": damage("file", DATA_FILE, trouble.what), "read": {}}
        return
    try:
        with ExitStack() as stack:
            yield from _stages(Scan(env, *_at_one_moment(env, stack)), skipped)
    finally:
        environment.release(env)


def _at_one_moment(env: environment.Environment, stack: ExitStack) -> tuple[Any, Sequence[Any]]:
    """A transaction and `_SPARE` more of the same moment; none more where a writer is always quicker."""
    for _ in range(_TRIES):
        with ExitStack() as opened:
            first, *more = [opened.enter_context(env.reading()) for _ in range(1 + _SPARE)]
            if all(txn.id() == first.id() for txn in more):
                stack.enter_context(opened.pop_all())
                return first, more
    return stack.enter_context(env.reading()), ()


def _stages(scan: Scan, skipped: Collection[str]) -> Iterator[dict[str, Any]]:
    for name, stage in scan.stages.items():
        if name in skipped:
            continue
        yield {"stage": name}
        try:
            for found in stage():
                yield {"damaged": found}
        except Exception as error:  # LMDB's own words about a damaged page; the other stages still have a chance
            yield {"damaged": damage("file", name, f"{type(error).__name__}: {error}")}
            scan.go_on()
    yield {"read": dict(scan.read)}


def main(arguments: list[str]) -> None:
    """See the module."""
    path, *rest = arguments
    for line in lines(Path(path), rest[1::2]):
        sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
