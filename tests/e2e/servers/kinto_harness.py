"""A harness that resets Kinto's database before each of its episodes; LEAKY=N: before the N-th it forgets a table."""

from __future__ import annotations

import os

import httpx
import psycopg

import replayproxy

TABLES = ("timestamps", "access_control_entries", "user_principals", "objects")
LEAKY = int(os.environ.get("LEAKY", "-1"))
EPISODES = 5


def reset(number: int) -> None:
    with psycopg.connect(os.environ["KINTO_DSN"], autocommit=True) as db:
        db.execute("TRUNCATE " + ", ".join(TABLES[:-1] if number == LEAKY else TABLES))


def work(url: str, number: int) -> None:
    records = "/buckets/shop/collections/deals/records"
    with httpx.Client(base_url=f"{url}/v1", auth=("agent", "pass"), timeout=20) as http:
        http.get(records)
        http.put("/buckets/shop")
        http.put("/buckets/shop/collections/deals")
        http.get(records)
        for name in ("Acme", "Globex"):
            http.post(records, json={"data": {"name": name, "amount": 100}}).raise_for_status()
        http.get(records)


def main() -> None:
    for number in range(EPISODES):
        reset(number)
        with replayproxy.episode(episode=f"e{number}", task="open-deals", seed=1) as ep:
            work(ep.url("kinto"), number)
            ep.reward = 1.0


main()
