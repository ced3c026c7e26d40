from __future__ import annotations

from pathlib import Path
from typing import Any

from replayproxy.session.store_watch import QUIET, StoreWatch

FULL = OSError(28, "No space left on device")
TROUBLE = "s cannot be written: no space left on device -> free space; it is tried again; the traffic goes on"
AGAIN = "s can be written again; what waited is stored"


class Writes:
    failed: BaseException | None = None


def watched() -> tuple[Any, StoreWatch, list[str]]:
    writer: Any = Writes()
    said: list[str] = []
    return writer, StoreWatch(writer, Path("s"), said.append), said


def test_a_store_that_takes_nothing_is_told_once_and_so_is_its_end() -> None:
    writer, watch, said = watched()
    watch.look(0.0)
    writer.failed = FULL
    for at in range(1, 300):
        watch.look(float(at))
    assert said == [TROUBLE]
    writer.failed = None
    watch.look(300.0)
    watch.look(301.0)
    assert said == [TROUBLE, AGAIN]


def test_a_disk_on_the_edge_is_told_once_a_minute() -> None:
    writer, watch, said = watched()
    for at in range(int(QUIET) * 2):
        writer.failed = None if at % 2 else FULL
        watch.look(float(at))
    assert said == [TROUBLE, AGAIN] * 2
