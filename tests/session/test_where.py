"""The filter language of `ls --where`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.errors import WrongUsage
from replayproxy.session.where import check_names, number, parse, sort_key

E = {
    "verdict": "poisoned", "reward": 0.15, "meta.step": 400, "meta.commit": "a07d", "why": "F3 stale-read /status",
    "task": "crm 7", "took": 38.0, "seed": None, "kind": ("stale-read", "race"), "alias": (),
    "opened": "2026-11-30T02:14:07", "meta.ok": True,
}  # fmt: skip


def holds(text: str) -> bool:
    return all(term.holds(E) for term in parse(text))


@pytest.mark.parametrize("text", [
    "verdict=poisoned", "verdict=poisoned reward<0.2 meta.step=400", "reward<=0.15 reward>=0.15 reward!=0.2",
    "meta.step>99", "meta.step<1000", "why~STALE", 'task="crm 7"', "task='crm 7'", "took<2m", "took>=38s", "took>500ms",
    "seed=", "reward!=", "seed!=3", "kind=race", "kind!=state-bleed", "alias=", "verdict=suspect,poisoned",
    "verdict!=clean,unknown", "opened>=2026-11-30T02:14", "opened<2026-12", "meta.commit=a07d", "meta.ok=true",
    "verdict = poisoned  reward < 0.2", 'task="x, y","crm 7"',
])  # fmt: skip
def test_it_holds(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize("text", [
    "verdict=clean", "reward>0.2", "verdict=poisoned reward>0.2", "meta.step=40", "why~membership", "seed=3", "seed<3",
    "seed!=", "reward=", "kind=lost-update", "kind!=race", "alias!=", "alias=x", "verdict!=clean,poisoned",
    "meta.ok=false", 'task="crm 7,"',
])  # fmt: skip
def test_it_does_not_hold(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(("text", "said"), [
    ("", "names nothing"), ("   ", "names nothing"), ("verdict", "'verdict' is no FIELD OP VALUE"),
    ("verdict=a b", "'b' is no FIELD OP VALUE"), ("=x", "'=x' is no FIELD"), ('task="a', "no FIELD OP VALUE"),
    ('task="a"b"', "no FIELD OP VALUE"), ("reward<much", "reward is a number, not 'much'"),
    ("reward<", "compares with nothing"), ("why~", "compares with nothing"), ("seed=nan", "is a number, not 'nan'"),
])  # fmt: skip
def test_what_cannot_be_meant_is_said_with_the_form(text: str, said: str) -> None:
    with pytest.raises(WrongUsage) as wrong:
        parse(text)
    assert said in wrong.value.what
    assert "verdict=poisoned" in wrong.value.hint


def test_an_unknown_field_is_named_with_those_that_there_are() -> None:
    with pytest.raises(WrongUsage) as wrong:
        check_names(["meta.stepp"], ["meta.step", "verdict"], "--where")
    assert wrong.value.what == "--where: no field 'meta.stepp'"
    assert wrong.value.hint == "did you mean 'meta.step'? known: meta.step, verdict"


def test_numbers_sort_by_size_texts_after_them_and_what_is_not_known_last() -> None:
    assert sorted([None, "b", 10, "a", 9, ()], key=sort_key) == [9, 10, "a", "b", None, ()]


def test_a_number_may_have_a_unit_of_time() -> None:
    assert [number(text) for text in ("2m", "1.5s", "20ms", "3", "1e3", "x", "", "5 s", "nan", None, True)] == [
        120.0, 1.5, 0.02, 3.0, 1000.0, None, None, None, None, None, None,
    ]  # fmt: skip


@given(st.text(max_size=40))
def test_any_text_is_a_filter_or_wrong_usage(text: str) -> None:
    try:
        terms = parse(text)
    except WrongUsage:
        return
    for term in terms:
        term.holds(E)
