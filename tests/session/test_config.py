from __future__ import annotations

import os
from pathlib import Path

import pytest

from replayproxy.errors import WrongUsage
from replayproxy.session.config import Config, discover


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_without_a_file_the_config_is_empty(tmp_path: Path) -> None:
    assert discover(None, tmp_path, {}) == Config()


def test_the_nearest_source_named_wins(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[tool.replayproxy]\nrun = "pyproject"\n')
    assert discover(None, tmp_path, {}).options["run"] == "pyproject"
    write(tmp_path / "replayproxy.toml", 'run = "own"\n')
    assert discover(None, tmp_path, {}).options["run"] == "own"
    write(tmp_path / "by-variable.toml", 'run = "variable"\n')
    environ = {"REPLAYPROXY_CONFIG": "by-variable.toml"}
    assert discover(None, tmp_path, environ).options["run"] == "variable"
    write(tmp_path / "by-flag.toml", 'run = "flag"\n')
    found = discover(Path("by-flag.toml"), tmp_path, environ)
    assert found.options["run"] == "flag"
    assert found.path == tmp_path / "by-flag.toml"


def test_nothing_is_searched_upward(tmp_path: Path) -> None:
    write(tmp_path / "replayproxy.toml", 'run = "above"\n')
    below = tmp_path / "below"
    below.mkdir()
    assert discover(None, below, {}).path is None


def test_a_pyproject_without_our_table_is_no_config(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[project]\nname = "x"\n')
    assert discover(None, tmp_path, {}) == Config()


def test_tables_and_options_are_read(tmp_path: Path) -> None:
    write(
        tmp_path / "replayproxy.toml",
        """
        idle = "5m"
        allow-upstream = ["10.0.0.0/8"]
        control = 9001
        [env.crm]
        url = "http://127.0.0.1:9000"
        reads = ["POST /search"]
        eventual = {"POST /jobs" = "2s", "PATCH /deals/*" = "250ms"}
        [snapshot]
        crm = "sqlite:/tmp/x"
        [reset]
        crm = "POST http://127.0.0.1:9000/reset"
        [meta]
        step = 400
        [[rule]]
        name = "etag"
        """,
    )
    found = discover(None, tmp_path, {})
    assert found.options == {"idle": "5m", "allow-upstream": ["10.0.0.0/8"], "control": "9001"}
    assert found.env["crm"]["url"] == "http://127.0.0.1:9000"
    assert found.reads("crm") == ("POST /search",)
    assert found.reads("other") == ()
    assert found.eventual("crm") == {"POST /jobs": 2.0, "PATCH /deals/*": 0.25}
    assert found.eventual("other") == {}
    assert (found.snapshot["crm"], found.meta["step"]) == ("sqlite:/tmp/x", 400)
    assert found.rules == ({"name": "etag"},)


def test_a_flag_beats_the_file_and_the_file_beats_the_default() -> None:
    config = Config(options={"idle": "5m", "store": "a", "append": True})
    assert config.value("idle", "1m", "10m") == "1m"
    assert config.value("idle", None, "10m") == "5m"
    assert config.value("run", None, "x") == "x"
    assert config.value("append", False) is True
    assert config.values("store", ()) == ("a",)
    assert config.values("store", ("b", "c")) == ("b", "c")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('idel = "5m"', "unknown key 'idel' -> did you mean 'idle'?"),
        ("zzz = 1", "unknown key 'zzz' -> keys are the long option names"),
        ("idle = [1]", "idle must be a text, not [1]"),
        ('append = "yes"', "append must be true or false, not 'yes'"),
        ("store = [1]", "store must be a text or a list of texts"),
        ('repeat = "x"', "repeat must be a number"),
        ("env = 1", "env must be a table"),
        ('[env."1a"]\nurl = "x"', "an environment name is"),
        ("[env]\ncrm = 1", "env.crm must be a table"),
        ('[env.crm]\neventual = {"/jobs" = "2s"}', "eventual must be a table of times"),
        ('[env.crm]\nread = ["x"]', "[env.crm]: unknown key 'read' -> did you mean 'reads'?"),
        ("[env.crm]\ninsecure = 1", "insecure must be true or false"),
        ("[snapshot]\ncrm = 1", "[snapshot] crm must be a text"),
        ("rule = 1", "rule must be a list of tables"),
        ("listen = nan", "listen must be a text, not nan"),
        ("idle = inf", "idle must be a text, not inf"),
        ("max-failure-rate = nan", "max-failure-rate must be a number, not nan"),
        ("meta.k = 1979-05-27", "[meta] k: 1979-05-27 is nothing that JSON can say -> write it as a text"),
        ("meta.k = [{at = 07:32:00}]", "[meta] k: [{'at': datetime.time(7, 32)}] is nothing that JSON can say"),
        ("meta.k = inf", "[meta] k: inf is nothing"),
        ("= 1", "cannot be read"),
        ("a = " + "[" * 50_000, "cannot be read"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    write(tmp_path / "replayproxy.toml", text)
    with pytest.raises(WrongUsage) as wrong:
        discover(None, tmp_path, {})
    assert says in str(wrong.value)
    assert "replayproxy.toml" in str(wrong.value)


def test_a_number_where_a_text_is_meant_is_that_text(tmp_path: Path) -> None:
    """So that nothing that takes the text has to know that it may be a number."""
    write(
        tmp_path / "replayproxy.toml",
        "control = 9001\nready-file = 7\nsummary = 1.5\nrepeat = 3\n"
        "[env.crm]\nlisten = 8101\nca = 5\ninsecure = true\n",
    )
    found = discover(None, tmp_path, {})
    assert found.options == {"control": "9001", "ready-file": "7", "summary": "1.5", "repeat": 3}
    assert found.env["crm"] == {"listen": "8101", "ca": "5", "insecure": True}


def test_a_named_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="is not there"):
        discover(Path("gone.toml"), tmp_path, {})


def test_what_never_ends_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="/dev/zero is no config: it is over 4 MiB -> --config FILE"):
        discover(Path("/dev/zero"), tmp_path, {})


def test_what_is_no_file_may_be_a_config(tmp_path: Path) -> None:
    """As `--config <(..)` makes one."""
    assert discover(Path("/dev/null"), tmp_path, {}).options == {}
    out, into = os.pipe()
    with os.fdopen(out), os.fdopen(into, "w") as pipe:
        pipe.write('run = "piped"\r\n')
        pipe.close()
        assert discover(Path(f"/dev/fd/{out}"), tmp_path, {}).options == {"run": "piped"}


def test_meta_keeps_what_json_can_say(tmp_path: Path) -> None:
    write(tmp_path / "replayproxy.toml", 'meta = {a = "x", b = 1.5, c = true, d = [1, {e = -1}]}')
    assert discover(None, tmp_path, {}).meta == {"a": "x", "b": 1.5, "c": True, "d": [1, {"e": -1}]}


def test_a_named_pyproject_is_read_by_its_table(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[project]\nname = "x"\n[tool.replayproxy]\nrun = "r"\n')
    assert discover(Path("pyproject.toml"), tmp_path, {}).options == {"run": "r"}


def test_columns_that_name_a_holder_are_declared_by_table_and_column() -> None:
    assert Config(env={"app": {"claims": "desks.steward"}}).claims("app") == ("desks.steward",)
    assert Config().claims("app") == ()
    with pytest.raises(WrongUsage, match="'steward' is no column"):
        Config(env={"app": {"claims": ["steward"]}}).claims("app")
