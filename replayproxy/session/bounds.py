"""What runs without a difference allow to say: they bound its rate, and no more."""

from __future__ import annotations


def most(n: int, confidence: float = 0.95) -> float:
    """The largest rate that `n` runs without a single one still allow, at that confidence: 45 % at 5, 26 % at 10,
    5 % at 60, 1 % at 300."""
    return 1.0 if n <= 0 else 1 - float((1 - confidence) ** (1 / n))


def bound_text(n: int) -> str:
    """`5 runs without one only bound its rate: at most 45 % (95 %)`."""
    share = most(n) * 100
    return f"{n} {'run' if n == 1 else 'runs'} without one only bound its rate: at most {share:.0f} % (95 %)"


def runs_for(rate: float, confidence: float = 0.95) -> int:
    """How many runs show, at that confidence, at least one of what comes with this rate."""
    n = 1
    while (1 - rate) ** n > 1 - confidence:
        n += 1
    return n
