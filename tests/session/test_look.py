"""Several stores at once: which run is the latest where they come from several machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.cli import main
from replayproxy.errors import WrongUsage
from replayproxy.session.look import looking
from replayproxy.storage import open_store
from replayproxy.testing import run

SECOND = 1_000_000_000


def made(path: Path, node: str, name: str, at: float, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPLAYPROXY_NODE", node)
    with open_store(path, create=True) as store:
        writer = store.writer()
        writer.open_run(run(name, opened_wall=round(at * SECOND)))
        writer.close()
    return path


def test_the_latest_of_two_machines_must_be_later_by_more_than_their_clocks_may_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = made(tmp_path / "a", "n1", "early", 100.0, monkeypatch)
    b = made(tmp_path / "b", "n2", "late", 100.5, monkeypatch)
    with looking((a, b), skew_ns=SECOND // 10) as stores:
        assert stores.find("latest").resolved.run.name == "late"
    with looking((a, b)) as stores, pytest.raises(WrongUsage, match=r"late or early: .* 0.500 s apart"):
        stores.find("latest")
    c = made(tmp_path / "c", "n1", "last", 100.6, monkeypatch)
    with looking((a, c)) as stores:
        assert stores.find("latest").resolved.run.name == "last", "one machine's clock is one"
    with looking((a, b, c)) as stores, pytest.raises(WrongUsage, match="last or late"):
        stores.find("latest")


def test_runs_of_several_stores_are_in_one_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = made(tmp_path / "a", "n1", "second", 2, monkeypatch)
    made(a, "n1", "fourth", 4, monkeypatch)
    b = made(tmp_path / "b", "n2", "first", 1, monkeypatch)
    made(b, "n2", "third", 3, monkeypatch)
    with looking((a, b)) as stores:
        assert [one.name for _, one in stores.runs()] == ["first", "second", "third", "fourth"]


@pytest.mark.parametrize(("skew", "code"), [("100ms", 0), ("2s", 2), ("soon", 2), (None, 2)])
def test_skew_says_by_how_much_clocks_may_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew: str | None, code: int
) -> None:
    a = made(tmp_path / "a", "n1", "early", 100.0, monkeypatch)
    b = made(tmp_path / "b", "n2", "late", 100.5, monkeypatch)
    option = [] if skew is None else ["--skew", skew]
    assert main.run(["show", "latest", "--store", str(a), "--store", str(b), *option]) == code


def test_two_names_of_one_directory_are_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = made(tmp_path / "a", "n1", "only", 1, monkeypatch)
    (tmp_path / "link").symlink_to(a)
    with looking((a, a / ".." / "a", tmp_path / "link")) as stores:
        assert [one.name for _, one in stores.runs()] == ["only"]
        assert stores.find("only").resolved.run.name == "only"
