"""The store's key, and what a run says of its secrets."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from replayproxy.core.redact import Redactor
from replayproxy.core.redact_rules import SecretRule
from replayproxy.core.values import Run
from replayproxy.errors import Exit, StoreTrouble, WrongUsage
from replayproxy.session import secrecy
from replayproxy.session.config import discover

RUN = Run(key=1, name="r", opened_wall=1)
RULE = SecretRule.of_table({"name": "t", "header": "X-Tenant"})


def wired(redactor: Redactor) -> Run:
    return replace(RUN, config={"secrets": secrecy.wired(redactor)})


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    first = secrecy.for_recording(tmp_path)
    path = tmp_path / "secret.key"
    assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_size) == (0o600, 32)
    assert secrecy.for_recording(tmp_path).token(b"x") == first.token(b"x")
    assert secrecy.load(tmp_path, wired(first)).key_id == first.key_id
    assert sorted(one.name for one in tmp_path.iterdir()) == ["secret.key"]


def test_a_key_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    first, path = secrecy.for_recording(tmp_path), tmp_path / "secret.key"
    path.chmod(0o644)
    assert secrecy.load(tmp_path).key_id == first.key_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_with_the_secrets_kept_no_key_is_made(tmp_path: Path) -> None:
    keeper = secrecy.for_recording(tmp_path, keep=True)
    assert keeper.keeps
    assert list(tmp_path.iterdir()) == []
    assert secrecy.load(tmp_path, wired(keeper)).keeps


def test_a_run_with_its_secrets_in_it_says_so_and_why(tmp_path: Path) -> None:
    assert secrecy.holding(wired(secrecy.for_recording(tmp_path))) == []
    assert "with --keep-secrets" in secrecy.holding(wired(secrecy.for_recording(tmp_path, keep=True)))[0]
    assert "by a version without redaction" in secrecy.holding(RUN)[0]
    assert secrecy.load(tmp_path, RUN).keeps, "it is matched as it was recorded"


def test_a_key_of_another_length_or_unreadable_is_trouble_with_the_store(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    path.write_bytes(b"short")
    with pytest.raises(StoreTrouble, match="5 bytes") as trouble:
        secrecy.for_recording(tmp_path)
    assert trouble.value.exit == Exit.STORE
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreTrouble, match="cannot be read"):
        secrecy.load(tmp_path)
    assert secrecy.shown(tmp_path).text("http://u:pw@h").startswith("http://u:rp-secret-")


def test_of_two_recorders_at_once_one_makes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Redactor] = []
    real = os.fsync

    def other_first(handle: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        made.append(secrecy.for_recording(tmp_path))

    monkeypatch.setattr(os, "fsync", other_first)
    assert secrecy.for_recording(tmp_path).key_id == made[0].key_id


def test_a_run_of_before_kept_its_secrets_and_one_from_elsewhere_has_another_key(tmp_path: Path) -> None:
    assert secrecy.load(tmp_path, RUN).keeps
    here, there = secrecy.for_recording(tmp_path), Redactor(b"x" * 32)
    assert secrecy.same_key(here, wired(here))
    assert not secrecy.same_key(here, wired(there))
    assert secrecy.same_key(Redactor(None), wired(Redactor(None)))


def test_the_rules_of_a_run_apply_in_its_replay(tmp_path: Path) -> None:
    recorder = secrecy.for_recording(tmp_path, rules=(RULE,))
    assert secrecy.load(tmp_path, wired(recorder)).rules == (RULE,)


def test_a_run_is_not_appended_to_another_way(tmp_path: Path) -> None:
    plain, keeper = secrecy.for_recording(tmp_path), Redactor(None)
    secrecy.must_agree(wired(plain), plain)
    with pytest.raises(WrongUsage, match="without the secrets"):
        secrecy.must_agree(wired(plain), keeper)
    with pytest.raises(WrongUsage, match="with the secrets in it"):
        secrecy.must_agree(wired(keeper), plain)
    with pytest.raises(WrongUsage, match=r"\[\[secret\]\] rules"):
        secrecy.must_agree(wired(plain), secrecy.for_recording(tmp_path, rules=(RULE,)))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('header = "X"', "1: it has no name"),
        ('name = "n"', "names 0 places"),
        ('name = "n"\nheader = "X"\nquery = "y"', "names 2 places"),
        ('name = "n"\nheader = 5', "header must be a text"),
        ('name = "n"\nheadr = "X"', "unknown key 'headr'"),
        ('name = "n"\npointer = "a/b"', "does not begin with /"),
        ('name = "n"\npattern = "("', "is no regular expression"),
        ('name = "n"\npattern = "a*"', "fits the empty text"),
        ('name = "n"\npattern = "(a+)+b"', "repeats a repetition"),
        ('name = "n"\npattern = "(a|a)*b"', "repeats a repetition"),
        ('name = "n"\nheader = "X"\n[[secret]]\nname = "n"\nheader = "Y"', "two [[secret]] rules are named n"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_in_one_line(tmp_path: Path, table: str, said: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f"[[secret]]\n{table}\n")
    with pytest.raises(WrongUsage) as refused:
        discover(path, tmp_path, {})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_rules_come_from_the_config(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('keep-secrets = true\n[[secret]]\nname = "t"\nheader = "X-Tenant"\n')
    found = discover(path, tmp_path, {})
    assert (found.secrets, found.options["keep-secrets"]) == ((RULE,), True)
