from __future__ import annotations

from replayproxy.detect.agreement import SETTLED_NS, Agreement, Pair

PAIR = Pair(env="app", table="deals", pointer="", column="stage", query=())
LATE, SOON = SETTLED_NS + 1, SETTLED_NS


def test_a_pair_holds_once_it_agreed() -> None:
    agreement = Agreement()
    assert not agreement.holds(PAIR)
    agreement.agree(PAIR, "'lead")
    assert agreement.holds(PAIR)
    assert agreement.agreed(PAIR) == 1


def test_a_disagreement_soon_after_a_write_says_nothing_and_a_late_one_drops_it() -> None:
    agreement = Agreement()
    agreement.agree(PAIR, "'lead")
    agreement.disagree(PAIR, since_write=SOON, earlier=False)
    assert agreement.holds(PAIR)
    agreement.disagree(PAIR, since_write=LATE, earlier=False)
    assert agreement.dropped(PAIR)
    assert not agreement.holds(PAIR)


def test_an_earlier_value_of_the_cell_drops_only_what_agreed_in_one_value() -> None:
    agreement = Agreement()
    agreement.agree(PAIR, "'lead")
    agreement.disagree(PAIR, since_write=LATE, earlier=True)
    assert agreement.dropped(PAIR)
    agreement.agree(PAIR, "'won")
    assert agreement.holds(PAIR)


def test_while_others_write_a_pair_holds_once_it_agreed_in_two_values() -> None:
    agreement = Agreement()
    agreement.agree_steadily(PAIR, "'lead")
    agreement.agree_steadily(PAIR, "'lead")
    assert not agreement.holds(PAIR), "one value may be the same by chance"
    agreement.agree_steadily(PAIR, "'won")
    assert agreement.holds(PAIR)
    assert agreement.agreed(PAIR) == 0
    agreement.disagree(PAIR, since_write=LATE, earlier=False)
    assert not agreement.holds(PAIR)
