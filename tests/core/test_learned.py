"""Templates of paths whose segments do not look like ids."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core import learned
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


_WORDS = st.sampled_from(["ada", "blue", "caf\u00e9", 'qu"ote', "back\\slash", "17", "", "id", "slug"])
_MEMBERS = st.dictionaries(st.sampled_from(["id", "slug", "deal_id", "title", "ref"]), _WORDS, max_size=4)
_BODIES = st.recursive(
    _WORDS | _MEMBERS, lambda inner: st.lists(inner, max_size=3) | st.fixed_dictionaries({"ref": inner})
)


@given(
    bodies=st.lists(st.tuples(_BODIES, st.booleans(), st.booleans()), min_size=1, max_size=6), paths=st.lists(_WORDS)
)
def test_an_answer_that_is_not_looked_into_would_have_said_nothing(bodies: Any, paths: list[str]) -> None:
    traffic = []
    for at, (body, ascii_only, zipped) in enumerate(bodies):
        raw = json.dumps(body, ensure_ascii=ascii_only).encode()
        headers = {"Content-Type": "application/json", **({"Content-Encoding": "gzip"} if zipped else {})}
        traffic.append(exchange("GET", "/x", body=gzip.compress(raw) if zipped else raw, headers=headers, at_ms=at))
    traffic += get(*(f"/things/{word}" for word in paths))
    quick = Learned(traffic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned, "_may_hold", lambda response, wanted: True)
        slow = Learned(traffic)
    for one in traffic:
        assert quick.template(one.request.target) == slow.template(one.request.target)


def test_an_answer_without_any_word_of_a_path_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    real = learned.view
    monkeypatch.setattr(learned, "view", lambda fields, body: looked.append(body) or real(fields, body))
    answers = [exchange("GET", "/deals", body={"id": "D-1", "slug": slug}, at_ms=0) for slug in ("plans", "roadmap")]
    traffic = [*answers, *get("/boards/roadmap")]
    assert Learned(traffic).template(b"/boards/roadmap") == "/boards/{id}"
    assert looked == [answers[1].response.body]
