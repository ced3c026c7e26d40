from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from replayproxy.core.chaos import Chaos, Fault, parse_chaos, truncated_at, unblamed
from replayproxy.core.values import Episode, Outcome, Run, Trace
from replayproxy.errors import WrongUsage
from replayproxy.testing import exchange


def chaos(*texts: str, seed: int = 0) -> Chaos:
    made = parse_chaos(texts, seed)
    assert made is not None
    return made


def ask(
    made: Chaos, place: int = 1, *, episode: str = "e", lane: str = "main", line: str = "GET /deals/42?x=1"
) -> Fault | None:
    method, target = line.encode().split()
    return made.fault(episode=episode, lane=lane, place=place, method=method, target=target)


def kinds(made: Chaos, n: int = 300, **where: str) -> list[str | None]:
    return [fault.kind if (fault := ask(made, place, **where)) else None for place in range(1, n + 1)]


def test_nothing_is_injected_unless_it_is_asked_for() -> None:
    assert parse_chaos(()) is None


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("latency 250ms", "latency", 0.25), ("latency 1.5s 10%", "latency", 1.5), ("reset", "reset", 0),
        ("truncate 120 50% POST /export", "truncate", 120), ("status 503 20% * /deals/{id}", "status", 503),
    ],
)  # fmt: skip
def test_a_rule_is_a_fault_a_share_and_the_requests_that_it_is_about(text: str, kind: str, value: float) -> None:
    rule = chaos(text).rules[0]
    assert (rule.fault.kind, rule.fault.value, rule.fault.rule) == (kind, value, text)


@pytest.mark.parametrize(
    "text",
    [
        "", "503", "status 404", "status 200", "latency", "latency soon", "truncate -1", "reset 120%", "explode 5%",
        "reset 5% get", "reset 5% GET deals",
        f"latency {'9' * 400}s", f"truncate {'9' * 400}",
    ],
)  # fmt: skip
def test_a_text_that_is_no_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(WrongUsage) as wrong:
        parse_chaos([text])
    assert "--chaos" in wrong.value.what


def test_only_the_requests_that_a_rule_names_are_touched() -> None:
    made = chaos("status 503 GET /deals/*")
    assert ask(made, line="GET /deals/42?x=1") is not None
    assert ask(made, line="POST /deals/42") is None
    assert ask(made, line="GET /users/1") is None
    assert ask(chaos("reset /deals/{id}"), line="PUT /deals/1") is not None


def test_the_same_seed_gives_the_same_faults_at_the_same_places() -> None:
    first, again, other = (kinds(chaos("reset 20%", seed=seed)) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert kinds(chaos("reset 20%"), episode="a") != kinds(chaos("reset 20%"), episode="b")
    assert kinds(chaos("reset 20%"), lane="a") != kinds(chaos("reset 20%"), lane="b")


def test_where_a_fault_falls_does_not_hang_on_what_else_was_asked() -> None:
    made = chaos("reset 20%")
    assert [bool(ask(made, place, line="GET /a")) for place in range(1, 50)] == [
        bool(ask(made, place, line="POST /b")) for place in range(1, 50)
    ]


def test_a_share_is_the_share_of_requests_that_are_hit() -> None:
    counts = Counter(kinds(chaos("status 500 20%", "reset 50%"), 5000))
    assert abs(counts["status"] / 5000 - 0.2) < 0.02
    assert abs(counts["reset"] / 5000 - 0.4) < 0.02, "half of what the first rule left"
    assert set(kinds(chaos("reset 0%"))) == {None}
    assert set(kinds(chaos("reset"))) == {"reset"}


def test_the_note_says_what_was_done_and_by_which_rule() -> None:
    fault = ask(chaos("truncate 120 GET /deals/*"))
    assert fault is not None
    one = replace(exchange(), notes=("h2c-offer-removed", fault.note))
    assert one.injected == "truncate 120 (--chaos 'truncate 120 GET /deals/*')"
    assert truncated_at(one.notes) == 120
    assert truncated_at(("injected:reset (--chaos 'truncate 120')",)) is None
    assert exchange().injected == ""


def test_judges_see_no_answer_where_the_proxy_put_one_in() -> None:
    ours = replace(exchange(outcome=Outcome.LOCAL), notes=(Fault("status", 503, "r").note,))
    slow = replace(exchange(), notes=(Fault("latency", 1, "r").note,))
    run, episode = Run(key=1, name="r", opened_wall=1), Episode(key=1, run_key=1, name="e")
    trace = Trace(run=run, episode=episode, exchanges=[slow, ours], snapshots=[])
    seen = unblamed(trace).exchanges
    assert seen[0] is slow
    assert (seen[1].response, seen[1].outcome) == (None, Outcome.LOCAL)
    whole = Trace(run=run, episode=episode, exchanges=[slow], snapshots=[])
    assert unblamed(whole) is whole
