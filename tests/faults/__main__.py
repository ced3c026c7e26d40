"""Runs the matrix, or some of it.

python -m tests.faults                           all of it on the tuning seeds, told cell by cell
python -m tests.faults --match crm-b --verbose   some cells, with what was missed and what was wrong
python -m tests.faults --seeds hold-out --page   the hold-out, written into docs/accuracy.md
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

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
    given = parser.parse_args(words)
    plans = [plan for plan in matrix.every_plan(BASES[given.seeds]) if given.match in plan.name]
    found = []
    for one in outcomes(plans, given.jobs):
        found.append(one)
        tell(one.score, verbose=given.verbose)
    if given.page:
        page.PATH.write_text(page.text(found, given.seeds))
        print(f"wrote {page.PATH.name}")
    return 0


def outcomes(plans: Sequence[matrix.Plan], jobs: int) -> Iterator[Outcome]:
    """Each plan's outcome in the plans' order; `jobs` processes, one cell at a time in each."""
    if jobs == 1:
        yield from map(outcome, plans)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=40) as pool:
        yield from pool.map(outcome, plans)


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
