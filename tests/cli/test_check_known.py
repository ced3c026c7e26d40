"""`check` in CI: what is known, JUnit, Markdown; and that its report fits a terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from replayproxy.cli.check_junit import junit_xml
from replayproxy.cli.check_md import cell, markdown
from replayproxy.cli.check_text import report
from replayproxy.detect.finding import Grade
from replayproxy.session.baseline import read_baseline
from replayproxy.session.check_document import Demands, document
from replayproxy.storage import open_store
from tests.cli.conftest import Call
from tests.detect.bench import Bench, script
from tests.detect.kept import keep

PATCH = script(("GET", "/deals/D-1"), ("PATCH", "/deals/D-1", {"stage": "won"}), ("GET", "/deals/D-1"))
CREATE = script(("POST", "/deals", {"stage": "lead", "owner": "grace", "amount": 500}), ("GET", "/deals"))
EVIL = "\x1b[31m\x00\ud800]]><&\"'`|"


def stale(episodes: int = 3, *faults: str) -> Bench:
    bench = Bench(2)
    deployment = bench.deployment("i", *(faults or ("stale",)))
    bench.in_turn(
        iter([{"name": f"e{n}", "deployment": deployment, "agents": {"main": PATCH}} for n in range(episodes)])
    )
    return bench


def nightly() -> Bench:
    """40 episodes of 4 tasks; from the 29th on another image, whose reset forgets the deals."""
    bench = Bench(3)
    good, bad = bench.deployment("pod-1"), bench.deployment("pod-2", "leaky")
    bench.in_turn(iter([
        {"name": f"crm-{n % 4}-a{n // 4}", "deployment": bad if n >= 28 else good, "agents": {"main": CREATE},
         "task": f"crm-{n % 4}", "reward": 1.0 if n >= 28 else 0.5, "group": f"g{n // 8}",
         "meta": {"image": "crm:new" if n >= 28 else "crm:old", "step": 380 + n // 4}}
        for n in range(40)
    ]))  # fmt: skip
    return bench


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "store"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(place))
    monkeypatch.chdir(tmp_path)
    with open_store(place, create=True) as store:
        keep(store, stale(), "bad")
        keep(store, stale(), "again")
        keep(store, nightly(), "nightly")
    return place


def told_of(bench: Bench) -> dict:
    return document(bench.judge(), Demands(), None)


# The report


def test_the_report_fits_a_hundred_columns_and_has_all_kinds(judged: Path, call: Call) -> None:
    for run in ("bad", "nightly"):
        lines = call("check", run).text.splitlines()
        assert max(map(len, lines)) <= 100
        head = next(at for at, line in enumerate(lines) if line.startswith("KIND"))
        kinds = [line.split()[0] for line in lines[head + 1 :] if line[:1].isalpha()][:6]
        assert kinds == ["stale-read", "state-bleed", "dirty-reset", "nondeterminism", "race", "lost-update"]
        assert lines[head].endswith("COULD NOT LOOK IN")
        assert "STATISTICAL" not in lines[head]


def test_the_table_tells_each_reason_with_its_number_and_statistical_findings_get_a_column() -> None:
    told = told_of(nightly())
    total = len(told["verdicts"])
    for at, name in enumerate(told["coverage"]):
        told["coverage"][name]["not_checked"] = (
            {"race": "one lane only" if at % 2 else "no snapshots"} if at < 9 else {}
        )
    told["findings"][0]["grade"] = Grade.STATISTICAL.value
    lines = report(told)
    assert any("STATISTICAL" in line for line in lines)
    at = next(at for at, line in enumerate(lines) if line.startswith("race "))
    assert lines[at].endswith(f"9 of {total}:")
    assert [line.strip() for line in lines[at + 1 : at + 3]] == ["5 no snapshots", "4 one lane only"]
    assert max(map(len, lines)) <= 100


def test_it_tells_when_the_rate_rose_and_what_changed_then(judged: Path, call: Call) -> None:
    text = call("check", "nightly").text
    began = call("check", "nightly", "--json").json["began"]
    assert began["rose"]["before"][0] == 0
    assert began["rose"]["p"] < 0.001
    assert began["changed"]["image"] == ["crm:old", "crm:new"]
    assert "step" not in began["changed"]
    assert "image crm:old -> crm:new, instance.app pod-1 -> pod-2" in text
    assert f"bad 0 of {began['rose']['before'][1]} before" in text


def test_rewards_and_groups_are_told_with_and_without_the_poisoned(judged: Path, call: Call) -> None:
    told = call("check", "nightly", "--json").json
    poisoned = [name for name, word in told["verdicts"].items() if word == "poisoned"]
    task = told["rewards"][0]
    assert task["with"] > task["without"] >= 0.5
    assert {name for group in told["groups"] for name in group["poisoned"]} == set(poisoned)
    assert all(group["left"] + len(group["poisoned"]) == group["of"] for group in told["groups"])
    assert "siblings when the poisoned are masked" in call("check", "nightly").text
    listed = [line for line in call("check", "nightly", "--groups").text.splitlines() if line.startswith("group ")]
    assert len(listed) == len(told["groups"])


# What is known


def test_what_is_in_the_baseline_is_told_and_does_not_fail_in_another_run_either(judged: Path, call: Call) -> None:
    assert call("check", "bad", "--write-baseline", "base.json").code == 1
    for run in ("bad", "again"):
        told = call("check", run, "--baseline", "base.json")
        assert told.code == 0, told.text
        assert "known and silenced: 3 (3 in the baseline)" in told.text
        document = call("check", run, "--baseline", "base.json", "--json").json
        assert set(document["verdicts"].values()) == {"poisoned"}
        assert document["failure_rate"] == 1.0
        assert all(finding["known"]["by"] == "baseline" for finding in document["findings"])
    new = call("check", "nightly", "--baseline", "base.json")
    assert new.code == 1
    assert "known   0 in the baseline of 1 fault, 1 not seen in this run" in new.text


def test_a_rate_that_known_faults_alone_raise_says_so(judged: Path, call: Call) -> None:
    call("check", "bad", "--write-baseline", "base.json")
    assert call("check", "bad").text.splitlines()[1].endswith("budget 5 %: above it")
    told = call("check", "bad", "--baseline", "base.json")
    assert (told.code, told.text.splitlines()[1].endswith("above it by known faults alone")) == (0, True)


def test_where_bleeds_were_looked_for_by_value_alone_the_table_says_so() -> None:
    told = told_of(nightly())
    for seen in told["coverage"].values():
        seen["not_checked"] = {"state-bleed": "no reference", "dirty-reset": "no reference"}
    lines = report(told)
    (bleed,) = (at for at, line in enumerate(lines) if line.startswith("state-bleed "))
    assert "no reference, for rows (values were followed)" in " ".join((lines[bleed] + lines[bleed + 1]).split())
    assert next(line for line in lines if line.startswith("dirty-reset ")).endswith("no reference")


def test_the_baseline_is_a_numbered_file_whose_reasons_are_kept_and_whose_grade_counts(
    judged: Path, call: Call, tmp_path: Path
) -> None:
    call("check", "bad", "--write-baseline", "base.json")
    path = tmp_path / "base.json"
    written = json.loads(path.read_text())
    assert written["replayproxy-baseline"] == 1
    (entry,) = written["findings"]
    assert (entry["kind"], entry["grade"], entry["seen"], entry["reason"]) == ("stale-read", "proven", 3, "")
    assert len(entry["added"]) == 10
    entry |= {"reason": "cache of the old proxy", "added": "2020-01-01"}
    path.write_text(json.dumps(written))
    said = call("check", "again", "--write-baseline", "base.json")
    assert said.err == "replayproxy: wrote 1 known fault to base.json\n"
    (kept,) = read_baseline(path).values()
    assert (kept.reason, kept.added, kept.run) == ("cache of the old proxy", "2020-01-01", "again")
    entry["grade"] = "suspected"  # it is better proved now than it was
    path.write_text(json.dumps(written))
    assert call("check", "bad", "--baseline", "base.json").code == 1
    entry |= {"grade": "proven", "until": "2020-01-01"}
    path.write_text(json.dumps(written))
    told = call("check", "bad", "--baseline", "base.json")
    assert told.code == 1
    assert "1 expired" in told.text


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"replayproxy-baseline": 2, "findings": []}', '{"replayproxy-baseline": 1}',
                '{"replayproxy-baseline": 1, "findings": [{}]}', "\ufffe",
                '{"replayproxy-baseline": 1, "findings": [{"fingerprint": "x", "grade": "sure"}]}'],
)  # fmt: skip
def test_a_file_that_is_no_baseline_is_exit_2_before_anything_is_judged(
    judged: Path, call: Call, tmp_path: Path, content: str
) -> None:
    (tmp_path / "base.json").write_text(content)
    told = call("check", "bad", "--baseline", "base.json")
    assert (told.code, told.out, told.err.count("\n")) == (2, b"", 1)


def test_silence_needs_a_reason_and_takes_the_finding_out_of_the_verdicts(
    judged: Path, call: Call, tmp_path: Path
) -> None:
    config = tmp_path / "replayproxy.toml"
    config.write_text('[silence]\n"stale-read GET /deals/{id}" = { reason = "cached on purpose" }\n')
    told = call("check", "bad")
    assert told.code == 0
    assert "clean 3  suspect 0  poisoned 0  unknown 0        known and silenced: 3 (3 silenced)" in told.text
    assert "known   F1 and 2 more, silenced by 'stale-read GET /deals/{id}': cached on purpose" in told.text
    document = call("check", "bad", "--json").json
    assert document["findings"] == []
    assert [one["silence"]["reason"] for one in document["silenced"]] == ["cached on purpose"] * 3
    assert call("ls", "bad", "--json").json["episodes"][0]["verdict"] == "clean"
    assert call("show", "F2").text.startswith("F2  STALE READ")


def test_an_expired_silence_and_one_that_met_nothing_are_told(judged: Path, call: Call, tmp_path: Path) -> None:
    (tmp_path / "replayproxy.toml").write_text(
        '[silence]\n"stale-read GET /deals/{id}" = { reason = "was so", until = 2020-01-01 }\n'
        '"race POST /slots/{id}" = { reason = "two holders are meant" }\n'
    )
    told = call("check", "bad")
    assert told.code == 1
    assert "silence 'stale-read GET /deals/{id}' has expired: nothing is silenced by it" in told.text
    assert "silence 'race POST /slots/{id}' met nothing in this run" in told.text


@pytest.mark.parametrize(
    ("entry", "said"),
    [('"stale-read GET /x" = {}', "gives no reason"), ('"stale-read GET /x" = "why"', "is no table"),
     ('luck = { reason = "x" }', "can name no finding"),
     ('"race GET /x" = { reason = "x", till = 1 }', "unknown key 'till'"),
     ('"race GET /x" = { reason = "x", until = "soon" }', "until is 'soon'")],
)  # fmt: skip
def test_a_silence_that_cannot_be_meant_is_one_line_and_exit_2(
    judged: Path, call: Call, tmp_path: Path, entry: str, said: str
) -> None:
    (tmp_path / "replayproxy.toml").write_text(f"[silence]\n{entry}\n")
    told = call("check", "bad")
    assert (told.code, told.out) == (2, b"")
    assert said in told.err


# Files for CI


def test_junit_has_a_case_for_each_episode_and_one_for_the_run(judged: Path, call: Call, tmp_path: Path) -> None:
    call("check", "bad", "nightly", "--junit", "out.xml")
    root = Xml.parse(tmp_path / "out.xml").getroot()
    bad, nights = root.findall("testsuite")
    assert (bad.get("name"), bad.get("tests"), bad.get("failures")) == ("bad", "4", "4")
    assert [case.get("name") for case in bad] == ["e0", "e1", "e2", "(the run as a whole)"]
    failure = bad.find("testcase/failure")
    assert failure is not None
    assert failure.get("message", "").startswith("F1 stale-read proven: ")
    assert "bad/e0#3" in (failure.text or "")
    assert nights.get("tests") == "41"
    clean = [case for case in nights if not list(case)]
    assert len(clean) == 40 - len([case for case in nights if case.find("failure") is not None]) + 1


def test_junit_is_well_formed_whatever_was_recorded() -> None:
    bench = stale()
    judgement = bench.judge()
    evil = [replace(f, title=EVIL, pointer=EVIL, values=(EVIL, EVIL), reproduce=EVIL) for f in judgement.findings]
    told = document(judgement.with_findings(evil), Demands(), None)
    told["verdicts"] |= {"x" + EVIL: "unknown", "open": "unknown"}
    told["incomplete"] = ["open"]
    root = Xml.fromstring(junit_xml([told], {"proven"}))
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("skipped"), suite.get("errors")) == ("1", "1")
    assert "\\x1b[31m\\x00" in (suite.findall("testcase/failure")[0].get("message") or "")


def test_a_known_finding_is_no_failure_in_junit(judged: Path, call: Call, tmp_path: Path) -> None:
    call("check", "bad", "--write-baseline", "base.json")
    call("check", "bad", "--baseline", "base.json", "--junit", "out.xml")
    root = Xml.parse(tmp_path / "out.xml").getroot()
    assert root.get("failures") == "0"
    assert "stale-read" in (root.find("testsuite/testcase/system-out").text or "")  # type: ignore[union-attr]


def test_markdown_is_a_summary_in_which_nothing_recorded_is_markup(judged: Path, call: Call, tmp_path: Path) -> None:
    call("check", "bad", "--md", "out.md")
    text = (tmp_path / "out.md").read_text()
    assert text.startswith("### bad: ❌ FAIL\n")
    assert "| stale-read | 3 proven | 3 | 0 of 3 |" in text
    assert cell("a|b`c\n<x>") == "a\\|b\\`c\\x0a\\<x\\>".replace("\\x0a", "\\\\x0a")
    told = told_of(stale())
    told["findings"][0]["title"] = "`" * 12 + "\n# evil <script>"
    fenced = markdown([told])
    assert "\n# evil" not in fenced
    assert "<script>" not in fenced.replace("\\<script\\>", "").partition("<details>")[0]


def test_files_are_replaced_whole_and_a_place_that_cannot_be_written_is_exit_2(
    judged: Path, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "out.md").write_text("old")
    call("check", "bad", "--md", "out.md")
    assert "old" not in (tmp_path / "out.md").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []
    told = call("check", "bad", "--junit", "nowhere/out.xml")
    assert (told.code, told.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("option", ["--junit", "--md", "--write-baseline"])
def test_a_path_that_cannot_be_written_is_refused_before_anything_is_judged(
    call: Call, judged: Path, option: str
) -> None:
    for path in (".", "no/x", "x" * 300):
        assert call("check", "bad", option, path).code == 2
    with open_store(judged) as store:
        assert store.reader().check(store.reader().run("bad")) is None


@pytest.mark.parametrize("grade", ["[]", "{}", "1", "null", '"sure"'])
def test_a_baseline_with_a_grade_that_is_none_is_refused(call: Call, judged: Path, grade: str) -> None:
    path = judged.parent / "known.json"
    path.write_text(f'{{"replayproxy-baseline": 1, "findings": [{{"fingerprint": "x", "grade": {grade}}}]}}')
    for option in ("--baseline", "--write-baseline"):
        told = call("check", "bad", option, str(path))
        assert told.code == 2
        assert "entry 1: grade is" in told.err
