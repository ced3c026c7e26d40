"""OpenEnv's own client: two episodes, one after the other or at once, each on a WebSocket of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys

from openenv.core.generic_client import GenericEnvClient
from websockets.exceptions import ConnectionClosed

parser = argparse.ArgumentParser()
parser.add_argument("--third", default="tea")
parser.add_argument("--at-once", action="store_true")
given = parser.parse_args()


async def shop(seed):
    seen = []
    async with GenericEnvClient(base_url=os.environ["REPLAYPROXY_URL_CART"]) as env:
        result = await env.reset(seed=seed, episode_id=f"ep-{seed}")
        seen.append(result.observation)
        for item, price in (("milk", 0.1), ("bread", 0.2), (given.third, 3.0), ("salt", 0.7)):
            result = await env.step({"item": item, "price": price})
            seen.append([result.observation, result.reward, result.done])
        seen.append(await env.state())
    return seen


async def main():
    try:
        if given.at_once:
            print(json.dumps(await asyncio.gather(shop(1), shop(2))))
        else:
            print(json.dumps([await shop(1), await shop(2)]))
    except ConnectionClosed as closed:
        sys.exit(f"the environment closed: {closed}")


asyncio.run(main())
