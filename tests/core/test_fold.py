from __future__ import annotations

from typing import Any

from replayproxy.core.comparison import Root
from replayproxy.core.difference import Difference
from replayproxy.core.fold import Folding, Step
from replayproxy.core.treediff import ABSENT


def changed(pointer: str, a: Any = 1, b: Any = 2, kind: str = "value") -> Difference:
    tokens = tuple(int(token) if token.isdigit() and index else token for index, token in enumerate(pointer.split("/")))
    return Difference(tokens=tokens, kind=kind, a=a, b=b)


def step(seq: int, path: str, *differences: Difference, method: str = "GET", lane: str = "main", **more: Any) -> Step:
    return Step(
        a=more.pop("a", seq), b=more.pop("b", seq), lane=lane, template=f"{method} {path}", request=f"{method} {path}",
        differences=differences, paths=(path,), writes=method != "GET", **more,
    )  # fmt: skip


def folded(*steps: Step) -> list[Root]:
    folding = Folding()
    for one in steps:
        folding.add(one)
    return list(folding.roots(lambda difference, value: value))


def by(root: Root) -> list[tuple[str, int]]:
    return [(fold.by, fold.count) for fold in root.folded]


def test_a_differing_value_is_recognised_where_it_turns_up_again() -> None:
    (root,) = folded(step(1, "/a", changed("body/price", 5, 6)), step(2, "/b", changed("body/items/3/price", 5, 6)))
    assert (root.a, root.consequences, by(root)) == (1, 1, [("value", 1)])


def test_the_same_small_value_under_another_name_is_another_root() -> None:
    assert len(folded(step(1, "/a", changed("body/price", 5, 6)), step(2, "/b", changed("body/rooms", 5, 6)))) == 2


def test_a_long_value_is_recognised_under_any_name() -> None:
    ids = "4f1c2b7a9d3e5a6b", "0a9f8e7d6c5b4a39"
    (root,) = folded(step(1, "/a", changed("body/id", *ids)), step(2, "/b", changed("body/note", f"see {ids[0]}", "-")))
    assert by(root) == [("value", 1)]


def test_what_a_differing_write_changed_is_read_later() -> None:
    first = step(1, "/deals", changed("status", 201, 500, "status"), method="POST")
    (root,) = folded(first, step(2, "/deals/17", changed("body/stage", "a", "b")))
    assert by(root) == [("state", 1)]
    other = step(2, "/tickets/17", changed("body/stage", "a", "b"))
    assert len(folded(first, other)) == 2


def test_a_differing_read_changes_nothing() -> None:
    first = step(1, "/deals", changed("body/total", 1, 2))
    second = step(2, "/deals/17", changed("body/stage", "a", "b"))
    assert len(folded(first, second)) == 2


def test_a_row_that_differs_is_what_its_reads_follow_from() -> None:
    row = Step(a=1, b=1, lane="", template="state crm", request="state", snapshots=(1, 1),
               differences=(changed("state/helpdesk.tickets/17/priority", "low", None),))  # fmt: skip
    (root,) = folded(row, step(2, "/tickets/17", changed("body/urgency", "a", "b")))
    assert (root.kind, root.snapshots, by(root)) == ("state", (1, 1), [("state", 1)])
    assert len(folded(row, step(2, "/tickets/18", changed("body/urgency", "a", "b")))) == 2


def test_requests_after_a_changed_request_of_their_lane_are_consequences() -> None:
    extra = step(3, "/x", a=None)
    later = step(4, "/y", changed("request/body/n", 1, 2))
    elsewhere = step(5, "/z", changed("request/body/k", 1, 2), lane="other")
    roots = folded(extra, later, elsewhere)
    assert [(root.kind, by(root)) for root in roots] == [("inserted", [("control", 1)]), ("value", [])]


def test_an_answer_is_no_consequence_of_a_changed_request_alone() -> None:
    assert len(folded(step(1, "/x", a=None), step(2, "/y", changed("body/n", 1, 2)))) == 2


def test_the_same_change_of_another_resource_is_the_same_again() -> None:
    def text(n: int) -> Difference:
        return changed("body/amount", f"{n}.00", n, "type")

    def deal(seq: int) -> Step:
        return Step(a=seq, b=seq, lane="main", template="GET /deals/{id}", request=f"GET /deals/{seq}",
                    differences=(text(seq),), paths=(f"/deals/{seq}",))  # fmt: skip

    (root,) = folded(*(deal(n) for n in range(1, 5)))
    assert (root.note, by(root)) == ("text became number", [("same", 3)])


def test_what_was_asked_comes_first_then_how_it_ended_then_the_body() -> None:
    (root,) = folded(step(1, "/x", changed("header/etag"), changed("body/a"), changed("status", 200, 201, "status")))
    assert (root.pointer, root.consequences) == ("status", 2)
    (root,) = folded(step(1, "/x", changed("body/a"), changed("request/body/b")))
    assert root.pointer == "request/body/b"


def test_what_one_side_lacks_says_so() -> None:
    (gone,) = folded(step(1, "/x", changed("body/a", 1, ABSENT, "removed")))
    assert (gone.values, gone.note) == ((1, ABSENT), "only in A")
    (null,) = folded(step(1, "/x", changed("body/a", 1, None)))
    assert null.note == "null on one side"


def test_elements_in_another_order_are_named_and_a_fresh_sort_is_seen() -> None:
    a, b = [{"id": "1"}, {"id": "9f"}], [{"id": "0a"}, {"id": "1"}]
    (root,) = folded(step(1, "/x", changed("body/items", a, b, "order")))
    assert root.values == (["1", "9f"], ["0a", "1"])
    assert root.note.endswith("sorted by their fresh id")


def test_very_many_differences_cost_no_quadratic_time() -> None:
    import time

    began = time.process_time()
    steps = [step(n, f"/deals/{n}", changed("body/x", n, -n), method="POST") for n in range(1, 5000)]
    assert len(folded(*steps)) >= 1
    assert time.process_time() - began < 5


def test_a_file_that_differs_is_what_reads_of_its_folder_follow_from() -> None:
    digest = Difference(tokens=("state", "files", "agents/ada/a.ics", "hash"), kind="value", a="1", b="2")
    row = Step(a=1, b=1, lane="", template="state cal", request="state", differences=(digest,))
    for path in ("/agents/ada/", "/ada/a.ics"):
        (root,) = folded(row, step(2, path, changed("body#line=1", "a", "b")))
        assert (root.kind, by(root)) == ("state", [("state", 1)])
    assert len(folded(row, step(2, "/home/", changed("body#line=1", "a", "b")))) == 2


def test_the_same_column_of_another_row_is_the_same_again() -> None:
    def row(seq: int, key: str) -> Step:
        difference = Difference(tokens=("state", "deals", key, "amount"), kind="value", a=seq, b=2 * seq)
        return Step(a=seq, b=seq, lane="", template="state crm", request="state", differences=(difference,))

    (root,) = folded(row(1, "x"), row(2, "y"))
    assert by(root) == [("same", 1)]
