"""Regular expressions that would hold up a recording are found before it begins."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from replayproxy.errors import Exit, WrongUsage
from replayproxy.session.config import discover
from replayproxy.session.pattern_probe import why_too_slow


@pytest.mark.parametrize("pattern", [r"AKIA[0-9A-Z]{16}", r"[A-Za-z0-9]+@corp", r"key=(\w+);id=\d+", "é+x"])
def test_an_ordinary_pattern_may_be_used(pattern: str) -> None:
    assert why_too_slow(pattern) == ""


@pytest.mark.parametrize("pattern", [r"\w*\w*\w*\w*=x", r"a?" * 40 + "a" * 40 + "b"])
def test_one_that_takes_too_long_is_refused_in_a_few_seconds(pattern: str) -> None:
    began = time.monotonic()
    assert "4 KiB" in why_too_slow(pattern)
    assert time.monotonic() - began < 15


def test_the_refusal_names_the_rule(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[[secret]]\nname = \"n\"\npattern = '\\w*\\w*\\w*\\w*=x'\n")
    with pytest.raises(WrongUsage, match=r"\[\[secret\]\] n: pattern .* on a text of 4 KiB") as refused:
        discover(path, tmp_path, {})
    assert refused.value.exit == Exit.USAGE
