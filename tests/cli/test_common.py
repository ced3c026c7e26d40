from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.cli.common import columns, count, one_store, store_paths
from replayproxy.cli.moments import clock, duration, moment
from replayproxy.errors import WrongUsage


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert columns([("A", "N", "Z"), ("long", "1", ""), ("x", "100", "z")], right=(1,)) == [
        "A       N  Z", "long    1", "x     100  z",
    ]  # fmt: skip


def test_a_count_says_what_it_counts() -> None:
    assert [count(n, "run") for n in (0, 1, 2003)] == ["0 runs", "1 run", "2,003 runs"]


def test_the_store_is_the_one_named_else_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLAYPROXY_STORE", raising=False)
    assert store_paths([]) == (Path(".replayproxy"),)
    assert store_paths([Path("a"), Path("b")]) == (Path("a"), Path("b"))
    monkeypatch.setenv("REPLAYPROXY_STORE", "/from/there")
    assert one_store([]) == Path("/from/there")
    with pytest.raises(WrongUsage, match="only one --store"):
        one_store([Path("a"), Path("b")])


@pytest.mark.parametrize(
    ("ns", "text"),
    [(None, "-"), (0, "0 ms"), (999_000_000, "999 ms"), (1_500_000_000, "1.5 s"), (38 * 10**9, "38 s"),
     (125 * 10**9, "2 m 05 s"), (3_720 * 10**9, "1 h 02 m")],
)  # fmt: skip
def test_durations_are_in_the_unit_that_fits(ns: int | None, text: str) -> None:
    assert duration(ns) == text


def test_instants_are_in_utc_and_a_clock_set_to_nonsense_is_no_obstacle() -> None:
    assert moment(1_700_000_000_212_000_000) == "2023-11-14 22:13:20"
    assert clock(1_700_000_000_212_000_000) == "22:13:20.212"
    assert moment(2**80) == "1970-01-01 00:00:00"
