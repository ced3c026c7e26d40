from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.redact import Redactor
from replayproxy.storage import open_store
from replayproxy.storage.batch import annotate as annotate_in
from replayproxy.testing import episode, exchange, run
from tests.cli.conftest import Call
from tests.cli.test_mask import rollouts
from tests.needs import module

ON = ("--on", "id=episode")


@pytest.fixture
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run `nightly`: e0 to e2 sealed, e0 with a reward; `open` has lost its recorder."""
    monkeypatch.setenv("REPLAYPROXY_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    with open_store(tmp_path / "store", create=True) as store:
        writer = store.writer()
        made = writer.open_run(run("nightly"))
        for n in range(3):
            opened = writer.open_episode(
                episode(f"e{n}", run_key=made.key, task="t", seed=n, meta={"rid": f"r{n}", "step": 1})
            )
            writer.put_exchange(opened.key, exchange())
            writer.seal(replace(opened, reward=0.25 if n == 0 else None, ended=1, ended_wall=1)).result(5)
        writer.open_episode(episode("open", run_key=made.key))
        writer.close()
    return tmp_path


def listed(call: Call) -> dict[str, dict[str, Any]]:
    return {row["episode"]: row for row in call("ls", "nightly", "--json").json["episodes"]}


def test_a_reward_is_said_of_its_episode_and_what_was_recorded_stays(call: Call, nightly: Path) -> None:
    path = rollouts(nightly, *[{"id": f"e{n}", "reward": n / 2} for n in range(3)])
    told = call("annotate", "nightly", str(path), *ON)
    assert told.code == 0
    assert told.text.splitlines()[0] == "nightly: 3 episodes changed, 0 said so already   reward of 3"
    assert "  e0: reward 0.25 -> 0.0" in told.text.splitlines()
    assert told.text.splitlines()[-1] == "next    replayproxy ls nightly   replayproxy check nightly"
    rows = listed(call)
    assert [rows[f"e{n}"]["reward"] for n in range(3)] == [0.0, 0.5, 1.0]
    assert rows["e0"]["annotated"]["said"] == {"reward": 0.25}
    assert rows["e1"]["annotated"]["said"] == {"reward": None}
    assert rows["e0"]["annotated"]["source"] == "rollouts.jsonl"
    assert "annotated 3" in call("ls", "nightly").text
    shown = call("show", "nightly/e0")
    assert "annotated  reward 0.0, recorded: 0.25   from rollouts.jsonl, " in shown.text
    assert call("fsck").code == 0
    assert call("check", "nightly", "--json").json["annotated"] == 3
    assert "note    3 episodes annotated later" in call("check", "nightly").text


def test_everything_that_can_be_set(call: Call, nightly: Path) -> None:
    path = rollouts(
        nightly,
        {"id": "e1", "score": {"total": 0.5}, "end": "won", "t": 9, "s": "4", "a": 2, "g": "g1", "m": {"x": [1]}},
    )
    sets = (
        "reward=score.total", "outcome=end", "task=t", "seed=s", "attempt=a", "g=group", "meta.m=m", "meta.rid=id",
    )  # fmt: skip
    words = [word for one in sets for word in ("--set", one)]
    told = call("annotate", "nightly", str(path), *ON, *words, "--json")
    assert told.code == 0
    assert (told.json["changed"], told.json["written"]) == (1, True)
    row = listed(call)["e1"]
    wanted = ("reward", "outcome", "task", "seed", "attempt", "group")
    assert [row[name] for name in wanted] == [0.5, "won", "9", 4, 2, "g1"]
    assert row["meta"] == {"rid": "e1", "step": 1, "m": {"x": [1]}}
    assert row["annotated"]["said"] == {
        "reward": None, "outcome": None, "task": "t", "seed": 1, "attempt": None, "group": None, "meta.m": None,
        "meta.rid": "r1",
    }  # fmt: skip


def test_saying_it_again_changes_nothing_and_taking_it_back_leaves_nothing(call: Call, nightly: Path) -> None:
    path = rollouts(nightly, {"id": "e0", "reward": 1}, {"id": "e0", "reward": 1.0})
    call("annotate", "nightly", str(path), *ON)
    before = listed(call)
    told = call("annotate", "nightly", str(path), *ON)
    assert told.text.startswith("nightly: 0 episodes changed, 1 said so already   reward of 1\n")
    assert listed(call) == before
    call("annotate", "nightly", str(rollouts(nightly, {"id": "e0", "reward": 0.25})), *ON)
    assert listed(call)["e0"]["annotated"] is None


def test_a_dry_run_tells_the_same_and_changes_nothing(call: Call, nightly: Path) -> None:
    path = rollouts(nightly, {"id": "e0", "reward": 1})
    before = listed(call)
    told = call("annotate", "nightly", str(path), *ON, "--dry-run")
    assert told.code == 0
    assert told.text.startswith("nightly: nothing written, for this is a dry run   1 episode changed")
    assert listed(call) == before


@pytest.mark.parametrize(
    ("lines", "code", "why"),
    [
        (
            [{"id": "e0", "reward": 1}, {"id": "x", "reward": 1}],
            3,
            "because 1 of 2 lines are not of one sealed episode",
        ),
        ([{"id": "e0", "reward": 1}, {"id": "open", "reward": 1}], 3, "because 1 of 2 lines are not of one sealed"),
        ([{"id": "e0", "reward": 1}, {"id": "e0", "reward": 0}], 3, "because 1 line says another thing of an episode"),
        ([{"id": "e0"}, {"id": "e1", "reward": None}], 3, "because no line has reward: there is nothing to set"),
        ([], 3, "because the file holds no rollout"),
        ([{"id": "e0", "reward": 1}, {"id": "e1", "reward": "no"}], 2, "line 2: reward is 'no', which is no number"),
        ([{"id": "e0", "reward": 1}, "[]"], 2, "line 2: it is no JSON object"),
    ],
)
def test_all_or_nothing(call: Call, nightly: Path, lines: list[Any], code: int, why: str) -> None:
    before = listed(call)
    told = call("annotate", "nightly", str(rollouts(nightly, *lines)), *ON)
    assert told.code == code
    assert why in (told.err if code == 2 else told.text)
    assert listed(call) == before


def test_a_conflict_names_both_lines(call: Call, nightly: Path) -> None:
    path = rollouts(nightly, {"id": "e0", "reward": 1}, "", {"id": "e0", "reward": 0})
    told = call("annotate", "nightly", str(path), *ON)
    assert "conflict  e0 reward: line 1 says 1.0, line 3 0.0" in told.text.splitlines()


def test_lines_without_an_episode_may_be_let_pass(call: Call, nightly: Path) -> None:
    path = rollouts(nightly, {"id": "e0", "reward": 1}, {"id": "x", "reward": 1}, {"reward": 1})
    told = call("annotate", "nightly", str(path), *ON, "--max-unmatched", "0.7")
    assert told.code == 0
    assert "not of one  lines 2, 3; 1 have no id" in told.text.splitlines()
    assert listed(call)["e0"]["reward"] == 1.0


def test_a_known_shape_is_joined_whatever_reward_was_recorded(call: Call, nightly: Path) -> None:
    path = rollouts(nightly, *[{"_ng_task_index": 0, "_ng_rollout_index": n, "_ng_rollout_id": f"r{n}", "reward": 1}
                               for n in range(3)])  # fmt: skip
    call("annotate", "nightly", str(rollouts(nightly, {"id": "e0", "r": "r0"}, name="ids.jsonl")), *ON,
         "--set", "meta._ng_rollout_id=r")  # fmt: skip
    told = call("annotate", "nightly", str(path), "--on", "_ng_rollout_id=meta.rid")
    assert told.code == 0
    path = rollouts(nightly, {"_ng_task_index": 0, "_ng_rollout_index": 0, "_ng_rollout_id": "r0", "reward": 0})
    told = call("annotate", "nightly", str(path))
    assert told.code == 0
    assert "joined by --on _ng_rollout_id=meta._ng_rollout_id: " in told.err
    assert listed(call)["e0"]["reward"] == 0.0


def test_parquet_is_read_as_well(call: Call, nightly: Path) -> None:
    arrow, parquet = module("pyarrow"), module("pyarrow.parquet")
    rows = [{"id": f"e{n}", "score": {"total": 1.0}, "text": "x"} for n in range(3)]
    parquet.write_table(arrow.Table.from_pylist(rows), nightly / "r.parquet", row_group_size=2)
    told = call("annotate", "nightly", "r.parquet", *ON, "--set", "reward=score.total")
    assert told.code == 0
    assert "joined  --on id=episode: 3 of 3 rows" in told.text
    assert [listed(call)[f"e{n}"]["reward"] for n in range(3)] == [1.0] * 3


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "state=x"), ("--set", "reward"), ("--set", "meta.=x"), ("--set", "reward=a", "--set", "reward=b"),
        ("--on", "id"), ("--max-unmatched", "7"),
    ],
)  # fmt: skip
def test_wrong_words_are_one_line_and_exit_2(call: Call, nightly: Path, words: tuple[str, ...]) -> None:
    told = call("annotate", "nightly", str(rollouts(nightly, {"id": "e0", "reward": 1})), *ON, *words)
    assert (told.code, len(told.err.splitlines()), told.out) == (2, 1, b"")


def test_what_is_no_run_of_a_store_is_2(call: Call, nightly: Path) -> None:
    path = str(rollouts(nightly, {"id": "e0", "reward": 1}))
    for words in (("nightly/e0", path), ("nope", path), ("nightly", "nope.jsonl")):
        assert call("annotate", *words, *ON).code == 2, words
    call("export", "nightly", "--format", "archive", "--out", "n.replay")
    told = call("annotate", "n.replay", path, *ON)
    assert (told.code, told.err) == (
        2,
        "replayproxy: n.replay is an archive, which is only read -> replayproxy import n.replay\n",
    )


def test_an_archive_carries_it_and_a_har_says_it(call: Call, nightly: Path) -> None:
    call("annotate", "nightly", str(rollouts(nightly, {"id": "e0", "reward": 1})), *ON)
    call("export", "nightly", "--format", "archive", "--out", "n.replay")
    archived = call("ls", "n.replay", "--json").json["episodes"]
    assert [row["annotated"] for row in archived] == [row["annotated"] for row in listed(call).values()]
    assert call("import", "n.replay", "--run", "again").code == 0
    assert call("ls", "again", "--json").json["episodes"][0]["annotated"] == archived[0]["annotated"]
    call("export", "nightly/e0", "--format", "har", "--out", "e0.har")
    about = json.loads((nightly / "e0.har").read_text())["log"]["_replayproxy"]
    assert (about["reward"], about["annotated"]["said"]) == (1.0, {"reward": 0.25})


def test_a_check_from_before_is_made_again_for_the_mask(call: Call, nightly: Path) -> None:
    call("check", "nightly")
    call("annotate", "nightly", str(rollouts(nightly, {"id": "e0", "reward": 1})), *ON)
    assert call("mask", "nightly", "--json").json["judged"] == "1 of its episodes were annotated after the last check"


def test_a_secret_is_stored_by_its_token_and_said_again_is_no_change(call: Call, nightly: Path) -> None:
    path = rollouts(nightly, {"id": "e0", "key": "sk-live-4242424242424242abcdef"})
    with open_store(nightly / "store") as store:
        reader = store.reader()
        recorded = reader.run("nightly")
        keys = [e.key for e in reader.episodes(recorded) if e.name == "e0"]
        writer = store.writer(exclusive=False, redactor=Redactor(b"k" * 32))
        secret = {"api_key": json.loads(path.read_text())["key"]}
        for expected in (1, 0):
            changed = writer.annotate(recorded.key, keys, lambda e: replace(e, meta={**e.meta, **secret})).result(5)
            assert changed == expected
        writer.close()
    assert "sk-live" not in json.dumps(listed(call))


def test_when_one_record_cannot_be_written_none_is(nightly: Path, call: Call) -> None:
    before = listed(call)
    with open_store(nightly / "store") as store:
        reader = store.reader()
        recorded = reader.run("nightly")
        keys = [e.key for e in reader.episodes(recorded)]
        writer = store.writer(exclusive=False)
        with pytest.raises(LookupError, match="episode open is not sealed"):
            writer.annotate(recorded.key, keys, lambda e: replace(e, reward=9.0)).result(5)
        writer.close()
        with store.env.writing() as txn, pytest.raises(LookupError, match="no episode 999"):
            annotate_in(txn, store.env.dbs, recorded.key, [*keys[:3], 999], lambda e: replace(e, reward=9.0))
    assert listed(call) == before


def test_an_episode_that_is_removed_meanwhile_is_one_line(
    nightly: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> int:
        raise LookupError("no episode 3 in run 1")

    monkeypatch.setattr("replayproxy.storage.batch.annotate", gone)
    path = rollouts(nightly, {"id": "e0", "reward": 2})
    told = call("annotate", "nightly", str(path), *ON)
    assert told.code == 2
    assert "nightly was changed meanwhile (no episode 3 in run 1): nothing is written -> again" in told.err
