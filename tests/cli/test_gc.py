from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.storage import gc, open_store, rewriting
from replayproxy.storage.trouble import StoreFull
from tests.cli.conftest import Call


def test_it_says_what_it_deleted_and_how_large_the_store_is_now(call: Call, recorded: Path) -> None:
    assert call("rm", "older").code == 0
    told = call("gc", "--json")
    assert (told.code, told.json["deleted"], told.json["short"]) == (0, {"runs": 1}, None)
    assert told.json["after"] == (recorded / "data.mdb").stat().st_size
    again = call("gc")
    assert again.code == 0
    assert again.text == f"{recorded}: deleted nothing\n{told.json['after']:,} bytes, as before\n"
    assert call("fsck").code == 0


def test_while_somebody_records_it_is_exit_4_and_names_who(call: Call, recorded: Path) -> None:
    with open_store(recorded) as store:
        writer = store.writer()
        told = call("gc")
        writer.close()
    assert told.code == 4
    assert "another recorder (pid " in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("stores", [["missing"], ["a", "b"]])
def test_it_takes_one_store_that_is_there(call: Call, tmp_path: Path, stores: list[str]) -> None:
    assert call("gc", *(part for name in stores for part in ("--store", str(tmp_path / name)))).code == 2


def test_without_room_it_says_what_is_not_done_yet(call: Call, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("rm", "older").code == 0
    monkeypatch.setattr(rewriting.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    monkeypatch.setattr(gc, "retire", _full)
    told = call("gc")
    assert told.code == 4
    said = told.text.splitlines()
    assert said[0].endswith("deleted 1 run")
    assert said[2:4] == [
        "there is no room to do without the dictionaries that were made of it (s cannot be written: no space left)",
        f"the freed space is used by the next recording, but the file stays large: {said[3].split(': ', 1)[1]}",
    ]
    assert said[3].endswith("1,000 are free")
    assert said[4:] == ["text of what was deleted may still be in the file: free space, and gc again"]
    again = call("gc", "--json")
    assert (again.code, again.json["deleted"]) == (4, {})
    assert again.json["short"].startswith(f"{said[2]}; the smaller file of ")


def _full(*_: object) -> None:
    raise StoreFull("s cannot be written: no space left", hint="free space")
