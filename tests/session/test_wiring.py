from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replayproxy.errors import WrongUsage
from replayproxy.session import wiring
from replayproxy.session.wiring import environments, parse_env, upstream_allowed

URL = "http://127.0.0.1:9000"


def test_an_environment_needs_a_name_and_a_url() -> None:
    spec = parse_env(f"crm={URL}/api/")
    assert (spec.name, spec.upstream, spec.host, spec.port, spec.path) == ("crm", f"{URL}/api", None, 0, "/api")


def test_options_are_split_from_the_right_so_a_url_and_a_path_may_hold_commas(tmp_path: Path) -> None:
    ca = tmp_path / "a,b=c.pem"
    ca.write_text("x")
    spec = parse_env(f"crm=https://h/x,y=1,listen=127.0.0.2:8101,ca={ca},insecure,as=CRM_URL,host=keep")
    assert spec.upstream == "https://h/x,y=1"
    assert (spec.host, spec.port, spec.variable) == ("127.0.0.2", 8101, "CRM_URL")
    assert (spec.ca, spec.insecure, spec.host_header) == (ca, True, "keep")


def test_a_comma_of_the_url_s_path_is_no_option() -> None:
    assert parse_env(f"crm={URL}/a,b/c,d=1").upstream == f"{URL}/a,b/c,d=1"


def test_listen_may_be_a_port_alone_or_an_ipv6_host() -> None:
    assert (parse_env(f"a={URL},listen=8101").host, parse_env(f"a={URL},listen=8101").port) == (None, 8101)
    assert parse_env(f"a={URL},listen=[::1]:8101").host == "::1"


def test_a_dynamic_environment_has_no_upstream_of_its_own() -> None:
    assert (parse_env("crm=dynamic").upstream, parse_env("crm=dynamic,as=X").variable) == ("dynamic", "X")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("crm", "it takes NAME=.."),
        ("=http://h", "it takes NAME=.."),
        (f"1crm={URL}", "an environment name is"),
        (f"c.rm={URL}", "an environment name is"),
        ("crm=127.0.0.1:9000", "is no http:// or https:// URL"),
        ("crm=ftp://h", "is no http:// or https:// URL"),
        ("crm=http://", "is no http:// or https:// URL"),
        ("crm=http://h:99999", "is no URL"),
        ("crm=http://h:0", "is no http:// or https:// URL"),
        ("crm=http://u:p@h", "credentials in the URL"),
        ("crm=http://h/?q=1", "no query or fragment"),
        ("crm=http://h/a b", "white space"),
        ("crm=http://..", "'..' is no host: between its dots a name has 1 to 63 characters -> http://127.0.0.1:9000"),
        (f"crm=http://{'h' * 64}", "is no host"),
        ("crm=http://hcrm=http://h", "'hcrm=http' is no host: '=' is in no host's name"),
        ("crm=http://1.2.3.4.5", "it is no IPv4 address"),
        (f"crm={URL},listen=1.2.3.4.5:1", "'1.2.3.4.5' is no host: it is no IPv4 address"),
        (f"crm={URL},listen=a\x00b:1", r"'\x00' is in no host's name"),
        (f"crm={URL},listen=[::g]:1", "it is no IPv6 address"),
        (f"crm={URL},listen=x", "is no [HOST:]PORT"),
        (f"crm={URL},listen=70000", "is no [HOST:]PORT"),
        (f"crm={URL},listen=:80", "is no [HOST:]PORT"),
        (f"crm={URL},host=other", "host is upstream or keep"),
        (f"crm={URL},as=1X", "is no name of a variable"),
        (f"crm={URL},ca=/nowhere/x.pem", "ca=/nowhere/x.pem is not there"),
        (f"crm={URL},as=A,as=B", "as is given twice"),
        (f"crm={URL},tsl", "'tsl' is no option -> one of listen=, as=, ca=, host=, tls, insecure"),
        (f"crm={URL}/api,insecur,tls", "'insecur' is no option"),
        (f"crm={URL},tls=yes", "'tls=yes' is no option"),
        ("crm=dynamic,tsl", "'tsl' is no option"),
    ],
)
def test_a_bad_environment_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(WrongUsage) as wrong:
        parse_env(text)
    assert says in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    "flags",
    [
        [f"a-b={URL}", f"a_b={URL}"],
        [f"crm={URL}", f"CRM={URL}"],
        [f"a={URL},as=X", f"b={URL},as=X"],
        [f"a={URL},as=REPLAYPROXY_URL_B", f"b={URL}"],
    ],
)
def test_two_environments_that_give_one_variable_are_refused(flags: list[str]) -> None:
    with pytest.raises(WrongUsage, match="both give the variable"):
        environments(flags, {})


def test_an_environment_given_twice_is_refused() -> None:
    with pytest.raises(WrongUsage, match="given twice"):
        environments([f"a={URL}", f"a={URL}"], {})


def test_the_config_gives_environments_and_reads_and_a_flag_beats_it() -> None:
    config: dict[str, dict[str, Any]] = {
        "crm": {"url": "http://config:1", "reads": ["POST /search"], "eventual": {"POST /jobs": "2s"}},
        "cal": {"url": "http://config:2", "listen": 8102, "reads": "POST /find"},
        "only-reads": {"reads": ["POST /x"]},
    }
    crm, cal = environments([f"crm={URL}"], config)
    assert (crm.upstream, crm.reads, crm.eventual) == (URL, ("POST /search",), {"POST /jobs": 2.0})
    assert (cal.upstream, cal.port, cal.reads) == ("http://config:2", 8102, ("POST /find",))


def test_a_reset_is_a_method_a_url_and_perhaps_a_body() -> None:
    envs = environments([f"crm={URL}"], {})
    plain = wiring.parse_reset("crm", f"POST {URL}/admin/reset?all=1", envs)
    assert (plain.method, plain.target, plain.body) == ("POST", b"/admin/reset?all=1", "")
    assert wiring.parse_reset("crm", f'PUT {URL} {{"a": 1}}', envs).body == '{"a": 1}'
    assert wiring.parse_reset("crm", f"PUT {URL}", envs).target == b"/"
    for bad in (f"post {URL}", "POST", "POST /reset", URL):
        with pytest.raises(WrongUsage, match="is no METHOD URL"):
            wiring.parse_reset("crm", bad, envs)
    with pytest.raises(WrongUsage, match="no environment of that name"):
        wiring.parse_reset("cal", f"POST {URL}", envs)


def test_when_and_mode_are_words() -> None:
    assert wiring.parse_when("end,start") == ("start", "end")
    assert wiring.parse_when("never") == ()
    assert wiring.parse_mode("hold") == ("hold", 0.25)
    assert wiring.parse_mode("hold:2s") == ("hold", 2.0)
    assert wiring.parse_mode("free") == ("free", 0.0)
    for call, text in (
        (wiring.parse_when, "start,never"), (wiring.parse_when, ""), (wiring.parse_mode, "free:1s"),
        (wiring.parse_mode, "hold:"), (wiring.parse_mode, "wait"),
    ):  # fmt: skip
        with pytest.raises(WrongUsage):
            call(text)


def test_times_have_units() -> None:
    assert [wiring.seconds(text, "x") for text in ("250ms", "60s", "10m", "1h", "2", "0.5s")] == [
        0.25,
        60,
        600,
        3600,
        2,
        0.5,
    ]
    with pytest.raises(WrongUsage, match="is no time"):
        wiring.seconds("soon", "--idle")


def test_meta_keeps_integers_as_numbers_and_all_else_as_text() -> None:
    assert wiring.parse_meta(["step=380", "commit=007", "x=a=b", "empty="]) == {
        "step": 380, "commit": "007", "x": "a=b", "empty": "",
    }  # fmt: skip
    with pytest.raises(WrongUsage, match="K=V"):
        wiring.parse_meta(["step"])


@pytest.mark.parametrize(
    ("host", "entries", "allowed"),
    [
        ("127.0.0.1", [], True), ("127.9.9.9", [], True), ("::1", [], True), ("localhost", [], True),
        ("10.0.0.1", [], False), ("evil.example", [], False), ("10.0.0.1", ["10.0.0.0/8"], True),
        ("11.0.0.1", ["10.0.0.0/8"], False), ("Pod.example", ["pod.example"], True),
        ("pod.example", ["10.0.0.0/8"], False),
        ("localhost.evil.example", [], False), ("0.0.0.0", [], False),
    ],
)  # fmt: skip
def test_only_loopback_and_listed_hosts_are_allowed_upstreams(host: str, entries: list[str], allowed: bool) -> None:
    assert upstream_allowed(host, wiring.check_allowed(entries)) is allowed


def test_an_allowance_that_is_none_is_refused() -> None:
    for bad in ("10.0.0.0/99", "", "a b"):
        with pytest.raises(WrongUsage, match="--allow-upstream"):
            wiring.check_allowed([bad])


def test_advertise_is_a_host_for_all_or_a_url_for_one() -> None:
    envs = environments([f"crm={URL}"], {})
    assert wiring.parse_advertise(["host.example", "crm=http://x:1/"], envs) == ("host.example", {"crm": "http://x:1"})
    for bad in (["a", "b"], ["http://x"], ["cal=http://x"], [""]):
        with pytest.raises(WrongUsage, match="--advertise"):
            wiring.parse_advertise(bad, envs)
