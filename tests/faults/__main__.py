"""Runs the matrix, or some of it.

python -m tests.faults                           all of it on the tuning seeds, told cell by cell
python -m tests.faults --match crm-b --verbose   some cells, with what was missed and what was wrong
python -m tests.faults --seeds hold-out --page   the hold-out, written into docs/accuracy.md
"""

from __future__ import annotations

import argparse
import multiprocessing
import pickle
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path

from tests.faults import matrix, page
from tests.faults.outcome import Outcome, outcome
from tests.faults.score import Score

BASES = {"tune": matrix.TUNE, "hold-out": matrix.HOLD_OUT}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", choices=sorted(BASES), default="tune")
    parser.add_argument("--match", default="", help="only cells whose name holds this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page", action="store_true", help="write docs/accuracy.md")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured with this very code")
    given = parser.parse_args(words)
    plans = [plan for plan in matrix.every_plan(BASES[given.seeds]) if given.match in plan.name]
    found = []
    kept = Kept(given.seeds, fresh=given.fresh)
    for one in outcomes(plans, given.jobs, kept):
        found.append(one)
        tell(one.score, verbose=given.verbose)
    if given.page:
        page.PATH.write_text(page.text(found, given.seeds))
        print(f"wrote {page.PATH.name}")
    return 0


TELLING = frozenset({"__main__.py", "page.py", "words.py", "figures.py"})
"""Files of the matrix that say what was measured, and have no part in it."""


def measuring() -> Iterator[Path]:
    """The files on which an outcome depends."""
    for folder in ("replayproxy", "snapshots", "tests/faults"):
        for path in sorted((page.ROOT / folder).rglob("*.py")):
            if path.parent.name != "faults" or not (path.name in TELLING or path.name.startswith("test_")):
                yield path


class Kept:
    """Outcomes on the disk, by cell, of exactly this code."""

    def __init__(self, seeds: str, *, fresh: bool) -> None:
        code = blake2b(digest_size=8)
        for path in measuring():
            code.update(path.read_bytes())
        self._folder = page.ROOT / ".cache" / "accuracy" / f"{seeds}-{code.hexdigest()}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._fresh = fresh

    def get(self, plan: matrix.Plan) -> Outcome | None:
        path = self._folder / f"{plan.name}.pickle"
        if self._fresh or not path.exists():
            return None
        found: Outcome = pickle.loads(path.read_bytes())
        return found if found.score.plan == plan else None

    def put(self, one: Outcome) -> None:
        path = self._folder / f"{one.score.plan.name}.pickle"
        half = path.with_suffix(".half")
        half.write_bytes(pickle.dumps(one))
        half.replace(path)


def outcomes(plans: Sequence[matrix.Plan], jobs: int, kept: Kept) -> Iterator[Outcome]:
    """Each plan's outcome in the plans' order; `jobs` processes, one cell at a time in each."""
    known = {plan.name: one for plan in plans if (one := kept.get(plan)) is not None}
    todo = [plan for plan in plans if plan.name not in known]
    with ExitStack() as stack:
        found = map(outcome, todo)
        if jobs > 1 and todo:
            context = multiprocessing.get_context("spawn")
            # Without max_tasks_per_child: with it Python 3.12 may wait for ever once a process has had its share.
            pool = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=context))
            found = pool.map(outcome, todo)  # type: ignore[assignment]
        for plan in plans:
            if plan.name not in known:
                known[plan.name] = next(found)
                kept.put(known[plan.name])
            yield known[plan.name]


def tell(score: Score, *, verbose: bool) -> None:
    wrong = f"   WRONG {dict(score.wrong)}" if score.wrong else ""
    aside = f"   aside {dict(score.aside)}" if score.aside else ""
    print(
        f"{score.plan.name:<44} {score.seconds:5.1f}s+{score.judged:3.1f}s {score.episodes:4} episodes   "
        f"found {score.found} of {len(score.best)} ({score.convincing} proven or confirmed){aside}{wrong}",
        flush=True,
    )
    for line in (*score.missed, *score.errors) if verbose else ():
        print(f"    {line}")


if __name__ == "__main__":
    sys.exit(main())
