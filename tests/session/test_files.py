"""Files that the product writes: whole or not at all, and nothing but a file is ever replaced."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from replayproxy.errors import WrongUsage
from replayproxy.session.files import replaceable, replaced, write_whole


def test_a_link_stays_one_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    replaced(tmp_path / "link", b"new")
    write_whole(tmp_path / "link", "newer")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "newer"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_a_link_that_leads_nowhere_yet_gets_its_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    replaced(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path, through_link: bool, whole: bool) -> None:
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if through_link:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    came: list[bytes] = []
    reader = Thread(target=lambda: came.append(pipe.read_bytes()))
    reader.start()
    if whole:
        write_whole(path, "told")
    else:
        replaced(path, b"told")
    reader.join()
    assert came == [b"told"]
    assert pipe.is_fifo()


def test_what_no_file_can_be_made_of_is_refused_before_there_is_anything_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong = [
        tmp_path,
        Path(),
        tmp_path / "no" / "x",
        tmp_path / "file" / "x",
        tmp_path / ("x" * 300),
        tmp_path / "a\0b",
    ]
    for path in wrong:
        with pytest.raises(WrongUsage, match="cannot be written"):
            replaceable(path)
        with pytest.raises(WrongUsage, match="cannot be written"):
            replaced(path, b"")


def test_a_name_as_long_as_it_may_be_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    replaced(path, b"1")
    write_whole(path, "2")
    assert path.read_text() == "2"
