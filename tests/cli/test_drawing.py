"""Small drawings of intervals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replayproxy.cli.drawing import WIDTH, Bar, draw


def bars(*spans: tuple[str, int | None, int | None]) -> list[Bar]:
    return [Bar(label=label, begun=begun, done=done) for label, begun, done in spans]


def test_what_came_after_what_is_seen_whatever_the_distance() -> None:
    drawn = draw(bars(("write", 0, 5), ("s0", 10**12, 10**12 + 9), ("read", 10**12 + 20, 10**12 + 21)), marker=5)
    assert drawn == [
        "[===| write        ]",
        "[   |   ==== s0    ]",
        "[   |     read ====]",
    ]  # fmt: skip


def test_what_overlapped_is_seen() -> None:
    assert draw(bars(("claim", 0, 20), ("claim", 10, 30)), width=20) == [
        "[============== claim]",
        "[claim ==============]",
    ]  # fmt: skip


def test_what_never_ended_goes_on_and_what_is_not_known_is_not_drawn() -> None:
    assert draw(bars(("write", 0, None), ("read", 5, 9), ("x", None, None)), width=12) == [
        "[===========>]",
        "[ read ======]",
        "[            ]",
    ]  # fmt: skip


@given(
    st.lists(
        st.tuples(st.sampled_from(["read", "write", "s12", "before-restore"]), st.integers(0, 50), st.integers(0, 9)),
        max_size=6,
    ),
    st.integers(0, 60),
)
def test_every_line_has_the_same_width_and_shows_its_interval(spans: list[tuple[str, int, int]], marker: int) -> None:
    drawn = draw(bars(*((label, at, at + took) for label, at, took in spans)), marker)
    assert {len(line) for line in drawn} <= {WIDTH + 2}
    assert all("=" in line or "|" in line for line in drawn)
