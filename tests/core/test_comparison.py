from __future__ import annotations

from replayproxy.core.comparison import Comparison, Fold, Root, StateDifference, unpaired
from replayproxy.core.treediff import ABSENT

FOLD = Fold(template="GET /x", pointer="body/n", count=3, a=4, b=5, by="value")


def test_a_root_names_exchanges_by_address_and_what_is_absent() -> None:
    root = Root(a=1, b=2, pointer="body/n", values=(ABSENT, None), kind="added", consequences=3, folded=(FOLD,))
    document = root.to_json("r/a", "r/b")
    assert (document["a"], document["b"], document["values"], document["absent"]) == (
        "r/a#1",
        "r/b#2",
        [None, None],
        ["a"],
    )
    assert document["folded"] == [FOLD.to_json()]
    assert (root.to_json()["a"], root.to_json()["b"]) == (1, 2), "without addresses, the numbers"


def test_a_state_root_names_its_snapshots() -> None:
    root = Root(a=None, b=None, pointer="state/t/k", values=(1, 2), kind="state", snapshots=(0, 3))
    assert root.to_json("r/a", "r/b")["snapshots"] == ["r/a/s0", "r/b/s3"]


def test_differences_count_roots_and_what_is_folded_under_them() -> None:
    roots = tuple(Root(a=n, b=n, pointer="p", values=(1, 2), kind="value", consequences=n) for n in (0, 3))
    comparison = Comparison(verdict="different", roots=roots, explained={}, rules={"used": 2, "idle": 0})
    assert (comparison.differences, comparison.unused_rules) == (5, ("idle",))


def test_the_document_of_a_comparison_has_what_programs_read() -> None:
    state = StateDifference(
        name="crm", when="write", a=1, b=1, after=(4, 5), table="t", key="k", pointer="/p", values=(ABSENT, 2)
    )
    document = Comparison(
        verdict="same", roots=(), explained={"clock": 2}, pairs=((1, 1), (2, None)), state=state
    ).to_json("x", "y")
    assert {"verdict", "roots", "explained", "unpaired"} <= document.keys()
    assert document["unpaired"] == [{"side": "a", "exchange": "x#2"}]
    assert (document["state"]["table"], document["state"]["absent"]) == ("t", ["a"])


def test_unpaired_exchanges_are_listed_by_their_side() -> None:
    assert unpaired([(1, None), (None, 1), (2, 2)]) == [{"side": "a", "exchange": 1}, {"side": "b", "exchange": 1}]
