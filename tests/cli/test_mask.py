from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replayproxy.storage import open_store
from replayproxy.testing import episode
from tests.cli.conftest import Call
from tests.detect.bench import Bench, script
from tests.detect.kept import keep

PATCH = script(("GET", "/deals/D-1"), ("PATCH", "/deals/D-1", {"stage": "won"}), ("GET", "/deals/D-1"))
ON = ("--on", "rollout=episode")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run `mixed`: e0 to e3 are clean and e4 read from a stale cache."""
    place = tmp_path / "store"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(place))
    monkeypatch.chdir(tmp_path)
    with open_store(place, create=True) as store:
        bench = Bench(2)
        good, bad = bench.deployment("i"), bench.deployment("j", "stale")
        plan = [{"name": f"e{n}", "deployment": good, "agents": {"main": PATCH}} for n in range(4)]
        bench.in_turn(iter([*plan, {"name": "e4", "deployment": bad, "agents": {"main": PATCH}}]))
        keep(store, bench, "mixed")
    return tmp_path


def rollouts(folder: Path, *lines: Any, name: str = "rollouts.jsonl", end: str = "\n") -> Path:
    path = folder / name
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}{end}" for line in lines))
    return path


def all_five(folder: Path) -> Path:
    return rollouts(folder, *[{"rollout": f"e{n}", "reward": n / 4, "text": "ü\u2028"} for n in range(5)])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def test_the_rollouts_of_a_poisoned_episode_are_marked_and_nothing_else_has_changed(call: Call, shop: Path) -> None:
    path = all_five(shop)
    told = call("mask", "mixed", str(path), *ON)
    assert told.code == 0
    assert told.err == "replayproxy: run mixed was judged first: it was never checked\n"
    first = told.text.splitlines()[0]
    assert first == f"mixed: 1 of 5 lines masked (20.0%, limit 20%)   written to {shop / 'rollouts.masked.jsonl'}"
    assert told.text.splitlines()[-1].startswith("next    replayproxy ")
    made = read(shop / "rollouts.masked.jsonl")
    assert [line["mask_sample"] for line in made] == [False] * 4 + [True]
    assert [line["replay_episode"] for line in made] == [f"e{n}" for n in range(5)]
    assert [line["replay_verdict"] for line in made] == ["clean"] * 4 + ["poisoned"]
    (reason,) = made[4]["mask_reasons"]
    assert (reason["kind"], reason["grade"]) == ("stale-read", "proven")
    assert call("show", reason["finding"]).code == 0
    masked = (shop / "rollouts.masked.jsonl").read_bytes().splitlines()
    for before, after in zip(path.read_bytes().splitlines(), masked, strict=True):
        assert after.startswith(before[:-1] + b', "mask_sample": ')


def test_what_was_checked_as_it_is_now_is_not_judged_again(call: Call, shop: Path) -> None:
    call("check", "mixed")
    assert call("mask", "mixed", str(all_five(shop)), *ON).err == ""


def test_new_episodes_after_the_check_are_judged_first(call: Call, shop: Path) -> None:
    call("check", "mixed")
    with open_store(shop / "store") as store:
        writer = store.writer()
        run = store.reader().run("mixed")
        opened = writer.open_episode(episode("late", run_key=run.key))
        writer.seal(replace(opened, ended=1, ended_wall=1)).result(5)
        writer.close()
    told = call("mask", "mixed", "--json")
    assert told.json["judged"] == "1 of its episodes came after the last check"
    assert told.json["verdicts"] == {"clean": 4, "poisoned": 1, "unknown": 1}


def test_without_a_file_the_episodes_to_mask_are_listed(call: Call, shop: Path) -> None:
    told = call("mask", "mixed")
    assert told.code == 0
    lines = told.text.splitlines()
    assert lines[0] == ("mixed: 1 of 5 episodes to mask (20.0%, limit 20%)   clean 4  suspect 0  poisoned 1  unknown 0")
    assert lines[2].startswith("e4 ")
    assert lines[2].endswith("poisoned  proven stale-read")
    (one,) = call("mask", "mixed", "--json").json["episodes"]
    assert (one["episode"], one["verdict"], one["reasons"][0]["kind"]) == ("e4", "poisoned", "stale-read")
    assert call("mask", "mixed", "--max-masked", "0.1").code == 1


def test_drop_leaves_the_other_lines_as_they_are(call: Call, shop: Path) -> None:
    path = all_five(shop)
    told = call("mask", "mixed", str(path), *ON, "--how", "drop", "--out", "kept.jsonl")
    assert told.code == 0
    assert (shop / "kept.jsonl").read_bytes() == b"".join(path.read_bytes().splitlines(keepends=True)[:4])


def test_list_names_the_lines_and_writes_nothing(call: Call, shop: Path) -> None:
    path = all_five(shop)
    told = call("mask", "mixed", str(path), *ON, "--how", "list")
    assert told.code == 0
    assert any(line.split() == ["5", "e4", "poisoned", "proven", "stale-read"] for line in told.text.splitlines())
    assert sorted(p.name for p in shop.iterdir()) == ["rollouts.jsonl", "store"]


def test_more_masked_than_allowed_is_1_and_nothing_is_written(call: Call, shop: Path) -> None:
    path = rollouts(shop, *[{"rollout": "e4"}, {"rollout": "e0"}])
    told = call("mask", "mixed", str(path), *ON)
    assert told.code == 1
    assert told.text.startswith("mixed: NOTHING WRITTEN   1 of 2 lines to mask (50.0%, limit 20%)\n")
    assert "because 1 of 2 lines would be masked (50.0%), more than --max-masked 0.2" in told.text.splitlines()
    assert sorted(p.name for p in shop.iterdir()) == ["rollouts.jsonl", "store"]


def test_more_unmatched_than_allowed_is_3_and_nothing_is_written(call: Call, shop: Path) -> None:
    path = rollouts(shop, {"rollout": "e0"}, {"rollout": "nobody"}, {"other": 1}, {"rollout": None})
    told = call("mask", "mixed", str(path), *ON)
    assert told.code == 3
    assert "of none     lines 2, 3, 4; 2 have no rollout" in told.text.splitlines()
    assert not (shop / "rollouts.masked.jsonl").exists()
    assert call("mask", "mixed", str(path), *ON, "--max-unmatched", "0.75").code == 0
    assert [line["replay_episode"] for line in read(shop / "rollouts.masked.jsonl")] == ["e0", None, None, None]


def test_too_much_masked_and_too_much_unmatched_is_3(call: Call, shop: Path) -> None:
    assert call("mask", "mixed", str(rollouts(shop, {"rollout": "e4"}, {"rollout": "x"})), *ON).code == 3


def test_a_line_that_may_be_of_several_episodes_is_counted_and_masked_if_one_of_them_is(call: Call, shop: Path) -> None:
    path = rollouts(shop, {"task": "t"})
    with open_store(shop / "store") as store:
        tasks = {e.name: e.task for e in store.reader().episodes(store.reader().run("mixed"))}
    path = rollouts(shop, {"task": tasks["e4"]})
    told = call("mask", "mixed", str(path), "--on", "task=task", "--json")
    assert told.code == 3
    assert (told.json["matched"], told.json["ambiguous"], told.json["unmatched"]) == (0, 1, 0)
    assert told.json["first_ambiguous"] == [{"line": 1, "episodes": ["e0", "e1", "e2", "e3", "e4"]}]
    call("mask", "mixed", str(path), "--on", "task=task", "--max-unmatched", "1", "--max-masked", "1")
    (line,) = read(shop / "rollouts.masked.jsonl")
    assert (line["mask_sample"], line["replay_episode"], line["replay_verdict"]) == (True, None, None)


def test_a_line_that_is_no_object_is_2_with_its_number_and_nothing_is_written(call: Call, shop: Path) -> None:
    for bad in ("[1]", "{", '"x"', "nul", '{"a": 1} {"b": 2}'):
        path = rollouts(shop, {"rollout": "e0"}, "", bad, {"rollout": "e1"})
        told = call("mask", "mixed", str(path), *ON)
        assert told.code == 2, bad
        assert len(told.err.splitlines()) == 1 or told.err.splitlines()[0].endswith("never checked")
        assert "rollouts.jsonl line 3: it is no JSON object" in told.err
        assert told.out == b""
        assert sorted(p.name for p in shop.iterdir()) == ["rollouts.jsonl", "store"]


def test_an_empty_file_is_3(call: Call, shop: Path) -> None:
    for content in ([], ["", " "]):
        told = call("mask", "mixed", str(rollouts(shop, *content)), *ON)
        assert told.code == 3
        assert "because it holds no rollout" in told.text.splitlines()
        assert not (shop / "rollouts.masked.jsonl").exists()


def test_several_lines_of_one_episode_are_all_of_it(call: Call, shop: Path) -> None:
    path = rollouts(shop, *[{"rollout": f"e{n}"} for n in (0, 4, 0, 1, 2, 3, 0, 1, 2, 3, 4, 1)])
    told = call("mask", "mixed", str(path), *ON, "--json")
    assert told.code == 0
    assert (told.json["lines"], told.json["masked"], told.json["episodes"]) == (12, 2, {"run": 5, "with_lines": 5})
    assert [one["line"] for one in told.json["masked_lines"]] == [2, 11]


def test_masking_again_changes_nothing_and_after_a_better_check_says_it_anew(call: Call, shop: Path) -> None:
    path = all_five(shop)
    call("mask", "mixed", str(path), *ON)
    once = (shop / "rollouts.masked.jsonl").read_bytes()
    call("mask", "mixed", "rollouts.masked.jsonl", *ON, "--out", "twice.jsonl")
    assert (shop / "twice.jsonl").read_bytes() == once
    call("mask", "mixed", "twice.jsonl", *ON, "--verdicts", "suspect", "--out", "twice.jsonl")
    assert not any(line["mask_sample"] for line in read(shop / "twice.jsonl"))


def test_what_the_framework_had_masked_stays_masked(call: Call, shop: Path) -> None:
    path = rollouts(shop, '{"mask_sample": true ,"rollout":"e0"}', *[{"rollout": f"e{n}"} for n in (1, 2, 3, 1, 2, 4)])
    told = call("mask", "mixed", str(path), *ON)
    assert "note    1 line had mask_sample true already, and keep it" in told.text.splitlines()
    first = (shop / "rollouts.masked.jsonl").read_text().splitlines()[0]
    assert first.startswith('{"mask_sample": true ,"rollout":"e0", "mask_reasons": [{"kind":"given"')
    call("mask", "mixed", "rollouts.masked.jsonl", *ON, "--out", "rollouts.masked.jsonl")
    assert (shop / "rollouts.masked.jsonl").read_text().splitlines()[0] == first


def test_out_may_be_stdout_and_the_report_is_then_on_stderr(call: Call, shop: Path) -> None:
    told = call("mask", "mixed", str(all_five(shop)), *ON, "--out", "-")
    assert len(told.text.splitlines()) >= 5
    assert [json.loads(line)["mask_sample"] for line in told.out.split(b"\n") if line] == [False] * 4 + [True]
    assert "mixed: 1 of 5 lines masked" in told.err
    assert call("mask", "mixed", str(all_five(shop)), *ON, "--out", "-", "--json").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--on", "rollout"), ("--on", "rollout=luck"), ("--on", "=episode"), ("--on", "rollout=meta."),
        (*ON, "--verdicts", "bad"), (*ON, "--verdicts", ","), (*ON, "--max-masked", "5"), (*ON, "--how", "burn"),
        (*ON, "--out", "."), (*ON, "--out", "no/such/folder/x.jsonl"),
    ],
)  # fmt: skip
def test_wrong_words_are_one_line_and_exit_2(call: Call, shop: Path, words: tuple[str, ...]) -> None:
    told = call("mask", "mixed", str(all_five(shop)), *words)
    assert told.code == 2
    assert len(told.err.splitlines()) == 1
    assert told.out == b""


def test_a_file_that_is_not_there_is_2(call: Call, shop: Path) -> None:
    for words in (["nope.jsonl", *ON], ["store", *ON], ["--on", "a=episode"], ["--how", "drop"]):
        told = call("mask", "mixed", *words)
        assert (told.code, len(told.err.splitlines())) == (2, 1), words
    assert call("mask", "nope").code == 2
    assert call("mask", "mixed/e0#1").code == 2


def test_one_episode_may_be_named_alone(call: Call, shop: Path) -> None:
    told = call("mask", "mixed/e4", "--json", "--max-masked", "1")
    assert (told.json["masked"], told.json["of"]) == (1, 1)


def test_an_archive_is_masked_by_as_it_lies_there(call: Call, shop: Path) -> None:
    assert call("export", "mixed", "--format", "archive", "--out", "all.replay").code == 0
    told = call("mask", "all.replay", str(all_five(shop)), *ON)
    assert told.code == 0
    assert "not saved" in told.err
    assert "1 of 5 lines masked" in told.text
    assert "replayproxy show all.replay/mixed/EPISODE" in told.text.splitlines()[-1]


def test_a_config_file_may_say_how(call: Call, shop: Path) -> None:
    (shop / "replayproxy.toml").write_text('on = "rollout=episode"\nhow = "drop"\nmax-masked = 0.5\n')
    told = call("mask", "mixed", str(all_five(shop)))
    assert told.code == 0
    assert len(read(shop / "rollouts.masked.jsonl")) == 4


def test_what_the_config_silences_is_not_masked(call: Call, shop: Path) -> None:
    path = all_five(shop)
    assert call("mask", "mixed", str(path), *ON, "--json").json["masked"] == 1
    entry = '"stale-read GET /deals/{id}" = { reason = "cached on purpose" }'
    (shop / "replayproxy.toml").write_text(f"[silence]\n{entry}\n")
    told = call("mask", "mixed", str(path), *ON, "--json")
    assert told.json["judged"] == "the config silences other findings than at the last check"
    assert told.json["masked"] == 0
    assert call("mask", "mixed", str(path), *ON, "--json").json["judged"] is None


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "1e400", "1" * 400], ids=["a", "b", "c", "d"])
def test_numbers_that_no_machine_holds_keep_their_digits(call: Call, shop: Path, number: str) -> None:
    path = rollouts(shop, f'{{"rollout": "e0", "n": {number}}}')
    assert call("mask", "mixed", str(path), *ON).code == 0
    assert f'"n": {number}, "mask_sample": false' in (shop / "rollouts.masked.jsonl").read_text()
    keyed = rollouts(shop, f'{{"rollout": {number}}}')
    assert call("mask", "mixed", str(keyed), *ON).code == 3


def test_a_packed_file_is_refused_with_its_kind(call: Call, shop: Path) -> None:
    path = all_five(shop)
    path.write_bytes(gzip.compress(path.read_bytes()))
    told = call("mask", "mixed", str(path), *ON)
    assert told.code == 2
    assert "line 1: it is no UTF-8: this is gzip, unpack it first" in told.err


def test_a_pipe_is_refused_for_it_is_read_more_than_once(call: Call, shop: Path) -> None:
    os.mkfifo(shop / "pipe")
    for command in ("mask", "annotate"):
        told = call(command, "mixed", str(shop / "pipe"), *ON)
        assert told.code == 2
        assert "a pipe" in told.err
    assert not (shop / "pipe.masked").exists()


def test_names_that_cannot_be(call: Call, shop: Path) -> None:
    path = str(all_five(shop))
    assert call("mask", "mixed", ".", *ON).code == 2
    assert call("mask", "mixed", path, *ON, "--out", "x" * 300).code == 2
    assert call("mask", "mixed", path, *ON, "--out", "x" * 255).code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("missing.jsonl",), "missing.jsonl cannot be read: No such file or directory -> name the file of rollouts"),
        (("--max-masked", "100%"), "'--max-masked': '100%' is no share from 0 to 1, such as 0.2 for 20 %."),
        (("--max-masked", "nan"), "'nan' is no share from 0 to 1"),
        (("--max-unmatched", "1.5"), "'1.5' is no share from 0 to 1"),
    ],
)
def test_a_file_that_is_missing_and_a_share_that_is_none_are_one_line(
    call: Call, recorded: Path, words: tuple[str, ...], told: str
) -> None:
    said = call("mask", "nightly", *words)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert told in said.err
