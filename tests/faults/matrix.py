"""The matrix: each fault with its strengths and numbers of lanes, and the look-alikes beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

TUNE, HOLD_OUT = 1000, 170_000
"""Seeds begin here. Detectors were worked on with the first alone. A hold-out that was looked at is not one any more:
the next one begins elsewhere (90,000 was the first)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One cell of the matrix: a run of its own.

    `row`: a, b, c, d or f as in the specification, `clean` for runs without anything. `fault`: the injector's name.
    `p`: how likely it strikes when it can. `seconds`: its duration. `every`: it strikes at each n-th reset.
    `workers`: episodes side by side, each on an instance of its own. `control`: a look-alike, which must stay silent.
    `named`: the first episode, which begins on a fresh instance, is named as the reference. `ablate`: it is judged
    again with less evidence.
    """

    env: str
    row: str
    fault: str
    p: float = 1.0
    seconds: float = 0.0
    every: int = 1
    lanes: int = 1
    workers: int = 1
    episodes: int = 12
    control: bool = False
    named: bool = False
    script: str = "mixed"
    ablate: bool = False
    base: int = TUNE

    @property
    def strength(self) -> str:
        told = []
        if self.p < 1:
            told.append(f"P {self.p:g}")
        if self.seconds:
            told.append(f"{self.seconds * 1000:g} ms" if self.seconds < 0.1 else f"{self.seconds:g} s")
        if self.every > 1:
            told.append(f"1 in {self.every}")
        return ", ".join(told) or "always"

    @property
    def name(self) -> str:
        words = [self.env, self.row, self.fault, f"p{self.p:g}", f"s{self.seconds:g}", f"n{self.every}"]
        return "-".join([*words, f"l{self.lanes}", f"w{self.workers}"]).replace(".", "_")


def every_plan(base: int) -> list[Plan]:
    """The whole matrix, by environment."""
    plans = [plan for env in ENVS for part in PARTS for plan in part(env)]
    return [replace(plan, base=base, ablate=plan.ablate or _is_ablated(plan)) for plan in plans]


def _is_ablated(plan: Plan) -> bool:
    """A few of each row, enough to say what each source of evidence buys."""
    chosen = {
        ("a", "rng"): plan.p == 0.2, ("b", "old-copy"): plan.p == 0.2, ("b", "ttl"): plan.seconds == 10,
        ("c", "table"): plan.workers == 1, ("c", "memory"): plan.workers == 1, ("f", "unseeded"): plan.every == 5,
        ("f", "partial"): plan.every == 5,
    }  # fmt: skip
    return plan.lanes in (1, 4) and chosen.get((plan.row, plan.fault), False)


def nondeterminism(env: str) -> Iterator[Plan]:
    for lanes in (1, 4):
        for p in (1.0, 0.2, 0.05, 0.01):
            yield Plan(env=env, row="a", fault="rng", p=p, lanes=lanes, episodes=24, script="look")
        for fault in ("shuffle", "jitter"):
            yield Plan(env=env, row="a", fault=fault, p=0.2, lanes=lanes, script="look")
        for fault in ("fresh-ids", "seeded", "rounding", "legal-order"):
            yield Plan(env=env, row="a", fault=fault, lanes=lanes, episodes=8, control=True, script="look")
    yield Plan(env=env, row="a", fault="tie", lanes=4, script="look")


def stale(env: str) -> Iterator[Plan]:
    for lanes in (1, 2, 4, 8):
        few = 12 if lanes == 1 else 8 if lanes < 8 else 5
        for seconds in (0.1, 1.0, 10.0):
            yield Plan(env=env, row="b", fault="ttl", seconds=seconds, lanes=lanes, episodes=few)
        for p in (1.0, 0.2, 0.05):
            yield Plan(env=env, row="b", fault="old-copy", p=p, lanes=lanes, episodes=few if p > 0.1 else 2 * few)
        yield Plan(env=env, row="b", fault="lag", seconds=0.2, lanes=lanes, episodes=few)
        yield Plan(env=env, row="b", fault="one-verb", seconds=10.0, lanes=lanes, episodes=few)
        yield Plan(env=env, row="b", fault="list-only", seconds=10.0, lanes=lanes, episodes=few)
        if lanes > 1:
            yield Plan(env=env, row="b", fault="overlap", seconds=0.02, lanes=lanes, episodes=few, control=True)
        if lanes in (1, 4):
            for fault in ("accepted", "declared", "reverted"):
                yield Plan(env=env, row="b", fault=fault, seconds=0.2, lanes=lanes, episodes=8, control=True)


def bleed(env: str) -> Iterator[Plan]:
    for workers in (1, 2, 8):
        for every in (1, 10):
            many = {1: 12, 2: 24, 8: 32}[workers] if every == 1 else 30
            for fault in ("table", "memory", "cart", "counter"):
                yield Plan(
                    env=env, row="c", fault=fault, every=every, workers=workers, episodes=many, named=every == 1,
                    script="create",
                )  # fmt: skip
        for fault in ("catalogue", "same-uuid", "nil-uuid"):
            yield Plan(
                env=env, row="c", fault=fault, workers=workers, episodes=8 if workers == 1 else 16,
                control=True, script="create",
            )  # fmt: skip


def resets(env: str) -> Iterator[Plan]:
    for workers in (1, 4):
        for every in (1, 5, 20):
            many = {1: 10 if workers == 1 else 16, 5: 20, 20: 40}[every]
            for fault in ("unseeded", "partial", "no-op"):
                yield Plan(
                    env=env, row="f", fault=fault, every=every, workers=workers, episodes=many, named=every == 1,
                    script="create",
                )  # fmt: skip
        for seconds in (0.2, 1.0, 3.0) if workers == 1 else (1.0,):
            for every in (1, 5):
                yield Plan(
                    env=env, row="f", fault="late", seconds=seconds, every=every, workers=workers,
                    episodes=20 if every > 1 else 10 if workers == 1 else 16, named=every == 1, script="create",
                )  # fmt: skip
        for fault in ("renamed", "reordered", "clocks"):
            yield Plan(env=env, row="f", fault=fault, workers=workers, episodes=4 * (1 + workers), control=True)


def races(env: str) -> Iterator[Plan]:
    """One lane too, where the fault needs no rival."""
    for lanes in (2, 4, 8, 16):
        few = {2: 10, 4: 8, 8: 5, 16: 3}[lanes]
        for seconds in (0.0, 0.005, 0.05):
            for fault in ("gap", "write-back", "adds"):
                yield Plan(
                    env=env, row="d", fault=fault, seconds=seconds, lanes=lanes, episodes=few, script="contend"
                )  # fmt: skip
    for lanes in (1, 2, 8):
        for fault in ("retry", "done-500"):
            yield Plan(
                env=env, row="d", fault=fault, p=0.3, lanes=lanes, episodes={1: 16, 2: 8, 8: 3}[lanes], script="contend"
            )
    for fault in ("one-wins", "capacity") if env == "booking" else ("one-wins",):
        for lanes in (2, 8):
            yield Plan(env=env, row="d", fault=fault, lanes=lanes, episodes=6, control=True, script="contend")


def together(env: str) -> Iterator[Plan]:
    """Two faults at once, and faults in places that look like noise; with environment 1 alone."""
    if env != "crm":
        return
    for lanes in (2, 4):
        yield Plan(env=env, row="two", fault="stale+race", seconds=0.05, lanes=lanes, episodes=8, script="contend")
    for every in (1, 5):
        yield Plan(
            env=env, row="two", fault="bleed+reset", every=every, episodes=10 if every == 1 else 20, named=every == 1,
            script="create",
        )  # fmt: skip
    for fault in ("masked-time", "masked-id"):
        yield Plan(env=env, row="mask", fault=fault, p=0.2, episodes=16, script="look")
    yield Plan(env=env, row="mask", fault="old-time", episodes=8)
    for fault in ("unseeded-time", "unseeded-id"):
        yield Plan(env=env, row="mask", fault=fault, every=5, episodes=20, script="create")


def clean(env: str, episodes: int = 300) -> Iterator[Plan]:
    """Episodes without a fault: one lane and four, alone and side by side."""
    for lanes, workers, share in ((1, 1, 0.4), (1, 4, 0.3), (4, 1, 0.3)):
        yield Plan(
            env=env, row="clean", fault="none", lanes=lanes, workers=workers, episodes=round(episodes * share),
            control=True,
        )  # fmt: skip


def slice_of(env: str) -> Iterator[Plan]:
    """A few cells, small: what `make test` runs."""
    yield Plan(env=env, row="a", fault="rng", p=0.05, episodes=12, script="look")
    yield Plan(env=env, row="b", fault="ttl", seconds=10.0, episodes=4)
    yield Plan(env=env, row="c", fault="table", episodes=6, named=True, script="create")
    yield Plan(env=env, row="f", fault="partial", episodes=6, named=True, script="create")
    yield Plan(env=env, row="clean", fault="none", episodes=4, control=True)


ENVS = ("crm", "booking")
PARTS = (nondeterminism, stale, bleed, races, resets, together, clean)
