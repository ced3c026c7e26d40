"""Clients are looked for where the agent would find them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from replayproxy.errors import WrongUsage
from replayproxy.session.canary_clients import Client
from replayproxy.session.canary_find import find

LIBRARY = Client(name="library", modules=("aiohttp",), argv=(), ways=())
MISSING = Client(name="missing", modules=("aiohttp", "no_such_module"), argv=(), ways=())
BARE = Client(name="bare", argv=(), ways=())


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


async def test_a_program_is_the_first_of_its_names_on_path_with_the_version_it_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "fetch2", "#!/bin/sh\necho 'fetch2 version 2.10.3 (built on 1.2)'\n")
    executable(tmp_path / "fetch3", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    two = Client(name="two", program=("fetch1", "fetch2"), argv=(), ways=())
    three = Client(name="three", program=("fetch3",), argv=(), ways=())
    none = Client(name="none", program=("fetch4",), argv=(), ways=())
    found = await find([two, three, none], None)
    assert set(found) == {"two", "three"}
    assert (found["two"].program, found["two"].version) == (str(tmp_path / "fetch2"), "2.10.3")
    assert found["three"].version == "?"


async def test_a_library_is_the_agent_s_interpreter_s_and_for_what_it_lacks_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = '{"prefix": "/agent", "path": "", "version": "3.9.1", "modules": {}}'
    agents = executable(tmp_path / "python3", f"#!/bin/sh\necho '{told}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    found = await find([LIBRARY, MISSING, BARE], None)
    assert set(found) == {"library", "bare"}
    assert found["library"].python == sys.executable
    assert (found["bare"].python, found["bare"].version) == (str(agents), "3.9.1")


async def test_an_interpreter_that_is_named_is_the_only_one(tmp_path: Path) -> None:
    told = '{"prefix": "/agent", "path": "", "version": "3.9.1", "modules": {}}'
    agents = executable(tmp_path / "mine", f"#!/bin/sh\necho '{told}'\n")
    found = await find([LIBRARY, BARE], str(agents))
    assert set(found) == {"bare"}
    assert set(await find([LIBRARY, BARE], sys.executable)) == {"library", "bare"}


async def test_an_interpreter_is_called_where_it_says_it_is_and_not_by_a_script_that_leads_there(
    tmp_path: Path,
) -> None:
    shim = executable(tmp_path / "shim", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    assert (await find([BARE], str(shim)))["bare"].program == sys.executable


@pytest.mark.parametrize("says", ["echo no json", "echo []", "echo '{}'", "exit 0"])
async def test_an_interpreter_that_is_none_is_refused(tmp_path: Path, says: str) -> None:
    wrong = executable(tmp_path / "wrong", f"#!/bin/sh\n{says}\n")
    with pytest.raises(WrongUsage, match="no Python that runs"):
        await find([LIBRARY], str(wrong))
