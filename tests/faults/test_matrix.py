"""A slice of the matrix in `make test`: each row's plainest fault is found, named rightly, and nothing else is said.

The whole of it is `make accuracy`; its figures are docs/accuracy.md.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.faults import matrix
from tests.faults.booking import SERVER
from tests.faults.outcome import outcome
from tests.needs import absent

pytestmark = pytest.mark.e2e


def needs_postgres() -> None:
    try:
        psycopg.connect(f"{SERVER}/postgres", connect_timeout=5).close()
    except psycopg.OperationalError:
        absent("PostgreSQL does not answer on 127.0.0.1:5432")


SLICE = [plan for env in matrix.ENVS for plan in matrix.slice_of(env)]


@pytest.mark.parametrize("plan", SLICE, ids=[plan.name for plan in SLICE])
def test_the_plainest_fault_of_each_row_is_found_and_nothing_else(plan: matrix.Plan) -> None:
    if plan.env == "booking":
        needs_postgres()
    score = outcome(plan).score
    assert score.errors == []
    assert not score.aside
    assert score.missed == []
    assert score.convincing == len(score.best)
    assert bool(score.best) != plan.control
