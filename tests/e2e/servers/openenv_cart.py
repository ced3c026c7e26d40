"""An OpenEnv environment: a cart that is filled step by step. Its sum is a float, as environments have them.

`python openenv_cart.py --port N [--slow S]` serves it, as `openenv init` lays it out.
"""

from __future__ import annotations

import argparse
from uuid import uuid4

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class Put(Action):
    item: str = Field(...)
    price: float = Field(...)


class Seen(Observation):
    items: list[str] = Field(default_factory=list)
    total: float = 0.0


class CartEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._begin(None)

    def _begin(self, episode_id):
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        self._items, self._total = [], 0.0

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._begin(episode_id)
        return Seen(items=[], total=0.0, done=False, reward=0.0)

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        self._items.append(action.item)
        self._total += action.price
        done = len(self._items) >= 4
        return Seen(items=list(self._items), total=self._total, done=done, reward=self._total / 10)

    @property
    def state(self):
        return self._state


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
given = parser.parse_args()
app = create_fastapi_app(CartEnvironment, Put, Seen, max_concurrent_envs=8)
uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")
