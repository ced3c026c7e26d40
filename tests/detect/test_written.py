from __future__ import annotations

from typing import Any

from replayproxy.detect.written import Written, leaver


def written(episode: str, at: int, *, whole: bool = True, **values: str) -> Written:
    return Written(episode=episode, by=None, at=at, values=values, whole=whole)


def row(**values: Any) -> dict[str, Any]:
    return values


PRESENT = {"": "present"}


def test_a_row_was_left_by_the_last_write_before_if_it_left_it_so() -> None:
    first = written("p", 1, stage="'lead", **PRESENT)
    last = written("q", 5, stage="'won", **PRESENT)
    assert leaver([last, first], row(stage="lead"), row(stage="won"), 10)[0] is last
    assert leaver([last, first], row(stage="lead"), row(stage="won"), 5)[0] is None
    assert leaver([last, first], row(stage="lead"), row(stage="lost"), 10)[0] is None
    assert leaver([], row(stage="lead"), row(stage="won"), 10) == (None, None)


def test_what_a_reset_put_right_again_need_not_be_what_was_written() -> None:
    last = written("p", 1, stage="'won", amount="7", **PRESENT)
    # The reset restored the amount; what differs from the reference is the stage alone.
    assert leaver([last], row(stage="lead", amount=5), row(stage="won", amount=5), 10)[0] is last


def test_a_row_too_many_names_who_made_it_beside_who_changed_it_last() -> None:
    made = written("p", 1, stage="'lead", **PRESENT)
    changed = written("p", 3, stage="'won", **PRESENT)
    assert leaver([made, changed], None, row(stage="won"), 10) == (changed, made)
    assert leaver([made], None, row(stage="lead"), 10) == (made, None)


def test_a_row_missing_was_left_by_who_deleted_it() -> None:
    gone = written("p", 1, **{"": "absent"})
    assert leaver([gone], row(stage="lead"), None, 10)[0] is gone


def test_an_answer_alone_must_agree_in_what_it_says_and_say_something() -> None:
    told = written("p", 1, whole=False, stage="'won", **PRESENT)
    assert told.leaves(row(stage="lead", amount=1), row(stage="won", amount=2))
    assert not told.leaves(row(stage="lead"), row(stage="lost"))
    assert not written("p", 1, whole=False, **PRESENT).leaves(None, row(stage="won"))
