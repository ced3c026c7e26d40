from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.limits import Limits
from replayproxy.errors import WrongUsage
from replayproxy.session.config import Config
from replayproxy.session.record_options import RecordOptions, parse, writable_path

URL = "http://127.0.0.1:9000"
FLAGS: dict[str, Any] = {
    "env": (f"crm={URL}",), "run": None, "append": False, "episode": None, "meta": (), "idle": None,
    "undeclared": None, "snapshot": (), "snapshot_when": None, "snapshot_mode": None, "reset": (), "url_style": None,
    "workers": None, "listen": None, "control": None, "advertise": (), "allow_upstream": (), "ready_file": None,
    "log_every": None, "upstream_timeout": None, "forward": None, "pass": (),
}  # fmt: skip


def options(
    config: Config | None = None, environ: dict[str, str] | None = None, has_command: bool = True, **flags: Any
) -> RecordOptions:
    return parse(
        {**FLAGS, **flags}, config or Config(), store=Path("s"), environ=environ or {}, wall=1_700_000_000 * 10**9,
        pick={"run": "k3f9", "token": "minted"}, has_command=has_command,
    )  # fmt: skip


def test_the_defaults_are_those_of_the_interface() -> None:
    made = options()
    assert (made.plan.when, made.plan.mode, made.plan.limit) == (("start", "write", "end"), "hold", 0.25)
    assert (made.url_style, made.idle, made.undeclared, made.log_every) == ("path", 600.0, None, 60.0)
    assert (made.control_host, made.control_port, made.token) == ("127.0.0.1", 0, None)


def test_only_connecting_is_limited_unless_a_limit_is_set_and_0_takes_it_away() -> None:
    assert options().limits == Limits(connect=30.0, answer=None, idle=None)
    made = options(Config(options={"upstream-idle": "2m"}), upstream_connect="0s", upstream_timeout="500ms")
    assert made.limits == Limits(connect=None, answer=0.5, idle=120.0)


def test_a_run_without_a_name_is_named_by_date_time_and_letters() -> None:
    date, time, letters = options().run.split("-")
    assert (len(date), len(time), letters) == (8, 6, "k3f9")


def test_flags_beat_the_file_and_the_file_beats_the_default() -> None:
    config = Config(
        options={"idle": "5m", "run": "file", "url-style": "port", "control": 9001},
        snapshot={"crm": "http:http://127.0.0.1:1/s"}, reset={"crm": f"POST {URL}/r", "other": "POST http://x/r"},
        meta={"step": 1, "who": "file"},
    )  # fmt: skip
    made = options(config, run="flag", meta=("who=flag",))
    assert (made.run, made.idle, made.url_style, made.control_port) == ("flag", 300.0, "port", 9001)
    assert made.meta == {"step": 1, "who": "flag"}
    assert [one.name for one in made.snapshots] == ["crm"]
    assert [one.env for one in made.resets] == ["crm"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"env": ()}, "record needs an environment"),
        ({"run": "a/b"}, "it contains '/' -> --run a-b"),
        ({"run": "latest"}, "kept for addresses -> --run run-latest"),
        ({"episode": "a b"}, "white space -> --episode a-b"),
        ({"episode": "unattributed"}, "is reserved"),
        ({"undeclared": "maybe"}, "none of accept, refuse"),
        ({"url_style": "query"}, "none of path, port"),
        ({"workers": 65}, "a number from 1 to 64"),
        ({"workers": 0}, "a number from 1 to 64"),
        ({"forward": "x"}, "--forward: 'x' is no"),
        ({"pass": ("api.example",)}, "--pass is for the forward proxy"),
        ({"forward": "0", "pass": ("a*b",)}, "a star stands for whole names"),
        ({"snapshot": ("crm=nonsense:x",)}, "there is no snapshot kind"),
        ({"snapshot": ("crm=http:http://127.0.0.1/a", "crm=http:http://127.0.0.1/b")}, "given twice"),
        ({"reset": ("cal=POST http://x/r",)}, "no environment of that name"),
        ({"idle": "soon"}, "--idle: 'soon' is no time"),
        ({"log_every": "x"}, "--log-every"),
        ({"upstream_timeout": "x"}, "--upstream-timeout"),
        ({"upstream_connect": "soon"}, "--upstream-connect"),
        ({"upstream_idle": "-1"}, "--upstream-idle"),
        ({"control": "x"}, "--control: 'x' is no [HOST:]PORT"),
        ({"ready_file": "/nowhere/x.json"}, "there is no directory /nowhere -> make it first"),
        ({"listen": "127.0.0.9:x"}, "--listen '127.0.0.9:x' is no host -> --listen HOST; a port goes into --env"),
        ({"listen": "127.0.0.9:8100"}, "is no host"),
        ({"listen": "8101"}, "--listen '8101' is no host -> --listen HOST; a port goes into --env NAME=URL,listen="),
        ({"listen": "1.5"}, "--listen '1.5' is no host"),
        ({"listen": "\x00"}, r"--listen '\x00' is no host"),
        ({"listen": "999.1.1.1"}, "is no host"),
        ({"control": "..:1"}, "--control: '..' is no host"),
        ({"reset": ("crm=POST http://[::1/r",)}, "is no METHOD URL [BODY]"),
        ({"reset": ("crm=POST http://../r",)}, "is no METHOD URL [BODY]"),
        ({"meta": ("foo",)}, "--meta 'foo': it takes K=V -> --meta step=400"),
        ({"ready_file": "/tmp"}, "it is a directory"),
        ({"allow_upstream": ("10.0.0.0/99",)}, "--allow-upstream"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(flags: dict[str, Any], says: str) -> None:
    with pytest.raises(WrongUsage) as wrong:
        options(**flags)
    assert says in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("given", "host"), [(None, None), ("0.0.0.0", "0.0.0.0"), ("::1", "::1"), ("[::1]", "::1"), ("here", "here")]
)
def test_listen_takes_a_name_or_an_address(given: str | None, host: str | None) -> None:
    assert options(listen=given).listen == host


def test_the_forward_proxy_comes_from_flags_or_file_and_needs_no_environment() -> None:
    made = options(Config(options={"forward": 8080, "pass": ["api.example", "*.cdn.example:443"]}), env=())
    assert made.forward == ("127.0.0.1", 8080)
    assert made.passes.has("API.example", 443)
    assert made.passes.has("a.cdn.example", 443)
    assert not made.passes.has("a.cdn.example", 80)
    assert options(forward="[::1]:0", forward_auth=True).forward == ("::1", 0)
    assert options(forward="[::1]:0", forward_auth=True).forward_auth is True


def test_beyond_loopback_a_token_is_demanded_and_somebody_must_be_told_of_it() -> None:
    assert options(control="0.0.0.0:0").token == "minted"
    assert options(control="0.0.0.0:0", has_command=False, ready_file="ready.json").token == "minted"
    assert options(environ={"REPLAYPROXY_TOKEN": "mine"}).token == "mine"
    with pytest.raises(WrongUsage, match="nobody would be told of one"):
        options(control="0.0.0.0:0", has_command=False)
    with pytest.raises(WrongUsage, match="printable ASCII"):
        options(environ={"REPLAYPROXY_TOKEN": "a b"})


def test_a_path_in_this_directory_is_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert writable_path(Path("new.json"), "--summary") == Path("new.json")
