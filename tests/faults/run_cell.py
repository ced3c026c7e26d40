"""One cell from its plan to its recording and judgement, in this process."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from zlib import crc32

from tests.faults.booking_world import BookingWorld
from tests.faults.crm_world import CrmWorld
from tests.faults.matrix import Plan
from tests.faults.rig import Recorded, World, judged, record


def seed_of(plan: Plan) -> int:
    """Every cell has seeds of its own, as far from those of the other phase as the bases are."""
    return plan.base + crc32(plan.name.encode()) % 10_000


async def _world(plan: Plan, seed: int) -> World:
    made: CrmWorld | BookingWorld = CrmWorld() if plan.env == "crm" else BookingWorld()
    try:
        return await made.start(plan, seed)
    except BaseException:
        await made.close()
        raise


async def _recorded(plan: Plan, store: Path) -> World:
    world = await _world(plan, seed_of(plan))
    try:
        await record(plan, world, store, seed_of(plan))
    finally:
        await world.close()
    return world


def run(plan: Plan) -> Recorded:
    """Records and judges; nothing is left on the disk."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        store, began = Path(folder) / "store", time.perf_counter()
        world = asyncio.run(_recorded(plan, store))
        return judged(plan, world, store, time.perf_counter() - began)
