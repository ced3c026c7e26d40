"""From NAME=SPEC to a provider: bundled kinds, a user's file, a third party's package; one line for each mistake."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

import replayproxy
from replayproxy.core.prolly import build
from replayproxy.errors import WrongUsage
from replayproxy.state import StateUnreadable
from replayproxy.state.loader import BUNDLED, Loaded, bundled, load, parse_named

MINE = """
from __future__ import annotations
from dataclasses import dataclass
from replayproxy.state import Reading

OPTIONS = ("table",)

@dataclass
class Mine:
    text: str
    table: str
    atomic: bool = True
    can_restore: bool = False
    scope: str = "episode"

    def capture(self) -> Reading:
        return Reading(rows={self.table: {"1": {"text": self.text}}})

    def close(self) -> None:
        pass

def provider(spec):
    if spec.target == "bad":
        raise ValueError("bad is no argument")
    return Mine(spec.filled(spec.target, str), spec.option("table", "t"))
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return "./mine.py"


def rows(spec: str, **context: str) -> Any:
    return load("crm", spec, context=context).provider.capture().rows


def test_a_name_and_a_spec_are_taken_apart() -> None:
    assert parse_named("crm.cache=http://h/a=b") == ("crm.cache", "http://h/a=b")
    assert load("crm.cache", "dir:/tmp").env == "crm"


@pytest.mark.parametrize("text", ["crm", "crm=", "=x:y", "1crm=x:y", "c/rm=x:y", "crm.=x:y", "c rm=x:y"])
def test_a_bad_name_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage):
        parse_named(text)


def test_a_users_file_is_loaded_by_its_path(mine: str) -> None:
    assert rows(f"{mine}:hello") == {"t": {"1": {"text": "hello"}}}
    assert rows(f"{mine}:a:b,c,table=u") == {"u": {"1": {"text": "a:b,c"}}}
    assert rows(f"{Path('mine.py').absolute()}:x") == {"t": {"1": {"text": "x"}}}
    assert rows(mine) == {"t": {"1": {"text": ""}}}
    assert rows(f"{mine}:{{task}}", task="crm-7") == {"t": {"1": {"text": "crm-7"}}}


def test_a_spec_is_bound_to_an_episode(mine: str) -> None:
    loaded = load("crm", f"{mine}:{{episode}}/{{meta.step}}")
    assert loaded.needs == {"episode", "meta.step"}
    one = loaded.bind({"episode": "e1", "meta.step": "4"})
    assert one.provider.capture().rows == {"t": {"1": {"text": "e1/4"}}}
    with pytest.raises(StateUnreadable, match="is not known for this episode"):
        loaded.bind({"episode": "e1"}).provider.capture()


def test_two_specs_of_one_file_are_two_providers(mine: str) -> None:
    a, b = load("a", f"{mine}:1"), load("b", f"{mine}:2")
    assert type(a.provider) is type(b.provider)
    assert a.provider is a.provider
    assert a != b


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def provider(:", "does not run: SyntaxError"),
        ("import no_such_module_here", "does not run: ModuleNotFoundError"),
        ("x = 1", "has no function provider"),
        ("provider = 1", "has no function provider"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(mine: str, source: str, words: str) -> None:
    Path("other.py").write_text(source)
    with pytest.raises(WrongUsage, match=words) as caught:
        load("crm", "./other.py:x")
    assert "other.py" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_did_not_run_is_run_again_once_it_is_mended(mine: str) -> None:
    Path("other.py").write_text("def provider(:")
    with pytest.raises(WrongUsage):
        load("crm", "./other.py:x")
    Path("other.py").write_text(MINE)
    assert rows("./other.py:mended") == {"t": {"1": {"text": "mended"}}}


def test_an_argument_that_a_file_refuses_is_wrong_usage(mine: str) -> None:
    with pytest.raises(WrongUsage, match="ValueError: bad is no argument"):
        load("crm", f"{mine}:bad")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nonsense", "KIND:TARGET"),
        ("nope:x", "no snapshot kind 'nope'"),
        ("sqlite:", "nothing stands after sqlite:"),
        ("./none.py:x", "there is no file none.py"),
        ("sqlite:/x/{epsiode}.db", "{epsiode} is nothing that is filled in"),
        ("http:http://h/,header=A:env:NOT_SET_HERE", "env:NOT_SET_HERE"),
    ],
)
def test_a_bad_spec_is_one_line_that_names_the_snapshot(spec: str, words: str) -> None:
    with pytest.raises(WrongUsage) as caught:
        load("crm.db", spec)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"snapshot crm.db={spec}: ")
    assert "\n" not in str(caught.value)


def test_a_mistake_is_told_without_the_secret() -> None:
    with pytest.raises(WrongUsage) as caught:
        load("crm", "http:ftp://me:hidden@h/,header=X:hidden")
    assert "hidden" not in str(caught.value)
    assert load("crm", "http:http://me:hidden@h/").spec == "http:http://me:***@h/"


def test_a_third_party_kind_comes_by_its_entry_point(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    points = EntryPoints(
        [EntryPoint("mongo", "mine", "replayproxy.snapshots"), EntryPoint("broken", "no_such", "replayproxy.snapshots")]
    )
    monkeypatch.setattr("replayproxy.state.loader.entry_points", lambda **wanted: points.select(**wanted))
    assert rows("mongo:x,table=u") == {"u": {"1": {"text": "x"}}}
    with pytest.raises(WrongUsage, match="the package that gives broken: does not load"):
        load("crm", "broken:x")


@pytest.mark.parametrize("kind", sorted(BUNDLED))
def test_bundled_kinds_are_files_found_by_path(kind: str) -> None:
    path = bundled("snapshots") / BUNDLED[kind]
    assert path.is_file()
    # mitmproxy puts a script's folder first on sys.path: a name like http.py would hide the real one.
    assert path.stem not in sys.stdlib_module_names
    assert path.stem not in ("http", "redis", "psycopg", "sqlite3", kind)


def test_the_wheels_copy_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "replayproxy"
    (package / "_bundled/snapshots").mkdir(parents=True)
    monkeypatch.setattr(replayproxy, "__file__", str(package / "__init__.py"))
    assert bundled("snapshots") == package / "_bundled/snapshots"
    assert bundled("addons") == tmp_path / "addons"


def test_code_can_give_a_provider_of_its_own(mine: str) -> None:
    loaded = Loaded.of("crm", lambda: load("x", f"{mine}:y").provider)
    assert build(loaded.provider.capture().rows).rows == 1  # type: ignore[arg-type]
