"""`export` and `import` as they are called, and archives read in place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from replayproxy.storage import open_store
from replayproxy.storage.verify import verify
from tests.cli.conftest import Call


@pytest.fixture
def archive(call: Call, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run `nightly` in `nightly.replay`; from here on no store is there."""
    monkeypatch.chdir(tmp_path)
    done = call("export", "nightly", "--format", "archive")
    assert (done.code, done.text) == (0, "wrote nightly.replay: 6 exchanges of 3 episodes\n")
    monkeypatch.setenv("REPLAYPROXY_STORE", str(tmp_path / "other"))
    return tmp_path / "nightly.replay"


def test_an_archive_goes_into_another_store_and_shows_the_same(call: Call, archive: Path, recorded: Path) -> None:
    done = call("import", str(archive), "--json")
    assert done.code == 0
    assert done.json == {
        "format": "archive", "runs": ["nightly"], "episodes": 3, "exchanges": 6, "snapshots": 3,
        "notes": [{"what": "runs with their secrets as they were sent", "count": 1}], "not_imported": [],
    }  # fmt: skip
    assert verify(archive.parent / "other").damaged == []
    for words in (["ls", "nightly"], ["show", "nightly/a"], ["show", "nightly/a#2"], ["show", "nightly/a/s1"]):
        here, there = call(*words, "--json"), call(*words, "--json", "--store", str(recorded))
        assert (here.code, here.json) == (0, there.json)
    again = call("import", str(archive))
    assert (again.code, again.out) == (2, b"")
    assert "a run named 'nightly' exists already -> --run NAME, or --append" in again.err
    assert call("import", str(archive), "--run", "second").code == 0


def test_an_archive_is_read_in_place_without_any_store(call: Call, archive: Path, recorded: Path) -> None:
    store = ("--store", str(recorded))
    for inside in (archive.name, f"{archive.name}/nightly"):
        assert call("ls", inside, "--json").json == call("ls", "nightly", "--json", *store).json
        for rest in ("/a", "/a#2", "/a/s1"):
            here, there = call("show", inside + rest, "--json"), call("show", f"nightly{rest}", "--json", *store)
            assert (here.code, here.json) == (0, there.json)
    assert call("ls", archive.name).text.endswith("next: replayproxy show nightly.replay/EPISODE\n")
    done = call("check", archive.name, "--json")
    assert "was not saved: nightly.replay is an archive, which is only read" in done.err
    told = {key: value for key, value in done.json.items() if key != "run"}
    assert told == {k: v for k, v in call("check", "nightly", "--json", *store).json.items() if k != "run"}
    assert call("diff", f"{archive.name}/a", f"{archive.name}/nightly/a", "--json").json["verdict"] == "same"
    assert not (archive.parent / "other").exists()


@pytest.mark.parametrize("form", ["archive", "har", "flow"])
def test_an_episode_that_is_incomplete_is_named_at_export(
    call: Call, recorded: Path, tmp_path: Path, form: str
) -> None:
    done = call("export", "nightly/b", "--format", form, "--out", str(tmp_path / "x"), "--json")
    assert done.json["incomplete"] == ["nightly/b"]
    assert "note: nightly/b is incomplete" in done.err
    whole = call("export", "nightly/a", "--format", form, "--out", str(tmp_path / "y"), "--json")
    assert (whole.json["incomplete"], "incomplete" in whole.err) == ([], False)


def test_several_runs_in_one_archive_are_told_apart(call: Call, recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.replay"
    assert call("export", "nightly", "older", "--format", "archive").code == 2  # which name would it have?
    assert call("export", "nightly/a", "older", "--format", "archive", "--out", str(path)).code == 0
    assert [one["run"] for one in call("ls", str(path), "--json").json["runs"]] == ["older", "nightly"]
    assert call("show", f"{path}/nightly/a", "--json").json["episode"] == "a"
    wrong = call("show", f"{path}/a")
    assert (wrong.code, "the archive holds 2 runs (older, nightly) -> FILE.replay/RUN" in wrong.err) == (2, True)
    assert call("import", str(path), "--run", "x", "--store", str(tmp_path / "n")).code == 2
    assert call("import", str(path), "--store", str(tmp_path / "n")).code == 0


def test_what_an_archive_leaves_out_is_said(call: Call, recorded: Path, tmp_path: Path) -> None:
    done = call("export", "nightly/a", "--format", "archive", "--json", "--out", str(tmp_path / "a.replay"))
    assert done.json["not_carried"] == [{"what": "saved checks (they speak of whole runs)", "count": 1}]
    assert "not carried: 1 x saved checks" in done.err
    assert "recorded with its secrets" in done.err


@pytest.mark.parametrize("form", ["har", "flow"])
def test_what_a_format_cannot_carry_is_listed_with_counts(
    call: Call, recorded: Path, tmp_path: Path, form: str
) -> None:
    done = call("export", "nightly", "--format", form, "--json", "--out", str(tmp_path / "out"))
    assert (done.code, done.json["exchanges"], done.json["episodes"]) == (0, 5, 2)
    told = {one["what"]: one["count"] for one in done.json["not_carried"]}
    assert told["snapshots"] == 3
    assert told["requests without an episode"] == 1
    assert told["saved checks"] == 1
    assert next(count for what, count in told.items() if what.startswith("lanes")) == 2
    assert not any(what.startswith(("trailers", "1xx")) for what in told), "only what really occurred"
    for what, count in told.items():
        assert f"not carried: {count} x {what}" in done.err


def test_no_file_is_replaced_and_none_left_half(call: Call, archive: Path, recorded: Path) -> None:
    before = archive.read_bytes()
    done = call("export", "nightly", "--format", "archive", "--out", str(archive), "--store", str(recorded))
    assert (done.code, archive.read_bytes()) == (2, before)
    assert "exists already" in done.err
    with open_store(recorded) as store, store.env.writing() as txn:
        blobs = store.env.dbs["blobs"]
        for address in [bytes(key) for key, _ in txn.cursor(blobs)]:
            txn.delete(address, db=blobs)
    new = archive.parent / "new" / "x.replay"
    assert call("export", "nightly", "--format", "archive", "--out", str(new), "--store", str(recorded)).code == 2
    new.parent.mkdir()
    assert call("export", "nightly", "--format", "archive", "--out", str(new), "--store", str(recorded)).code == 4
    assert list(new.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", 2), (b"\x89PNG\r\n\x1a\n" + bytes(100), 2), (b"[" * 200_000, 2), (b"replayproxy arch", 4), (b"{}", 2)],
)
def test_a_foreign_file_is_refused_and_nothing_made(call: Call, tmp_path: Path, content: bytes, code: int) -> None:
    path, store = tmp_path / "x.replay", tmp_path / "none"
    path.write_bytes(content)
    done = call("import", str(path), "--store", str(store))
    assert (done.code, done.out, len(done.err.splitlines())) == (code, b"", 1)
    assert not store.exists()
    assert call("ls", str(path)).code == code


def test_a_missing_file_is_wrong_usage(call: Call, tmp_path: Path) -> None:
    for words in (["import", "none.replay"], ["ls", "none.replay"], ["import", str(tmp_path)]):
        assert call(*words).code == 2


def test_an_archive_goes_through_pipes(archive: Path, recorded: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "replayproxy"]
    given = subprocess.run(
        [*command, "export", "nightly", "--format", "archive", "--out", "-", "--store", recorded],
        capture_output=True, check=True,
    )  # fmt: skip
    assert given.stdout == archive.read_bytes()
    assert b"6 exchanges of 3 episodes" in given.stderr
    taken = subprocess.run(
        [*command, "import", "-", "--store", tmp_path / "piped"], input=given.stdout, capture_output=True, check=True
    )
    assert b"imported nightly (archive): 3 episodes, 6 exchanges, 3 snapshots" in taken.stdout


def test_what_import_proposes_names_the_store_that_was_given(call: Call, recorded: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "a.replay", tmp_path / "other"
    assert call("export", "nightly/a", "--format", "archive", "--out", str(file)).code == 0
    told = call("import", str(file), "--store", str(other))
    assert told.text.splitlines()[-1] == f"next: replayproxy ls --store {other} nightly"


def test_a_run_and_an_episode_are_not_compared_and_each_is_named_for_what_it_is(call: Call, recorded: Path) -> None:
    for words in (("nightly", "nightly/a"), ("nightly/a", "nightly")):
        told = call("diff", *words)
        assert told.code == 2
        assert "nightly is a run and nightly/a an episode" in told.err
