"""What one episode left to another: rows that survived a reset, values that flowed, and what is no evidence."""

from __future__ import annotations

from typing import Any

from replayproxy.core.values import UNATTRIBUTED
from replayproxy.detect.finding import Blame, Grade
from replayproxy.detect.verdicts import Word
from replayproxy.testing import exchange, shifted, trace
from tests.detect.hand import Hand

UUID = "6f1c2a52-8a0f-4d0f-9a55-1d4d5cf0a1b2"
SEED = {"id": "D-1", "stage": "lead", "name": "Umbrella"}
LEFT = {"id": "D-9f41", "stage": "lead", "name": "Acme renewal"}


def state(*deals: dict[str, Any], **tables: Any) -> dict[str, Any]:
    users = {"1": {"name": "ada"}, "2": {"name": "joan"}}
    return {"deals": {deal["id"]: deal for deal in deals}, "users": users, **tables}


CLEAN, DIRTY = state(SEED), state(SEED, LEFT)


def listed(*deals: dict[str, Any], at: float = 10) -> Any:
    return exchange("GET", "/deals", body={"items": list(deals)}, at_ms=at)


MAKE = exchange("POST", "/deals", sent={"name": "Acme renewal"}, status=201, body=LEFT, at_ms=20)


class Story(Hand):
    """Episodes follow each other, a second apart; `look` is of task t, seed 1."""

    def add(self, name: str, exchanges: list[Any], states: list[tuple[float, Any]], **more: Any) -> None:
        offset = 1000.0 * len(self.traces)
        more.setdefault("opened_ms", offset)
        self.episode(name, [shifted(e, offset) for e in exchanges], [(offset + at, s) for at, s in states], **more)

    def look(self, name: str, start: Any, *exchanges: Any, **more: Any) -> None:
        self.add(name, list(exchanges) or [listed(SEED)], [(1, start)], task="t", seed=1, **more)


def story(last: list[Any], *, dirty: Any = DIRTY, end: Any = DIRTY, make: Any = MAKE) -> Story:
    made = Story()
    for name in ("v1", "v2", "v3"):
        made.look(name, CLEAN)
    made.add("p", [listed(SEED), make], [(1, CLEAN), (30, end)], task="other", seed=1)
    made.look("v4", dirty, *last)
    return made


def test_the_row_that_survived_is_told_with_its_writer_and_its_reader() -> None:
    judgement = story([exchange("GET", "/health", body={"ok": True}, at_ms=5), listed(SEED, LEFT)]).judge()
    (found,) = judgement.findings
    assert (found.kind, found.sub, found.grade, found.episode) == ("state-bleed", "residue", Grade.PROVEN, "v4")
    assert [(w.role, w.address) for w in found.exchanges] == [("write", "r/p#2"), ("read", "r/v4#2")]
    assert (found.pointer, found.values) == ("/items/1/id", (None, "D-9f41"))
    assert found.snapshots == ("r/v4/s0",)
    assert found.blame is Blame.ENVIRONMENT
    assert judgement.words["v4"] is Word.POISONED
    assert judgement.words["p"] is Word.CLEAN


def test_who_did_not_look_had_a_dirty_reset() -> None:
    (found,) = story([exchange("GET", "/health", body={"ok": True}, at_ms=5)]).findings()
    assert (found.kind, found.sub, found.grade, found.episode) == ("dirty-reset", "no-op", Grade.PROVEN, "v4")
    assert (found.pointer, found.values[0]) == ("/deals/D-9f41", None)
    assert found.exchanges[0].address == "r/p#2"


def test_who_had_written_the_row_itself_before_reading_it_is_not_bled_into() -> None:
    own = exchange("POST", "/deals", sent={"name": "x"}, status=201, body=LEFT, at_ms=5)
    (found,) = story([own, listed(SEED, LEFT)]).findings()
    assert found.kind == "dirty-reset"


def test_a_key_of_its_own_is_recognised_in_answers_of_any_shape() -> None:
    search = exchange("GET", "/search?q=acme", body={"hits": [{"ref": "deal D-9f41, open"}]}, at_ms=10)
    (found,) = story([search]).findings()
    assert (found.kind, found.pointer) == ("state-bleed", "/hits/0/ref")


def test_a_row_that_a_reset_did_not_bring_back_is_told() -> None:
    delete = exchange("DELETE", "/deals/D-1", status=204, at_ms=20)
    look = exchange("GET", "/deals/D-1", status=404, body={"error": "gone"}, at_ms=10)
    (found,) = story([look], dirty=state(), end=state(), make=delete).findings()
    assert (found.kind, found.grade) == ("state-bleed", Grade.PROVEN)
    assert [w.address for w in found.exchanges] == ["r/p#2", "r/v4#1"]


def test_a_start_that_no_recorded_write_explains_is_a_dirty_reset_without_a_writer() -> None:
    odd = state(SEED, {"id": "D-77aa", "stage": "lead", "name": "From nowhere"})
    (found,) = story([listed(SEED)], dirty=odd).findings()
    assert (found.kind, found.sub, found.grade, found.exchanges) == ("dirty-reset", "content", Grade.PROVEN, ())


def test_what_was_drawn_anew_is_told_beside_what_was_left() -> None:
    """Two faults of one start: the bleed was told, and the generator without a seed was not."""
    drawn = state(SEED, LEFT, {"id": "D-77aa", "stage": "lead", "name": "From nowhere"})
    reset, bleed = sorted(story([listed(SEED, LEFT)], dirty=drawn).findings(), key=lambda f: f.kind)
    assert (bleed.kind, bleed.sub, bleed.grade) == ("state-bleed", "residue", Grade.PROVEN)
    assert (reset.kind, reset.sub, reset.grade, reset.exchanges) == ("dirty-reset", "content", Grade.PROVEN, ())


def with_sum(total: int, *rows: Any, name: str = "count") -> Any:
    return {**state(*rows), "totals": {"deals": {"id": "deals", name: total}}}


def left_with_a_sum(ended: int, total: int, name: str = "count") -> list[str]:
    """The kinds of findings where an episode left a row, ended with one sum, and the next began with another."""
    made = Story()
    for episode in ("v1", "v2", "v3"):
        made.look(episode, with_sum(1, SEED, name=name))
    states = [(1, with_sum(1, SEED, name=name)), (30, with_sum(ended, SEED, LEFT, name=name))]
    made.add("p", [listed(SEED), MAKE], states, task="other", seed=1)
    made.look("v4", with_sum(total, SEED, LEFT, name=name), listed(SEED, LEFT))
    return sorted(f.kind for f in made.findings())


def test_a_sum_that_grew_with_what_was_left_is_no_fault_of_its_own() -> None:
    assert left_with_a_sum(2, 2) == ["state-bleed"]


def test_a_number_that_only_happens_to_be_higher_was_drawn_anew() -> None:
    """Half of the draws are above the reference: they were taken for a sum that had gone on."""
    assert left_with_a_sum(2, 700) == left_with_a_sum(1, 700) == ["dirty-reset", "state-bleed"]


def test_a_counter_of_ids_may_go_on_while_the_reset_puts_rows_in() -> None:
    assert left_with_a_sum(2, 6, name="last_value") == ["state-bleed"]


def test_a_single_small_value_that_a_partial_reset_left_is_only_suspected_of_its_writer() -> None:
    patch = exchange("PATCH", "/deals/D-1", sent={"stage": "won"}, body={**SEED, "stage": "won"}, at_ms=20)
    won = {**SEED, "stage": "won"}
    end = state(won, notes={"1": {"text": "a note"}})
    made = story([listed(won)], dirty=state(won), end=end, make=patch)
    found = {f.kind.value: f for f in made.findings()}
    assert found["dirty-reset"].grade is Grade.PROVEN
    assert found["state-bleed"].grade is Grade.SUSPECTED
    assert found["state-bleed"].values == ("lead", "won")


def test_two_starts_are_no_reference() -> None:
    made = Story()
    made.look("v1", CLEAN)
    made.look("v2", DIRTY, listed(SEED, LEFT))
    judgement = made.judge()
    assert judgement.findings == ()
    assert judgement.coverage["v1"].not_checked["dirty-reset"] == "no reference"


def test_no_majority_is_no_reference() -> None:
    made = Story()
    for number in range(4):
        made.look(f"v{number}", CLEAN if number % 2 else DIRTY)
    assert made.judge().coverage["v1"].not_checked["dirty-reset"] == "no reference"


def test_another_task_or_seed_has_a_start_of_its_own() -> None:
    made = story([listed(SEED)], dirty=CLEAN)
    made.add("other", [listed(SEED, LEFT)], [(1, state(SEED, {**LEFT, "id": "D-5c5c"}))], task="t", seed=2)
    assert made.findings() == ()


def test_other_instances_do_not_explain_a_dirty_start() -> None:
    made = Story()
    for name in ("v1", "v2", "v3"):
        made.look(name, CLEAN, instance={"app": "a"})
    made.add("p", [MAKE], [(1, CLEAN), (30, DIRTY)], task="other", seed=1, instance={"app": "b"})
    made.look("v4", DIRTY, listed(SEED, LEFT), instance={"app": "a"})
    (found,) = made.findings()
    assert (found.kind, found.sub) == ("dirty-reset", "content")


def test_a_start_read_while_another_was_at_work_is_not_judged() -> None:
    made = story([listed(SEED, LEFT)])
    p = made.traces.pop("p")
    made.episode("p", p.exchanges, [(3001, CLEAN), (3030, DIRTY)], opened_ms=3000, ended_ms=9000, task="other", seed=1)
    judgement = made.judge()
    assert [f.grade for f in judgement.findings if f.kind == "dirty-reset"] == []
    assert judgement.coverage["v4"].not_checked["dirty-reset"] == "other episodes were at work on the instance"


# Classes of resets


def test_a_dirty_reset_shows_the_start_states_and_what_was_equal() -> None:
    (found,) = story([exchange("GET", "/health", body={"ok": True}, at_ms=5)]).findings()
    assert found.effect["inputs"] == {"task": "t", "seed": 1}
    roots = found.effect["roots"]
    assert [(one["count"], one["class"], one["after"]) for one in roots] == [
        (3, "reference", [None, "v1", "v2"]), (1, "content", ["p"]),
    ]  # fmt: skip
    assert found.effect["start_root"] == roots[1]["root"]
    assert (found.effect["episodes"], found.effect["writes"]) == (["p"], ["r/p#2"])
    assert "both were task t, seed 1" in found.assumptions[1]


def test_a_part_of_what_was_there_that_stayed_is_residue() -> None:
    other = {"id": "D-77aa", "stage": "lead", "name": "Removed by the reset"}
    made = story([exchange("GET", "/health", at_ms=5)], end=state(SEED, LEFT, other))
    (found,) = made.findings()
    assert (found.sub, found.grade) == ("residue", Grade.PROVEN)


def test_a_reset_that_had_not_ended_when_it_answered_is_unsettled() -> None:
    made = Story()
    for name in ("v1", "v2", "v3"):
        made.look(name, CLEAN)
    made.add("v4", [listed(SEED)], [(1, state()), (900, CLEAN)], task="t", seed=1)
    (found,) = made.findings()
    assert (found.kind, found.sub, found.grade, found.episode) == ("dirty-reset", "unsettled", Grade.PROVEN, "v4")
    assert found.snapshots == ("r/v4/s0", "r/v4/s1")
    assert found.times["settled_s"][0] > found.times["start_s"][1]


def test_a_start_that_a_single_own_write_mended_was_not_unsettled() -> None:
    patch = exchange("PUT", "/deals/D-1", sent=SEED, body=SEED, at_ms=20)
    made = Story()
    for name in ("v1", "v2", "v3"):
        made.look(name, CLEAN)
    made.add("v4", [patch], [(1, state()), (30, CLEAN)], task="t", seed=1)
    (found,) = made.findings()
    assert found.sub == "content"


def seeded(*values: int, reset: bool = False, seed: int | None = 1) -> Story:
    made = Story()
    for number, value in enumerate(values):
        start = state({**SEED, "amount": value})
        made.add(f"v{number}", [listed(SEED)], [(1, start)], task="t", seed=seed)
    return made


def test_a_generator_without_a_seed_contradicts_itself_where_no_start_is_common() -> None:
    judgement = seeded(4711, 4712, 4713, 4714).judge()
    found = judgement.findings
    assert [(f.kind, f.sub, f.grade, f.episode) for f in found] == [
        ("dirty-reset", "content", Grade.PROVEN, name) for name in ("v1", "v2", "v3")
    ]  # fmt: skip
    assert found[0].values == (4711, 4712)
    assert [one["class"] for one in found[0].effect["roots"]] == ["most frequent", "content", "content", "content"]
    assert judgement.coverage["v1"].not_checked["dirty-reset"] == "no reference"


def test_without_a_seed_starts_may_differ() -> None:
    assert seeded(4711, 4712, 4713, 4714, seed=None).findings() == ()


def growing(*, reset: bool) -> Story:
    """Each episode begins where the one before ended."""
    made = Story()
    deals = [SEED]
    for number in range(4):
        new = {"id": f"D-{number}f4{number}", "stage": "lead", "name": f"New deal number {number}"}
        make = exchange("POST", "/deals", sent={"name": new["name"]}, status=201, body=new, at_ms=20)
        made.add(f"v{number}", [make], [(5, state(*deals)), (30, state(*deals, new))], task="t", seed=1)
        deals.append(new)
    if reset:
        calls = [exchange("POST", "/reset", at_ms=1000.0 * n + 2, is_reset=True) for n in range(4)]
        made.traces[UNATTRIBUTED] = trace(calls, run=made.run, episode=UNATTRIBUTED)
    return made


def test_where_nobody_resets_every_start_is_another_and_none_is_wrong() -> None:
    judgement = growing(reset=False).judge()
    assert judgement.findings == ()
    assert judgement.coverage["v3"].not_checked["dirty-reset"] == "no reference"


def test_a_recorded_reset_that_does_nothing_is_told_without_a_reference() -> None:
    found = growing(reset=True).findings()
    assert [(f.kind, f.sub, f.grade, f.episode) for f in found] == [
        ("dirty-reset", "no-op", Grade.PROVEN, name) for name in ("v1", "v2", "v3")
    ]  # fmt: skip
    assert [(w.role, w.address) for w in found[0].exchanges] == [("write", "r/v0#1"), ("reset", "r/unattributed#2")]


def test_clocks_fresh_ids_and_the_order_of_lists_are_no_dirty_start() -> None:
    made = Story()
    ids = [f"{n:08x}-8a0f-4d0f-9a55-1d4d5cf0a1b2" for n in (0x6F1C2A52, 0x0B7CFA7E, 0xC9A0F3DE, 0xE3B6D9C4)]
    for number, (key, tags) in enumerate(zip(ids, ("abc", "abc", "bca", "cab"), strict=True)):
        made.look(f"v{number}", state({"id": key, "tags": list(tags), "at": f"2023-11-14T22:13:2{number}Z"}))
    assert made.findings() == ()


# Values


def post(value: str, at: float = 20) -> Any:
    return exchange("POST", "/notes", sent={"text": "hi"}, status=201, body={"id": value}, at_ms=at)


def read(value: str, at: float = 10) -> Any:
    return exchange("GET", "/feed", body=[{"note": value}], at_ms=at)


def notes(*ids: str) -> dict[str, Any]:
    return {"notes": {key: {"id": key, "text": "hi"} for key in ids}, "users": {"1": {"n": 1}, "2": {"n": 2}}}


def test_a_value_that_came_from_another_episode_is_proven_by_the_states() -> None:
    made = Story()
    made.add("p", [post(UUID)], [(1, notes()), (30, notes(UUID))])
    made.add("v", [read(UUID)], [(1, notes(UUID))])
    (found,) = made.findings()
    assert (found.kind, found.sub, found.grade, found.episode) == ("state-bleed", "flow", Grade.PROVEN, "v")
    assert [(w.role, w.address) for w in found.exchanges] == [("write", "r/p#1"), ("read", "r/v#1")]
    assert found.values == (None, UUID)


def test_a_value_that_a_start_held_before_it_was_made_is_a_constant() -> None:
    made = Story()
    made.add("p", [post(UUID)], [(1, notes(UUID)), (30, notes(UUID))])
    made.add("v", [read(UUID)], [(1, notes(UUID))])
    assert made.findings() == ()


def test_a_value_that_no_state_holds_is_only_suspected() -> None:
    made = Story()
    made.add("p", [post(UUID)], [(1, notes()), (30, notes())])
    made.add("v", [read(UUID)], [(1, notes())])
    assert [f.grade for f in made.findings()] == [Grade.SUSPECTED]


def test_without_snapshots_only_the_id_of_what_was_made_is_suspected() -> None:
    made = Story()
    made.add("p", [post(UUID)], [])
    made.add("v", [read(UUID)], [])
    (found,) = made.findings()
    assert (found.grade, found.kind) == (Grade.SUSPECTED, "state-bleed")
    nested = exchange("POST", "/notes", sent={}, status=201, body={"id": 1, "account": {"id": UUID}}, at_ms=20)
    quiet = Story()
    quiet.add("p", [nested], [])
    quiet.add("v", [read(UUID)], [])
    assert quiet.findings() == ()


def test_several_episodes_at_once_that_show_in_another_are_one_suspicion() -> None:
    made = Hand()
    others = ["0b7cfa7e-9d55-4c54-b1c5-57b1f7a1c9d3", "c9a0f3de-17b2-4e4b-8a63-0f1e2d3c4b5a"]
    for number, value in enumerate(others):
        made.episode(f"p{number}", [post(value, 20 + number)], [(1, notes())], ended_ms=500)
    made.episode("v", [exchange("GET", "/feed", body=others, at_ms=100)], [(1.5, notes())], ended_ms=500)
    (found,) = made.findings()
    assert (found.sub, found.grade, found.blame) == ("isolation", Grade.SUSPECTED, Blame.UNDECIDED)
    assert found.effect["from"] == ["p0", "p1"]


# Episodes at once


def parallel(read_it: Any, *, p: str = "a", v: str = "b", scope: str = "instance") -> Hand:
    made = Hand()
    one, two = ({"app": name} for name in (p, v))
    more = {"scope": scope}
    made.episode("p", [post(UUID, 20)], [(1, notes()), (30, notes(UUID))], ended_ms=500, instance=one, more=more)
    made.episode("v", [read_it], [(1.5, notes())], ended_ms=500, instance=two, more=more)
    return made


def test_a_value_that_crosses_between_instances_is_proven_whoever_was_opened_first() -> None:
    for made in (parallel(read(UUID, 100)), parallel(read(UUID, 100), p="a", v="a", scope="episode")):
        (found,) = made.findings()
        assert (found.sub, found.grade, found.blame) == ("isolation", Grade.PROVEN, Blame.ENVIRONMENT)
        assert [(w.role, w.address) for w in found.exchanges] == [("write", "r/p#1"), ("read", "r/v#1")]
        assert found.effect["writes"] == ["r/p#1"]
    backwards = Hand()
    backwards.episode("v", [read(UUID, 100)], [(1, notes())], ended_ms=500, instance={"app": "b"})
    backwards.episode(
        "p", [post(UUID, 20)], [(1.5, notes()), (30, notes(UUID))], opened_ms=1, ended_ms=500, instance={"app": "a"}
    )
    (found,) = backwards.findings()
    assert (found.grade, found.episode, found.pointer) == (Grade.PROVEN, "v", "/0/note")


def test_on_a_shared_instance_it_is_only_suspected() -> None:
    (found,) = parallel(read(UUID, 100), p="a", v="a").findings()
    assert (found.sub, found.grade, found.blame) == ("isolation", Grade.SUSPECTED, Blame.UNDECIDED)


# Canaries

CANARY = "rpc-00c0ffee12ab34cd"
WORDS = exchange("POST", "/notes", sent={"text": f"ring Ada {CANARY}"}, status=201, body={"id": 7}, at_ms=20)
SHOWN = exchange("GET", "/feed", body=[{"text": f"ring Ada {CANARY}"}], at_ms=40)


def test_a_canary_is_proof_without_states() -> None:
    made = Story()
    made.add("p", [WORDS], [], canaries=[CANARY])
    made.add("v", [SHOWN], [])
    (found,) = made.findings()
    assert (found.kind, found.sub, found.grade, found.blame) == (
        "state-bleed", "flow", Grade.PROVEN, Blame.ENVIRONMENT,
    )  # fmt: skip
    assert [(w.role, w.address) for w in found.exchanges] == [("write", "r/p#1"), ("read", "r/v#1")]
    assert (found.pointer, found.values) == ("/0/text", (None, CANARY))
    assert (found.effect["from"], found.effect["canaries"]) == ("p", 1)
    assert made.judge().words == {"p": Word.UNKNOWN, "v": Word.POISONED}


def test_a_canary_between_episodes_that_share_an_instance_is_a_proven_flow_of_nobody_s_fault() -> None:
    made = Hand()
    made.episode("p", [WORDS], ended_ms=500, canaries=[CANARY])
    made.episode("v", [SHOWN], ended_ms=500)
    (found,) = made.findings()
    assert (found.sub, found.grade, found.blame) == ("isolation", Grade.PROVEN, Blame.UNDECIDED)
    assert made.judge().words["v"] is Word.SUSPECT


def test_a_canary_that_no_recorded_exchange_wrote_is_only_suspected() -> None:
    made = Story()
    made.add("p", [listed(SEED)], [], canaries=[CANARY])
    made.add("v", [SHOWN], [])
    (found,) = made.findings()
    assert (found.grade, [w.role for w in found.exchanges]) == (Grade.SUSPECTED, ["read"])


def test_a_canary_proves_what_a_single_small_value_only_made_likely() -> None:
    text = {**SEED, "name": f"Umbrella {CANARY}"}
    patch = exchange("PATCH", "/deals/D-1", sent={"stage": "won"}, body={**SEED, "stage": "won"}, at_ms=20)
    left = {**text, "stage": "won"}
    made = story([listed(left)], dirty=state(left), end=state(left, notes={"1": {"t": "x"}}), make=patch)
    del made.traces["p"]
    said = exchange("PATCH", "/deals/D-1", sent={"name": text["name"]}, body=left, at_ms=22)
    made.episode(
        "p", [shifted(patch, 3000), shifted(said, 3000)], [(3001, CLEAN), (3030, state(left))], opened_ms=3000,
        task="other", seed=1, canaries=[CANARY],
    )  # fmt: skip
    bleeds = [f for f in made.findings() if f.kind == "state-bleed"]
    assert [(f.grade, f.exchanges[0].address) for f in bleeds] == [(Grade.PROVEN, "r/p#2")]


def test_a_token_that_is_shared_or_was_drawn_by_both_is_no_bleed() -> None:
    made = Story()
    login = exchange("POST", "/login", sent={"user": "ada"}, body={"token": UUID}, at_ms=5)
    whoami = exchange("GET", "/me", body={"token": UUID}, request_headers={"Authorization": f"Bearer {UUID}"}, at_ms=9)
    for name in ("a", "b", "c"):
        made.add(name, [login, whoami], [(1, notes())])
    made.add("d", [whoami], [(1, notes())])
    made.add("e", [read("00000000-0000-0000-0000-000000000000"), post("00000000-0000-0000-0000-000000000000")], [])
    made.add("f", [read("00000000-0000-0000-0000-000000000000")], [])
    assert made.findings() == ()
