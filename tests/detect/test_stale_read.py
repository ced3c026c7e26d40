"""Stale reads in small recordings: what is one, what only looks like one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replayproxy.core.values import UNATTRIBUTED, EnvWiring, EpisodeState, Outcome, Run
from replayproxy.detect.finding import Grade
from replayproxy.testing import exchange, run
from tests.detect.hand import Hand, with_interval


def deals(**stages: str) -> dict[str, Any]:
    return {"deals": {key.replace("_", "-"): {"id": key.replace("_", "-"), "stage": v} for key, v in stages.items()},
            "tickets": {"1": {"id": 1}, "2": {"id": 2}}}  # fmt: skip


OLD, NEW = deals(D_1="lead", D_2="lead"), deals(D_1="won", D_2="lead")


def get(at: float, stage: str = "lead", **more: Any):
    more.setdefault("body", {"id": "D-1", "stage": stage})
    return exchange("GET", more.pop("target", "/deals/D-1"), at_ms=at, **more)


def patch(at: float = 20, stage: str = "won", **more: Any):
    more.setdefault("body", {"id": "D-1", "stage": stage})
    return exchange("PATCH", more.pop("target", "/deals/D-1"), sent={"stage": stage}, at_ms=at, **more)


def told(exchanges: list[Any], states: list[Any] | None = None, **more: Any) -> list[tuple[str, str, str]]:
    hand = Hand()
    hand.episode("e", exchanges, [(0, OLD), (22, NEW)] if states is None else states, **more)
    return [(f.kind.value, f.sub, f.grade.value) for f in hand.findings()]


STALE = [("stale-read", "RYW", "proven")]


def test_a_read_after_the_write_that_shows_the_old_value_is_stale() -> None:
    assert told([get(10), patch(), get(30)]) == STALE


def test_the_new_value_is_not() -> None:
    assert told([get(10), patch(), get(30, "won")]) == []


def test_a_read_that_was_sent_before_the_write_ended_is_not() -> None:
    assert told([get(10), patch(), with_interval(get(20.5), 20.6, 40)]) == []


def test_a_value_that_nobody_wrote_is_not() -> None:
    assert told([get(10), patch(), get(30, "lost")]) == []


def test_a_member_that_never_agreed_with_the_column_proves_nothing() -> None:
    assert told([patch(), get(30)]) == []


def test_a_read_of_another_row_says_nothing_about_this_one() -> None:
    other = get(30, target="/deals/D-2", body={"id": "D-2", "stage": "lead"})
    assert told([get(10), patch(), other]) == []


@pytest.mark.parametrize(
    "write",
    [
        patch(20, "won", status=500),
        patch(20, "won", status=202),
        patch(20, "won", status=None, outcome=Outcome.TIMED_OUT),
        patch(20, "won", outcome=Outcome.CLIENT_GONE),
    ],
)
def test_a_write_that_may_still_act_after_its_answer_is_not_missed(write: Any) -> None:
    # It asks for the old value again, and may act at any time after the write that set the new one.
    back = exchange("PATCH", "/deals/D-1", sent={"stage": "lead"}, at_ms=15, status=write.response and 500,
                    outcome=write.outcome)  # fmt: skip
    assert told([get(10), back, patch(), get(30)]) == []


def declared(seconds: float) -> Run:
    wired = EnvWiring(name="app", upstream="http://app.test", eventual={"PATCH /deals/*": seconds})
    return replace(run(), envs={"app": wired})


def test_a_write_that_is_declared_to_act_later_is_missed_only_after_its_time() -> None:
    def found(read_at: float, status: int = 202) -> list[Any]:
        hand = Hand(declared(0.5))
        accepted = patch(20, "won", status=status)
        hand.episode("e", [get(10), accepted, get(read_at)], [(0, OLD), (600, NEW), (read_at + 50, NEW)])
        return [(f.sub, f.grade.value, [w.address for w in f.exchanges]) for f in hand.findings()]

    for status in (200, 202):
        assert found(30, status) == []
        assert found(519, status) == []
        assert found(700, status) == [("RYW", "proven", ["r/e#2", "r/e#3"])]


def test_an_accepted_write_without_a_declared_time_is_never_missed_by_its_time_alone() -> None:
    accepted = patch(20, "won", status=202, body={})
    assert told([get(10), accepted, get(700)], [(0, OLD)]) == []


def test_an_open_write_to_another_row_does_not_hide_a_stale_read() -> None:
    lost = exchange("PATCH", "/deals/D-2", sent={"stage": "won"}, status=500, at_ms=15)
    assert told([get(10), lost, patch(), get(30)]) == STALE


def test_a_write_beside_the_read_whose_effect_nobody_knows_hides_it() -> None:
    unknown = with_interval(exchange("POST", "/jobs", status=201, at_ms=25, body={"ok": True}), 25, 45)
    assert told([get(10), patch(), unknown, get(30)]) == []


def test_a_stray_write_without_an_episode_counts_as_a_writer() -> None:
    hand = Hand()
    hand.episode("e", [get(10), patch(), get(30)], [(0, OLD), (22, NEW)])
    hand.episode(UNATTRIBUTED, [with_interval(exchange("POST", "/sync", at_ms=25), 25, 45)])
    assert hand.findings() == ()


def test_a_cache_that_declares_itself_is_lawful_for_others_but_not_for_its_own_client() -> None:
    def read(at: float, lane: str = "b", **headers: str):
        given = {"Content-Type": "application/json", **headers}
        return get(at, lane=lane, headers=given)

    for header in ({"Age": "3"}, {"Cache-Status": "edge; hit"}, {"Cache-Control": "max-age=60"}, {"X-Cache": "HIT"}):
        write = patch(lane="a")
        assert told([read(10), write, read(30, "b", **header)]) == [], header
        assert told([read(10), write, read(30, "a", **header)]) == STALE, header
    assert told([read(10), patch(lane="a"), read(30, "b", **{"Cache-Control": "no-cache, max-age=60"})]) == [
        ("stale-read", "RT", "proven")
    ]


def test_an_answer_304_shows_nothing() -> None:
    unchanged = exchange("GET", "/deals/D-1", status=304, at_ms=30, request_headers={"If-None-Match": '"1"'})
    assert told([get(10), patch(), unchanged]) == []


def test_older_than_it_declares_is_stale_all_the_same() -> None:
    late = get(9000, lane="b", headers={"Content-Type": "application/json", "Cache-Control": "max-age=5"})
    other = get(12, target="/deals/D-2", body={"id": "D-2", "stage": "won"})
    states = [(0, deals(D_1="lead", D_2="won")), (22, deals(D_1="won", D_2="won"))]
    assert told([get(10), other, patch(lane="a"), late], states) == [("stale-read", "RT", "proven")]


def test_a_member_that_stays_what_the_column_once_was_is_doubted_after_a_while() -> None:
    # Nothing but one common value says that it is the column: it may be a member that merely began alike.
    assert told([get(10), patch(), get(9000)]) == []


def test_going_back_behind_what_the_lane_had_seen_is_told_as_such() -> None:
    reads = [get(10, lane="b"), patch(lane="a"), get(30, "won", lane="b"), get(40, "lead", lane="b")]
    assert told(reads) == [("stale-read", "MR", "proven")]


def test_a_read_that_asks_for_a_version_may_return_it() -> None:
    old = [get(at, target="/deals/D-1?version=1") for at in (10, 30)]
    assert told([old[0], patch(), old[1]]) == []


def test_reads_that_miss_one_write_are_one_finding_and_another_write_is_another() -> None:
    later = deals(D_1="lost", D_2="lead")
    exchanges = [get(10), patch(), get(30), get(35), patch(40, "lost"), get(50, "won"), get(55, "won")]
    hand = Hand()
    hand.episode("e", exchanges, [(0, OLD), (22, NEW), (42, later)])
    found = hand.findings()
    assert [[w.address for w in f.exchanges] for f in found] == [["r/e#2", "r/e#3"], ["r/e#5", "r/e#6"]]
    assert [f.count for f in found] == [2, 2]


def test_a_value_that_somebody_put_back_past_the_proxy_is_not_stale() -> None:
    # Between the two snapshots runs an unrelated write; the state went back to "lead" before it, and the read saw that.
    for method, path, more in (
        ("DELETE", "/tickets/2", {"status": 204}),
        ("POST", "/deals", {"status": 201, "body": {"id": "D-9", "stage": "x"}, "sent": {"stage": "x"}}),
        ("PATCH", "/deals/D-1", {"body": {"id": "D-1", "owner": "ada"}, "sent": {"owner": "ada"}}),
    ):
        other = exchange(method, path, at_ms=40, **more)
        found = told([get(10), patch(), get(30), other, get(50)], [(0, OLD), (22, NEW), (42, OLD)])
        assert [grade for _, _, grade in found if grade == "proven"] == [], (method, path)
    later = exchange("DELETE", "/tickets/2", status=204, at_ms=40)
    assert told([get(10), patch(), get(30), later], [(0, OLD), (22, NEW), (42, NEW)]) == STALE


def test_a_value_that_came_back_before_any_snapshot_showed_it_gone_is_not_proven_stale() -> None:
    """Snapshots always show "lead"; the last one is taken beside a write of another row, which may have effects."""

    def of_another(stage: str, at: float) -> Any:
        return patch(at, stage, target="/deals/D-2", body={"id": "D-2", "stage": stage})

    def states(last: str) -> list[Any]:
        return [(0, OLD), (14, deals(D_1="lead", D_2="won")), (42, deals(D_1=last, D_2="lead"))]

    history = [get(5), of_another("won", 12), patch(), get(30), with_interval(of_another("lead", 40), 40, 43)]
    assert ("stale-read", "RYW", "suspected") in (came_back := told(history, states("lead")))
    assert "proven" not in {grade for _, _, grade in came_back}
    assert told(history, states("won")) == STALE


def test_changes_that_no_recorded_write_explains_lower_the_grade() -> None:
    hidden = deals(D_1="won", D_2="someone else's")
    assert told([get(10), patch(), get(30)], [(0, OLD), (22, NEW), (40, hidden)]) == [
        ("stale-read", "RYW", "suspected")
    ]


def test_a_deleted_row_that_is_still_shown_is_stale() -> None:
    gone = {"deals": {"D-2": {"id": "D-2", "stage": "lead"}}, "tickets": OLD["tickets"]}
    delete = exchange("DELETE", "/deals/D-1", status=204, at_ms=20)
    hand = Hand()
    hand.episode("e", [get(10), delete, get(30)], [(0, OLD), (22, gone)])
    (found,) = hand.findings()
    assert (found.sub, found.grade) == ("RYW", Grade.PROVEN)
    assert found.exchanges[0].address == "r/e#2"


def listed(at: float, *keys: str):
    return exchange("GET", "/deals", body={"items": [{"id": key, "stage": "lead"} for key in keys]}, at_ms=at)


MADE = deals(D_1="lead", D_2="lead", D_3="lead")
POST = exchange("POST", "/deals", sent={"stage": "lead"}, status=201, body={"id": "D-3", "stage": "lead"}, at_ms=20)


def test_a_created_row_that_a_list_leaves_out_and_shows_later_is_stale() -> None:
    hand = Hand()
    reads = [listed(10, "D-1", "D-2"), POST, listed(30, "D-1", "D-2"), listed(40, "D-1", "D-2", "D-3")]
    hand.episode("e", reads, [(0, OLD), (22, MADE)])
    (found,) = hand.findings()
    assert (found.sub, found.grade, found.values) == ("membership", Grade.PROVEN, ("present", "absent"))
    assert [w.address for w in found.exchanges] == ["r/e#2", "r/e#3"]


def test_a_list_that_never_shows_the_row_may_be_filtered_or_paged() -> None:
    reads = [listed(10, "D-1", "D-2"), POST, listed(30, "D-1", "D-2"), listed(40, "D-1", "D-2")]
    assert told(reads, [(0, OLD), (22, MADE)]) == []
    paged = [listed(10, "D-1", "D-2"), POST, listed(30, "D-1", "D-2"), listed(40, "D-2", "D-3")]
    assert told(paged, [(0, OLD), (22, MADE)]) == []


def test_a_row_that_was_made_and_is_not_found_by_its_own_path_is_stale() -> None:
    gone = exchange("GET", "/deals/D-3", status=404, body={"error": "no such deal"}, at_ms=30)
    assert told([get(10), POST, gone], [(0, OLD), (22, MADE)]) == [("stale-read", "membership", "proven")]
    assert told([POST, gone], []) == [("stale-read", "membership", "suspected")]
    before = exchange("GET", "/deals/D-3", status=404, body={"error": "no such deal"}, at_ms=5)
    assert told([get(10), before, POST], [(0, OLD), (22, MADE)]) == []
    other = exchange(
        "GET", "/deals/D-3", status=404, body={}, at_ms=30, request_headers={"Authorization": "Bearer somebody-else"}
    )
    assert told([get(10), POST, other], [(0, OLD), (22, MADE)]) == [], "another principal may not see it"
    assert told([POST, gone], [(0, OLD), (22, MADE)]) == [], "that this path shows rows of the table is not known"


def test_a_list_that_is_old_in_a_row_and_lacks_one_made_later_is_suspected() -> None:
    changed = deals(D_1="won", D_2="lead")
    both = deals(D_1="won", D_2="lead", D_3="lead")
    post = exchange("POST", "/deals", sent={"stage": "lead"}, status=201, body={"id": "D-3", "stage": "lead"}, at_ms=26)
    states = [(0.0, OLD), (22.0, changed), (28.0, both)]
    found = told([listed(10, "D-1", "D-2"), patch(), post, listed(30, "D-1", "D-2")], states)
    assert found == [("stale-read", "RYW", "proven"), ("stale-read", "membership", "suspected")]
    first = told([listed(10, "D-1", "D-2"), post, patch(27), listed(30, "D-1", "D-2")], [states[0], (29.5, both)])
    assert first == found, "it is the very list that was shown before the row was made"
    between = deals(D_1="open", D_2="lead")
    unseen = exchange("GET", "/deals", body={"items": [{"id": "D-1", "stage": "open"}, OLD["deals"]["D-2"]]}, at_ms=30)
    reads = [listed(10, "D-1", "D-2"), patch(16, "open", body={"id": "D-1", "stage": "open"}), post, patch(27), unseen]
    later = told(reads, [states[0], (22.0, between), (29.5, both)])
    assert [sub for _, sub, _ in later] == ["RYW"], "the old copy may be from after the row was made"


def test_an_empty_list_where_the_same_principal_had_made_a_row_is_suspected() -> None:
    none = {**OLD, "deals": {}}
    one = {**OLD, "deals": {"D-3": {"id": "D-3", "stage": "lead"}}}
    suspected = [("stale-read", "membership", "suspected")]
    assert told([listed(10), POST, listed(30)], [(0, none), (22, one)]) == suspected
    assert told([listed(10), POST, listed(20.5)], [(0, none), (40, one)]) == [], "it may have been on its way"
    assert told([listed(10), POST, listed(30, "D-3")], [(0, none), (22, one)]) == []
    asked = exchange("GET", "/deals?stage=won", body={"items": []}, at_ms=30)
    assert told([POST, asked], [(0, none), (22, one)]) == [], "it was asked for others"
    told_apart = replace(POST, request=replace(POST.request, target=b"/drafts"))
    assert told([told_apart, listed(30)], [(0, none), (22, one)]) == [], "it was made elsewhere"


def test_rows_that_changed_between_the_same_snapshots_are_told_apart() -> None:
    # Neither answer shows what was set, so that snapshots alone tell of the changes.
    writes = [
        exchange("PATCH", f"/deals/{key}", status=204, sent={"stage": "won"}, at_ms=at)
        for key, at in (("D-1", 20), ("D-2", 22))
    ]
    reads = [get(30), get(32, target="/deals/D-2", body={"id": "D-2", "stage": "lead"})]
    hand = Hand()
    hand.episode("e", [get(10), *writes, *reads], [(0, OLD), (25, deals(D_1="won", D_2="won"))])
    assert [[w.address for w in f.exchanges] for f in hand.findings()] == [["r/e#4"], ["r/e#5"]]


def test_the_state_may_be_one_document() -> None:
    def state(stage: str) -> dict[str, Any]:
        return {"document": {"": {"deals": {"D-1": {"id": "D-1", "stage": stage}}, "tick": 1}}}

    assert told([get(10), patch(), get(30)], [(0, state("lead")), (22, state("won"))]) == STALE


def test_an_incomplete_episode_is_not_judged() -> None:
    hand = Hand()
    hand.episode("e", [get(10), patch(), get(30)], [(0, OLD), (22, NEW)], state=EpisodeState.INCOMPLETE)
    judgement = hand.judge()
    assert judgement.findings == ()
    assert judgement.words == {"e": "unknown"}
    assert judgement.coverage["e"].checked == ()


def test_what_could_not_be_looked_at_is_said() -> None:
    def why(exchanges: list[Any], states: list[Any] | None) -> str:
        hand = Hand()
        hand.episode("e", exchanges, [(0, OLD), (22, NEW)] if states is None else states)
        return hand.judge().coverage["e"].not_checked.get("stale-read", "checked")

    assert why([], []) == "no exchanges"
    assert why([get(10)], []).startswith("no snapshots")
    report = exchange("GET", "/report", body={"a": 1}, at_ms=10)
    unlike = "no read shows a row as the snapshots do"
    assert why([report], [(0, OLD)]) == unlike
    assert why([get(10)], [(0, OLD)]) == "checked"
    assert why([get(10, "won")], [(0, OLD)]) == unlike, "a value that no snapshot and no write knows was not judged"
    assert why([get(10, target="/deals/D-7")], [(0, OLD)]) == unlike, "the state has no such row"
    assert why([get(10, target="/deals/D-7", status=404, body={})], [(0, OLD)]) == "checked"
    assert why([patch(), get(30)], None).startswith("no read of the kind agreed"), "looks stale, and is not known to be"
    assert why([patch(), get(30), get(40, "won")], None) == "checked"
