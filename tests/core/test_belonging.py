from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.belonging import alias_of, at_odds, decide
from replayproxy.core.extract import REDACTED, Extracted, Found
from replayproxy.core.extractrule import extract_rules
from replayproxy.core.identity import CARRIERS, Claims
from replayproxy.core.redact import Redactor

REDACTOR = Redactor(b"k" * 32)


def shown(value: str) -> str:
    return REDACTOR.token(value.encode("utf-8", "surrogateescape")).decode()


PLAIN, SECRET, NAMING = extract_rules([
    {"name": "plain", "action": "extract", "header": "X-A", "fills": "alias"},
    {"name": "secret", "action": "extract", "cookie": "a", "fills": "alias", "space": "s"},
    {"name": "naming", "action": "extract", "header": "X-B", "fills": "episode"},
])  # fmt: skip
NAMES = st.sampled_from(["a", "b", "c"])
SLOTS = [slot for slot, _ in CARRIERS]


def found(*values: tuple[object, str]) -> Extracted:
    return Extracted(found=tuple(Found(rule=rule, value=value) for rule, value in values))  # type: ignore[arg-type]


@given(st.dictionaries(st.sampled_from(SLOTS), NAMES), st.lists(NAMES), st.dictionaries(NAMES, NAMES))
def test_the_strongest_that_names_an_episode_decides_and_all_others_are_told(
    claimed: dict[str, str], ids: list[str], owners: dict[str, str]
) -> None:
    extracted = found(*((PLAIN, one) for one in ids))
    decision = decide(Claims(**claimed), extracted, lambda alias: owners.get(alias[1]), shown)
    in_order = [claimed[slot] for slot in SLOTS if slot in claimed] + [owners[one] for one in ids if one in owners]
    assert decision.name == (in_order[0] if in_order else None)
    assert {name for _, name in decision.rivals} == set(in_order) - {decision.name}
    assert {alias[1] for alias, _ in decision.unknown} == set(ids) - set(owners)
    assert at_odds(Claims(**claimed)) is (len(set(claimed.values())) > 1)


def test_a_rule_that_names_an_episode_is_stronger_than_an_id_and_weaker_than_a_mark() -> None:
    extracted = found((PLAIN, "id"), (NAMING, "named"))
    assert decide(Claims(), extracted, lambda _: "owner", shown).name == "named"
    assert decide(Claims(proxy_user="user"), extracted, lambda _: "owner", shown).name == "user"


@given(st.text(min_size=1))
def test_a_secret_is_its_token_and_a_token_stays_one(value: str) -> None:
    space, token = alias_of(Found(rule=SECRET, value=value), shown)
    assert (space, bool(REDACTED.fullmatch(token))) == ("s", True)
    assert alias_of(Found(rule=SECRET, value=token, redacted=True), shown) == (space, token)
    assert alias_of(Found(rule=PLAIN, value=value), shown) == ("plain", value)
