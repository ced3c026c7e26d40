from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from replayproxy.core.shown import json_bytes
from replayproxy.detect.finding import Blame, Finding, Grade, Kind, Witness, in_order, plain, seconds

FINDING = Finding(
    kind=Kind.STALE_READ, sub="RYW", grade=Grade.PROVEN, blame=Blame.ENVIRONMENT, blame_reason="why", run="r",
    episode="e", lane="main", pointer="/stage", values=("won", Decimal("1.10")),
    exchanges=(Witness(address="r/e#1", role="write"), Witness(address="r/e#2", role="read", value={"a": [2**70]})),
    snapshots=("r/e/s1",), assumptions=("a",), ruled_out=("b",), reproduce="replayproxy redrive r/e", title="t",
    cannot_say="c",
)  # fmt: skip


def test_a_finding_is_the_record_that_programs_read() -> None:
    told = FINDING.to_json()
    assert set(told) >= {
        "id", "kind", "sub", "grade", "blame", "run", "episode", "lane", "pointer", "values", "exchanges", "snapshots",
        "assumptions", "ruled_out", "reproduce",
    }  # fmt: skip
    assert (told["kind"], told["grade"], told["values"]) == ("stale-read", "proven", ["won", 1.1])
    assert [(one["address"], one["role"]) for one in told["exchanges"]] == [("r/e#1", "write"), ("r/e#2", "read")]
    assert json_bytes(told)


def test_an_id_is_made_of_the_evidence_alone() -> None:
    assert FINDING.id.startswith("stale-read-")
    assert replace(FINDING, title="other words", assumptions=()).id == FINDING.id
    assert replace(FINDING, pointer="/amount").id != FINDING.id
    assert replace(FINDING, values=("won", "lead")).id != FINDING.id


def test_a_fingerprint_is_that_of_the_same_fault_in_another_recording() -> None:
    def fault(run: str, target: str, pointer: str) -> Finding:
        one = Witness(address=f"{run}/e#1", role="read", method="GET", target=target)
        return replace(FINDING, run=run, episode=run, pointer=pointer, exchanges=(one,))

    first = fault("r", "/deals/17?x=1", "/items/3/stage")
    assert fault("s", "/deals/9", "/items/12/stage").fingerprint == first.fingerprint
    assert fault("s", "/slots/9", "/items/12/stage").fingerprint != first.fingerprint
    assert fault("s", "/deals/9", "/items/12/owner").fingerprint != first.fingerprint


def test_findings_come_by_grade_then_by_time() -> None:
    def at(episode: str, grade: Grade = Grade.PROVEN, at: int = 0) -> Finding:
        return replace(FINDING, episode=episode, grade=grade, at=at)

    findings = [at("b", at=2), at("a", Grade.SUSPECTED), at("b", at=1), at("a"), at("c", Grade.CONFIRMED)]
    ordered = in_order(findings, {"a": 1, "b": 2, "c": 0})
    assert [(f.episode, f.grade.value, f.at) for f in ordered] == [
        ("a", "proven", 0), ("b", "proven", 1), ("b", "proven", 2), ("c", "confirmed", 0), ("a", "suspected", 0),
    ]  # fmt: skip


def test_values_are_told_as_json_can_carry_them() -> None:
    values: list[tuple[Any, Any]] = [
        (None, None), (True, True), (2**70, 2**70), (Decimal("1.5"), 1.5), (b"\xff", "\\xff"), ((1, "a"), [1, "a"]),
        ({"a": Decimal("0.1")}, {"a": 0.1}), (Decimal("0.12345678901234567890123"), "0.12345678901234567890123"),
    ]  # fmt: skip
    for given, wanted in values:
        assert plain(given) == wanted
    assert plain("x" * 1000) == "x" * 400 + "…"


def test_instants_are_told_as_seconds_after_the_first() -> None:
    assert seconds(write=(2_000_000_000, None), read=5_500_000_000, never=None) == {
        "write_s": [0.0, None], "read_s": 3.5, "never_s": None,
    }  # fmt: skip
