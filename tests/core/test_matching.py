"""The order of the search: equal, known bindings, new bindings, rules, repetition; and never another lane."""

from __future__ import annotations

from replayproxy.core.replayer import Grade
from replayproxy.testing import exchange
from tests.core.play import Play

A, B = "5eed0000-1234-4abc-8def-9e3779b97f4a", "5eed0001-1234-4abc-8def-3c6ef372fe94"
X = "11fe0000-9876-4cba-9fed-c2b2ae3d27d4"
RULES = [
    {"name": "clock", "at": "POST /act", "pointer": "/ts", "action": "ignore", "reason": "a clock"},
    {"name": "again", "at": "POST /act", "action": "repeat"},
]


def act(key: str, ts: int = 1) -> dict[str, object]:
    return {"call_id": key, "ts": ts}


def test_what_is_nearer_is_taken_first() -> None:
    play = Play(
        exchange("POST", "/act", sent=act(A, ts=5)), exchange("POST", "/act", sent=act(B)),
        exchange("POST", "/act", sent=act(A)), exchange("POST", "/act", sent=act(A), lane="other"), rules=RULES,
    )  # fmt: skip
    first = play.served("POST", "/act", act(B))
    assert (first.entry.seq, first.grade) == (2, Grade.EXACT)
    bound = play.served("POST", "/act", act(X))  # with new bindings the third; only by a rule the first
    assert (bound.entry.seq, bound.grade) == (3, Grade.CANONICAL)
    ruled = play.served("POST", "/act", act(X))
    assert (ruled.entry.seq, ruled.grade) == (1, Grade.RELAXED)
    again = play.served("POST", "/act", act(X))
    assert again.grade is Grade.REPEAT
    assert play.claim("POST", "/act", act(X), lane="third").number == 5  # the other lane's is never given
    assert [entry.seq for entry in play.replayer.unused()] == [4]
