from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from replayproxy.core.values import EpisodeState
from replayproxy.detect.silence import Silence
from replayproxy.session.check_document import DETECTORS
from replayproxy.session.mask_marks import Demands, Marks
from replayproxy.session.mask_reasons import reasons, told
from replayproxy.session.mask_verdicts import Terms, Verdicts, why_again
from replayproxy.session.nearby import reason as reason_online
from replayproxy.testing import episode, run
from tests.detect.bench import Bench, script

SEALED = EpisodeState.SEALED
EPISODES = [episode("a", ended_wall=5, state=SEALED), episode("b", ended_wall=6, state=SEALED)]
CHECKED: dict[str, Any] = {
    "run": "r", "detectors": DETECTORS, "checked_wall": 10, "verdicts": {"a": "clean", "b": "clean"}, "open": [],
    "silenced": [{"silence": {"what": "stale-read GET /x"}}], "silences": {"unused": ["race GET /y"], "expired": []},
}  # fmt: skip
ENTRIES = (Silence(what="stale-read GET /x", reason="r"), Silence(what="race GET /y", reason="r"))
EXPIRED = Silence(what="race GET /y", reason="r", until=date(2020, 1, 1))


@pytest.mark.parametrize(
    ("document", "episodes", "trials", "terms", "expected"),
    [
        (CHECKED, EPISODES, [], Terms(), ""),
        (CHECKED, EPISODES, [{"wall": 10}], Terms(silences=ENTRIES), ""),
        (None, EPISODES, [], Terms(), "it was never checked"),
        ({**CHECKED, "detectors": -1}, EPISODES, [], Terms(), "the last check was made by other detectors"),
        (CHECKED, [*EPISODES, episode("c")], [], Terms(), "1 of its episodes came after the last check"),
        (CHECKED, EPISODES[:1], [], Terms(), "1 episode was removed after the last check"),
        (CHECKED, [EPISODES[0], episode("b", ended_wall=11, state=SEALED)], [], Terms(),
         "1 of its episodes ended after the last check"),
        ({**CHECKED, "open": ["b"]}, EPISODES, [], Terms(), "1 of its episodes ended after the last check"),
        ({**CHECKED, "open": ["b"]}, [EPISODES[0], episode("b", state=EpisodeState.OPEN)], [], Terms(), ""),
        (CHECKED, [EPISODES[0], episode("b", ended_wall=6, annotated={"wall": 11})], [], Terms(),
         "1 of its episodes were annotated after the last check"),
        (CHECKED, EPISODES, [{"wall": 11}], Terms(), "a finding was tried again after the last check"),
        (CHECKED, EPISODES, [], Terms(silences=()), "the config silences other findings than at the last check"),
        (CHECKED, EPISODES, [], Terms(silences=(ENTRIES[0], EXPIRED), today=date(2026, 1, 1)),
         "the config silences other findings than at the last check"),
    ],
)  # fmt: skip
def test_why_a_check_is_made_again(document: Any, episodes: Any, trials: Any, terms: Terms, expected: str) -> None:
    assert why_again(document, episodes, trials, terms) == expected


FOUND = [
    {"id": "state-bleed-1", "kind": "state-bleed", "grade": "proven", "episode": "a"},
    {"id": "stale-read-2", "kind": "stale-read", "grade": "suspected", "episode": "a"},
]


def test_reasons_are_the_findings_that_fall_on_an_episode_and_those_that_spread_to_it() -> None:
    document = {"run": "r", "findings": FOUND, "suspected_from": {"b": "a", "c": "gone"}}
    found = reasons(document)
    assert found == {
        "a": [{"kind": "state-bleed", "grade": "proven", "finding": "state-bleed-1"},
              {"kind": "stale-read", "grade": "suspected", "finding": "stale-read-2"}],
        "b": [{"kind": "state-bleed", "grade": "proven", "finding": "state-bleed-1", "from": "a"}],
    }  # fmt: skip
    assert told(found["b"]) == "proven state-bleed (spread from a)"


def marks(document: Mapping[str, Any], **given: Any) -> dict[str, tuple[bool, list[str]]]:
    episodes = [episode(name) for name in "abc"]
    judged = Verdicts(run=run("r"), episodes=episodes, document={"run": "r", **document}, judged="")
    made = Marks(judged, Demands(**given))
    return {e.name: (made.of(e).masked, [one["kind"] for one in made.of(e).reasons]) for e in episodes}


def test_what_lost_an_exchange_is_masked_on_request_and_says_why() -> None:
    document = {
        "verdicts": {"a": "poisoned", "b": "clean", "c": "clean"}, "findings": FOUND,
        "lost_exchanges": {"a": [1], "b": [2, 3]},
    }  # fmt: skip
    nothing: list[str] = []
    assert marks(document) == {
        "a": (True, ["state-bleed", "stale-read"]), "b": (False, nothing), "c": (False, nothing),
    }  # fmt: skip
    assert marks(document, lost=True) == {
        "a": (True, ["state-bleed", "stale-read", "lost"]), "b": (True, ["lost"]), "c": (False, nothing),
    }  # fmt: skip


def test_the_reasons_given_while_recording_have_the_same_members() -> None:
    bench = Bench(2)
    patch = script(("GET", "/deals/D-1"), ("PATCH", "/deals/D-1", {"stage": "won"}), ("GET", "/deals/D-1"))
    bench.in_turn(iter([{"name": "e", "deployment": bench.deployment("i", "stale"), "agents": {"main": patch}}]))
    (finding,) = bench.judge().findings
    (ours,) = reasons({"run": "r", "findings": [finding.to_json()]})["e"]
    assert {name: reason_online(finding)[name] for name in ours} == ours
