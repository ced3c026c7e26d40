"""Templates of paths whose segments do not look like ids."""

from __future__ import annotations

from typing import Any

from replayproxy.core.learned import Learned
from replayproxy.testing import exchange


def get(*paths: str, body: Any = None) -> list[Any]:
    return [exchange("GET", path, body=body or {}, at_ms=n) for n, path in enumerate(paths)]


NAMES = ["ada", "bea", "cyd", "dan", "eve", "fay", "gus", "hal", "ivy", "jim", "kay", "lea"]


def test_a_segment_that_an_earlier_answer_gave_is_a_parameter() -> None:
    made = exchange("POST", "/boards", status=201, body={"slug": "roadmap", "title": "Plans"}, at_ms=0)
    moved = exchange("POST", "/things", status=201, headers={"Location": "/things/blue"}, at_ms=1)
    learned = Learned([made, moved, *get("/boards/roadmap/cards")])
    assert learned.template(b"/boards/roadmap/cards?x=1") == "/boards/{id}/cards"
    assert learned.template(b"/things/blue") == "/things/{id}"
    assert learned.template(b"/roadmap/boards") == "/roadmap/boards"  # the first segment names a collection
    assert learned.template(b"/boards/Plans") == "/boards/Plans"  # a title names nothing


def test_words_of_an_answer_are_no_ids() -> None:
    listed = exchange("GET", "/deals", body={"items": [{"status": "open", "kind": "deals"}]}, at_ms=0)
    assert Learned([listed, *get("/deals/open")]).template(b"/deals/open") == "/deals/open"


def test_many_words_with_the_same_below_them_are_one_parameter_and_frequent_ones_are_words() -> None:
    paths = [f"/users/{name}{end}" for name in NAMES for end in ("", "/posts")]
    learned = Learned(get(*paths, *["/users/me"] * 6, *["/users/search"] * 4))
    assert learned.template(b"/users/ada") == "/users/{id}"
    assert learned.template(b"/users/zoe/posts") == "/users/{id}/posts"  # one that was never seen
    assert learned.template(b"/users/me") == "/users/me"
    assert learned.template(b"/users/search") == "/users/search"


def test_few_words_or_such_with_other_things_below_stay_words() -> None:
    assert Learned(get(*(f"/users/{name}" for name in NAMES[:9]))).template(b"/users/ada") == "/users/ada"
    apart = Learned(get(*(f"/api/{name}/only-{name}" for name in NAMES)))
    assert apart.template(b"/api/ada/only-ada") == "/api/ada/only-ada"


def test_what_its_form_tells_needs_no_learning() -> None:
    learned = Learned([])
    assert learned.template(b"/deals/42/notes") == "/deals/{id}/notes"
    assert learned.template(b"/") == "/"
    assert learned.template(b"/deals/") == "/deals/"


def test_the_order_of_the_traffic_does_not_matter() -> None:
    traffic = get(*(f"/users/{name}" for name in NAMES))
    assert Learned(traffic).template(b"/users/ada") == Learned(traffic[::-1]).template(b"/users/ada") == "/users/{id}"
