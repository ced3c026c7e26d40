"""`show F1` on findings of recordings: the block, its drawing, curl, Markdown and the table of states."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from replayproxy.session.trials import keep as keep_trials
from replayproxy.session.trials import trial
from replayproxy.storage import open_store
from tests.cli.conftest import EVIL, Call
from tests.cli.test_check_known import nightly, stale
from tests.detect.bench import Bench, script
from tests.detect.kept import keep

SCORER = script(("GET", "/deals/D-2/score"))


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "store"
    monkeypatch.setenv("REPLAYPROXY_STORE", str(place))
    monkeypatch.chdir(tmp_path)
    with open_store(place, create=True) as store:
        keep(store, stale(1), "stale")
        keep(store, nightly(), "nightly")
        dice = Bench(4)
        deployment = dice.deployment("i", "random")
        dice.in_turn(iter([{"name": f"e{n}", "deployment": deployment, "agents": {"main": SCORER}} for n in range(5)]))
        keep(store, dice, "dice")
    return place


def block(call: Call, run: str) -> list[str]:
    call("check", run)
    told = call("show", "F1")
    assert told.code == 0
    return told.text.splitlines()


def test_a_stale_read_is_seen_at_a_glance(call: Call, found: Path) -> None:
    lines = block(call, "stale")
    assert (
        lines[0] == "F1  STALE READ (RYW)  PROVEN  /deals/D-1 was at least 0.003 s out of date, missed PATCH /deals/D-1"
    )
    assert lines[1].startswith("  falls on stale/e0, lane main   blame: environment (the write had been answered")
    shown = [re.sub(r"\d\d:\d\d:\d\d\.\d{3}", "AT", line) for line in lines[3:7]]
    assert shown == [
        '  e0/2   write  PATCH /deals/D-1     200  AT  wrote "won"             [==| write         ]',
        '  e0/s1  state  snapshot app, write       AT  deals/D-1 /stage "won"  [  |  === s1       ]',
        '  e0/3   read   GET /deals/D-1       200  AT  /stage = "lead"         [  |       === read]',
        '  e0/s2  state  snapshot app, end         AT  deals/D-1 /stage "won"  [  |         s2 ===]',
    ]
    assert '  values      /stage   expected "won"   there was "lead"' in lines
    wanted = "values extent seconds ruled-out assumes cannot-say reproduce share id next".replace("-", " ").split()
    labels = " ".join(line[2:14].strip() for line in lines).split()
    assert [label for label in labels if label in wanted] == wanted
    assert lines[-1] == "  next        replayproxy blame 'stale/e0#3' '/stage'"


def test_a_bleed_is_compared_with_the_other_starts_of_its_task(call: Call, found: Path) -> None:
    text = " ".join(" ".join(block(call, "nightly")).split())
    assert re.search(
        r"compare crm-\d seed 1: the same in 0 of 7 other starts before [0-9:.]+, in [12] of [12] other", text
    )
    assert "snapshot app, start" in text
    assert "write ]" in text


def test_nondeterminism_tells_how_many_answers_there_were(call: Call, found: Path) -> None:
    text = " ".join(" ".join(block(call, "dice")).split())
    assert "compare 5 episodes asked the same of the same state: 1 got the usual answer, 5 different ones came" in text


def test_every_block_fits_a_hundred_columns(call: Call, found: Path) -> None:
    for run in ("stale", "nightly", "dice"):
        wide = [line for line in block(call, run) if len(line) > 100]
        assert [line for line in wide if "replayproxy" not in line] == []


def test_what_came_of_sending_it_again_is_told(call: Call, found: Path) -> None:
    call("check", "stale")
    finding = call("show", "F1", "--json").json
    with open_store(found) as store:
        run = store.reader().run("stale")
        told = "alone 0/5, after e0/2 5/5"
        keep_trials(store, run.key, [trial(finding["id"], "reproduce", wall=1, k=5, n=5, told=told, confirmed=True)])
    assert f"  last        {told}" in call("show", "F1").text.splitlines()


def test_its_exchanges_are_curl_commands_that_a_shell_takes(call: Call, found: Path) -> None:
    call("check", "stale")
    lines = call("show", "F1", "--curl").text.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("#")] == ["write", "read"]
    assert [line.split()[-1] for line in lines if line.startswith("curl")] == ["http://app.test/deals/D-1"] * 2
    done = subprocess.run(["sh", "-n"], input="\n".join(lines).encode(), check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_markdown_holds_the_block_and_the_commands(call: Call, found: Path) -> None:
    call("check", "stale")
    lines = call("show", "F1", "--md").text.splitlines()
    assert lines[0] == "### `F1` stale-read, proven"
    assert lines.count("````") == 2
    assert any(line.startswith("curl ") for line in lines)


def test_the_states_of_a_finding_are_a_table(call: Call, found: Path) -> None:
    call("check", "nightly")
    lines = call("show", "F1", "--state").text.splitlines()
    assert lines[0].startswith("the reference (7 of 10 starts) -> nightly/crm-")
    assert lines[1].split()[:2] == ["ROW", "COLUMN"]
    assert "(row)" in lines[2]
    assert max(map(len, lines)) <= 100
    told = call("show", "F1", "--state", "--json").json
    assert told["states"][0]["rows"][0]["table"] == "deals"
    call("check", "stale")
    lines = call("show", "F1", "--state").text.splitlines()
    assert lines[0].endswith("0 rows differ")
    assert lines[1].startswith("deals/D-1   the same in both: ")
    assert '"stage":"won"' in lines[1]


def test_the_only_state_of_a_finding_is_compared_with_the_start_of_the_episode_that_wrote(
    call: Call, found: Path
) -> None:
    call("check", "nightly")
    with open_store(found) as store:
        run = store.reader().resolve("nightly").run
        document = dict(store.reader().check(run) or {})
        bleed = next(f for f in document["findings"] if f["kind"] == "state-bleed")
        writer = store.writer()
        writer.put_check(run.key, document | {"references": []})
        writer.close()
    lines = call("show", bleed["id"], "--state").text.splitlines()
    assert lines[0].startswith(f"{bleed['exchanges'][0]['address'].partition('#')[0]}/s0 -> nightly/")
    assert any("(row)" in line for line in lines)


def test_an_id_that_no_check_has_says_why_that_may_be(call: Call, found: Path) -> None:
    call("check", "stale")
    told = call("show", "state-bleed-0123456789ab")
    assert (told.code, "told while recording" in told.err) == (2, True)
    assert "told while recording" not in call("show", "F99").err


def test_a_finding_whose_exchanges_are_gone_is_shown_from_the_check(call: Call, found: Path) -> None:
    call("check", "stale")
    call("rm", "stale/e0")
    lines = call("show", "F1").text.splitlines()
    assert lines[0].startswith("F1  STALE READ")
    assert any(line.startswith("  e0/2 ") for line in lines)
    assert "it is no longer in the store" in call("show", "F1", "--curl").text
    assert call("show", "F1", "--state").code == 2


def test_nothing_recorded_reaches_the_terminal_raw(call: Call, recorded: Path) -> None:
    for arguments in (["F1"], ["F1", "--md"], ["F1", "--curl"], ["F1", "--state"]):
        told = call("show", *arguments)
        assert "\x1b" not in told.text + told.err
        assert EVIL not in told.text


def test_an_episode_says_how_its_siblings_start_and_what_it_changed(call: Call, found: Path) -> None:
    document = call("check", "nightly", "--json").json
    finding = next(f for f in document["findings"] if f["kind"] == "state-bleed")
    lines = call("show", f"nightly/{finding['episode']}").text.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("start "))
    start = " ".join(" ".join(lines[at : at + 3]).split())
    assert re.search(r"7 of 10 siblings start at [0-9a-f]{4}; here also deals/", start)
    assert max(map(len, lines[1:])) <= 100
    assert any(re.search(r"^end .* rows? changed since the start", line) for line in lines)
    assert any(f"{finding['number']} read" in line for line in lines)
    assert lines[-1].endswith(f"replayproxy show {finding['number']}")
    clean = next(name for name, word in document["verdicts"].items() if word == "clean")
    assert "here also" not in call("show", f"nightly/{clean}").text


def test_of_a_run_that_was_not_checked_last_findings_are_named_by_their_ids(call: Call, found: Path) -> None:
    ids = [f["id"] for f in call("check", "stale", "--json").json["findings"]]
    call("check", "dice")
    lines = call("show", "stale/e0").text.splitlines()
    assert f"replayproxy show {ids[0]}" in lines[-1]
    assert call("show", ids[0]).code == 0
