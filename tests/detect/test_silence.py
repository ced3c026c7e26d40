"""Findings that were declared false alarms."""

from __future__ import annotations

from datetime import date

from replayproxy.detect.silence import Silence, names_a_place, places, silence
from tests.detect.bench import Bench, script

PATCH = script(("GET", "/deals/D-1"), ("PATCH", "/deals/D-1", {"stage": "won"}), ("GET", "/deals/D-1"))
TODAY = date(2026, 11, 30)


def findings():
    bench = Bench(2)
    deployment = bench.deployment("i", "stale")
    bench.in_turn(iter([{"name": f"e{n}", "deployment": deployment, "agents": {"main": PATCH}} for n in range(2)]))
    return bench.judge().findings


def test_an_id_silences_one_a_fingerprint_or_a_place_every_one_of_its_kind() -> None:
    first, second = findings()
    assert first.fingerprint == second.fingerprint
    for what, silenced in (
        (first.id, [1]), (first.fingerprint, [1, 2]), ("stale-read GET /deals/{id}", [1, 2]),
        ("stale-read GET /deals", []), ("state-bleed GET /deals/{id}", []),
    ):  # fmt: skip
        counted, told = silence([first, second], [Silence(what=what, reason="seen")], TODAY)
        both = [first, second]
        assert [both.index(finding) + 1 for finding, _ in told] == silenced, what
        assert {f.id for f in counted} | {f.id for f, _ in told} == {first.id, second.id}


def test_an_expired_silence_silences_nothing_and_its_last_day_counts() -> None:
    (first, _) = findings()
    over = Silence(what=first.id, reason="seen", until=date(2026, 11, 29))
    last = Silence(what=first.id, reason="seen", until=TODAY)
    assert silence([first], [over], TODAY)[1] == []
    assert [by for _, by in silence([first], [over, last], TODAY)[1]] == [last]
    assert silence([first], [over], None)[1] != []
    assert (last.ends_soon(TODAY), over.ends_soon(TODAY), last.ends_soon(date(2026, 11, 20))) == (True, False, False)


def test_a_place_is_kind_method_template() -> None:
    (first, _) = findings()
    assert places(first) == {"stale-read PATCH /deals/{id}", "stale-read GET /deals/{id}"}
    assert names_a_place("race POST /slots/{id}/hold")
    for wrong in ("race", "race POST", "luck POST /x", "race post /x", "race POST x"):
        assert not names_a_place(wrong)
