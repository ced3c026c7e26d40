"""Sixteen episodes at once, two of them with two marked lanes; every lane is a fixed list of requests.

The order in which episodes and lanes proceed is random (`--shuffle`), what each lane asks is not. Prints what each
lane was answered. `--only EPISODE` runs one of them. `--one-lane` leaves the lane marks off.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time

import httpx

from replayproxy import client

EPISODES = [f"ep-{n}" for n in range(16)]
LANES = {"ep-3": ["left", "right"], "ep-11": ["left", "right"]}


def script(episode: str, lane: str) -> list[tuple[str, str]]:
    rng = random.Random(f"{episode}/{lane}")
    asked = [("GET", "/counter"), ("POST", "/inc"), ("GET", "/slow?s=0.01"), ("GET", f"/counter?who={lane}")]
    return [("GET", "/counter"), *[rng.choice(asked) for _ in range(14)]]


def run_lane(url: str, episode: str, lane: str, mark: bool, shuffle: random.Random, out: dict[str, list]) -> None:
    answers = []
    with httpx.Client(timeout=30, trust_env=False) as http:
        for method, path in script(episode, lane):
            time.sleep(shuffle.random() * 0.01)
            answer = http.request(method, url + path, headers={"X-Replay-Lane": lane} if mark else {})
            answers.append([answer.status_code, answer.text])
    out[f"{episode}/{lane}"] = answers


def run_episode(episode: str, mark: bool, seed: str, out: dict[str, list], errors: list[str]) -> None:
    try:
        with client.episode(episode=episode, task="toy", seed=1) as ep:
            url = ep.url("app")
            lanes = LANES.get(episode, ["main"])
            shuffles = {lane: random.Random(f"{seed}/{episode}/{lane}") for lane in lanes}
            threads = [
                threading.Thread(
                    target=run_lane, args=(url, episode, lane, mark and lane != "main", shuffles[lane], out)
                )
                for lane in lanes
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    except Exception as error:
        errors.append(f"{episode}: {type(error).__name__}: {error}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shuffle", default="0")
    parser.add_argument("--only", action="append")
    parser.add_argument("--one-lane", action="store_true")
    given = parser.parse_args()
    out: dict[str, list] = {}
    errors: list[str] = []
    threads = [
        threading.Thread(target=run_episode, args=(name, not given.one_lane, given.shuffle, out, errors))
        for name in given.only or EPISODES
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(errors), file=sys.stderr)
    print("ANSWERS " + json.dumps(out, sort_keys=True), file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
