"""The commands of docs/porting.md do what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from replayproxy.storage import open_store
from replayproxy.storage.verify import verify
from replayproxy.testing import episode, exchange, run
from tests.cli.conftest import Call

PAGE = Path(__file__).parents[2] / "docs" / "porting.md"


def test_the_commands_of_the_page_run_one_after_the_other(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REPLAYPROXY_STORE", raising=False)
    with open_store(tmp_path / ".replayproxy", create=True) as store:
        writer = store.writer()
        made = writer.open_run(run("nightly"))
        rollout = writer.open_episode(episode("e1", run_key=made.key, task="t"))
        writer.put_exchange(rollout.key, exchange("POST", sent={"a": 1}, body={"b": 2}))
        writer.seal(rollout).result(5)
        writer.close()
    commands = [
        line for block in re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL) for line in block.splitlines()
    ]
    assert len(commands) >= 13
    for line in commands:
        program, *words = shlex.split(line, comments=False)
        assert program == "replayproxy"
        done = call(*words)
        assert done.code == 0, f"{line}: {done.err}"
    for path in (".replayproxy", "elsewhere"):
        assert verify(tmp_path / path).damaged == []
    names = [one["run"] for one in call("ls", "--json").json["runs"]]
    assert sorted(names) == ["all-of-it", "from-flows", "from-har", "nightly"]
    for name in names[1:]:
        assert call("diff", f"{name}/e1", "nightly/e1", "--json").json["verdict"] == "same"
