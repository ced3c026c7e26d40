from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replayproxy.core.chaos import Fault
from replayproxy.core.values import Exchange, Outcome, Snapshot, SnapshotStatus, Times
from replayproxy.session.tally import Histogram, Tally, added_ns
from replayproxy.session.tally_text import lines, size_text, took
from replayproxy.testing import MS, exchange


def snapshot(status: SnapshotStatus = SnapshotStatus.TAKEN, **given: Any) -> Snapshot:
    return Snapshot(**{"n": 0, "name": "crm", "env": "crm", "when": "write", "status": status} | given)


def whole() -> Tally:
    tally = Tally(run="nightly", sealed=1)
    tally.exchange(exchange(env="crm"), attributed=True)
    return tally


def stray(reason: str = "no carrier", **given: Any) -> Exchange:
    return exchange("GET", "/deals/42", env="crm", carrier=reason, **given)


def shown(tally: Tally) -> str:
    return "\n".join(lines(tally, seconds=2467, upstreams={"crm": "http://h:1"}, instances={}, store="s", size=1 << 20))


def test_a_recording_with_an_exchange_in_a_sealed_episode_is_whole() -> None:
    assert whole().why_not_whole() == []
    assert whole().document()["whole"] is True
    assert "recorded nightly: WHOLE   1 episode sealed, 0 incomplete   1 exchange   41 m 07 s" in shown(whole())


def test_one_exchange_of_an_environment_is_one_and_keeps_its_column() -> None:
    tally = whole()
    tally.exchange(exchange(env="cal"), attributed=True)
    tally.exchange(exchange(env="cal"), attributed=True)
    told = {line.split()[0]: line for line in shown(tally).splitlines() if "   5xx " in line}
    assert "       1 exchange    5xx 0   " in told["crm"]
    assert "       2 exchanges   5xx 0   " in told["cal"]


def test_nothing_recorded_is_not_whole() -> None:
    tally = Tally(run="r")
    assert tally.why_not_whole() == ["no exchange was recorded in an episode"]
    assert "nothing was recorded" in shown(tally)
    assert "its client ignores the proxy variables" in shown(tally)
    assert shown(tally).endswith("next: replayproxy doctor --env crm=http://h:1")


def test_an_episode_without_an_exchange_is_named_beside_those_that_have_some() -> None:
    tally = whole()
    tally.empty += ["a", "b", "c", "d"]
    assert (
        "EMPTY 4 episodes without an exchange (a, b, c, ..): did the agent go past the proxy?"
        " -> replayproxy doctor --env crm=http://h:1"
    ) in shown(tally)
    assert tally.document()["empty"] == ["a", "b", "c", "d"]
    assert "EMPTY" not in shown(whole())


def test_an_incomplete_episode_is_named_with_its_reason() -> None:
    tally = whole()
    tally.incomplete.append("crm-9-a2")
    tally.why_incomplete["crm-9-a2"] = "queue full"
    assert tally.why_not_whole() == ["1 episode incomplete"]
    assert "incomplete  crm-9-a2 (queue full)" in shown(tally)
    assert tally.document()["episodes"] == 2


def test_unattributed_traffic_is_not_whole_and_says_why_and_what_to_do() -> None:
    tally = whole()
    tally.exchange(stray(request_headers={"User-Agent": "node"}), attributed=False)
    tally.exchange(stray("undeclared: typo"), attributed=False)
    assert tally.why_not_whole() == ["2 exchanges unattributed"]
    assert tally.document()["unattributed_reasons"] == {"no carrier": 1, "undeclared": 1}
    text = shown(tally)
    assert 'UNATTRIBUTED 1 exchange (no carrier), first GET /deals/42 from "node"' in text
    assert "--url-style port" in text
    assert "--undeclared accept" in text


def test_where_rules_are_in_use_they_are_looked_at_first() -> None:
    tally = whole()
    tally.exchange(stray(), attributed=False)
    assert "-> --rules" in shown(tally)
    tally.rules = {"session": 1}
    text = shown(tally)
    assert text.index("no rule found an id") < text.index("--url-style port")
    assert "-> --rules" not in text


def test_without_any_episode_the_advice_is_to_name_one() -> None:
    tally = Tally(run="r")
    tally.exchange(stray(), attributed=False)
    assert "--episode NAME" in shown(tally)
    assert "--url-style port" not in shown(tally)


def test_traffic_that_no_episode_can_claim_was_recorded_and_the_doctor_would_not_help() -> None:
    tally = Tally(run="r")
    tally.exchange(stray(), attributed=False)
    assert "nothing was recorded" not in shown(tally)
    assert "no episode was recorded" in shown(tally)
    assert "next: replayproxy record --episode NAME .." in shown(tally)


def test_an_episode_that_stayed_empty_is_not_denied_beside_its_number() -> None:
    tally = Tally(run="r", sealed=1)
    tally.exchange(stray(), attributed=False)
    assert "1 episode sealed" in shown(tally)
    assert "no episode holds an exchange: what no episode can claim is kept" in shown(tally)
    assert "no episode was recorded" not in shown(tally)


def test_what_no_request_says_is_put_as_a_guess() -> None:
    tally = whole()
    tally.exchange(stray(), attributed=False)
    assert "perhaps its URLs drop the base path" in shown(tally)


def test_probes_and_resets_are_counted_apart_and_do_no_harm() -> None:
    tally = whole()
    tally.exchange(exchange(env="crm", is_probe=True), attributed=False)
    tally.exchange(exchange("POST", "/reset", env="crm", is_reset=True), attributed=False)
    assert tally.why_not_whole() == []
    document = tally.document()
    assert (document["probes"], document["resets"], document["unattributed"], document["exchanges"]) == (1, 1, 0, 1)


def test_a_missing_snapshot_is_not_whole_but_an_undeclared_start_is_no_fault() -> None:
    tally = whole()
    tally.snapshot(snapshot(SnapshotStatus.MISSING, reason="undeclared", when="start"))
    assert tally.why_not_whole() == []
    tally.snapshot(snapshot(SnapshotStatus.MISSING, reason="statement timeout"))
    assert tally.why_not_whole() == ["1 snapshot missing"]
    assert "missing 1 (statement timeout)" in shown(tally)


def test_late_and_torn_snapshots_are_taken_and_counted() -> None:
    tally = whole()
    tally.snapshot(snapshot(late=True))
    tally.snapshot(snapshot(SnapshotStatus.TORN))
    assert tally.document()["snapshots"] == {"taken": 2, "missing": 0, "late": 1, "torn": 1}


def test_a_fault_of_the_recorder_is_not_whole() -> None:
    tally = whole()
    tally.faults.append("finished: ValueError")
    assert tally.why_not_whole() == ["the recorder failed: finished: ValueError"]


def test_server_errors_and_failures_to_answer_are_counted_by_environment() -> None:
    tally = whole()
    tally.exchange(exchange(env="crm", status=503), attributed=True)
    tally.exchange(exchange(env="crm", status=None, outcome=Outcome.CUT), attributed=True)
    tally.exchange(exchange(env="crm", status=None, outcome=Outcome.CLIENT_GONE), attributed=True)
    env = tally.envs["crm"]
    assert (env.exchanges, env.errors, env.failed.total()) == (4, 1, 1)
    assert "5xx 1   failed 1 (cut 1)" in shown(tally)


def test_a_recording_without_any_answer_of_an_environment_is_not_whole() -> None:
    tally = Tally(run="r", sealed=1)
    for outcome in (Outcome.REFUSED, Outcome.REFUSED, Outcome.LOCAL, Outcome.CUT):
        tally.exchange(exchange(env="crm", status=None, outcome=outcome), attributed=True)
    why = "no exchange was answered by an environment: 2 refused, 1 answered by the proxy itself, 1 cut"
    assert tally.why_not_whole() == [why]
    assert "recorded r: NOT WHOLE" in shown(tally)
    assert f"NOT ANSWERED  {why}" in shown(tally)
    assert "failed 3 (refused 2, cut 1)" in shown(tally)
    tally.exchange(exchange(env="crm", outcome=Outcome.CUT), attributed=True)
    assert tally.why_not_whole() == []


def test_what_the_proxy_added_leaves_the_hold_out() -> None:
    times = Times(head=0, wall=0, c_in=1 * MS, fwd=2 * MS, first=5 * MS, up_end=6 * MS, c_out=90 * MS)
    assert added_ns(replace(exchange(), times=times, held_ns=80 * MS)) == 5 * MS
    assert added_ns(replace(exchange(), times=Times(head=0, wall=0))) is None


def test_a_request_that_was_passed_on_while_it_came_hides_nothing_of_its_answers_way() -> None:
    times = Times(head=0, wall=0, c_in=90 * MS, fwd=2 * MS, first=95 * MS, up_end=100 * MS, c_out=103 * MS)
    assert added_ns(replace(exchange(), times=times)) == 3 * MS


def test_quantiles_are_right_within_a_tenth() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) is None
    for ms in range(1, 101):
        histogram.add(ms * MS)
    assert histogram.quantile(0.5) == pytest.approx(50, rel=0.1)
    assert histogram.quantile(0.99) == pytest.approx(99, rel=0.1)


def test_sizes_and_times_read_well() -> None:
    assert [size_text(n) for n in (5, 2048, 3 << 20, 5 << 30)] == ["5 B", "2.0 KiB", "3.0 MiB", "5.0 GiB"]
    assert [took(s) for s in (2.14, 61, 3600 * 3 + 125)] == ["2.1 s", "1 m 01 s", "3 h 02 m"]


def test_what_was_lost_with_a_worker_is_told_and_makes_it_not_whole() -> None:
    tally = whole()
    tally.exchange(replace(exchange(status=None), outcome=Outcome.LOST), attributed=True)
    assert "NOT WHOLE" in shown(tally)
    assert "LOST 1 exchange with a worker process that ended" in shown(tally)
    assert "LOST" not in shown(whole())


def test_a_rule_of_chaos_that_hit_nothing_is_named() -> None:
    tally = whole()
    tally.chaos = ("reset 5%", "status 503 POST /deals/*")
    assert "NO FAULT INJECTED" in shown(tally)
    hit = Fault("status", 503, "status 503 POST /deals/*")
    tally.exchange(replace(exchange(status=503), notes=(hit.note,)), attributed=True)
    assert "NO FAULT" not in shown(tally)
    assert "hit nothing by 'reset 5%' -> look at its path (`*` is anything) or its share; " in shown(tally)
    assert tally.document()["chaos_unused"] == ["reset 5%"]
    tally.chaos = ("reset /nowhere",)
    assert "hit nothing by 'reset /nowhere' -> look at its path (`*` is anything); " in shown(tally)


def test_what_passed_is_told_with_its_number_and_hosts() -> None:
    tally = Tally(run="r")
    tally.passed.update({"h:443": 7, "g:80": 1})
    told = lines(tally, seconds=1, upstreams={}, instances={}, store="s", size=1)
    assert "passed      8 unrecorded (requests and tunnels), by --pass: h:443 7, g:80 1" in told
