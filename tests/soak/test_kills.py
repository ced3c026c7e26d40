from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.storage.verify import verify
from tests.soak.kills import rounds, stopped
from tests.soak.kit import size

pytestmark = pytest.mark.timeout(size(3600, 300))


def test_what_was_acknowledged_or_ended_100_ms_ago_outlives_a_kill(tmp_path: Path) -> None:
    """Ten rounds; `make soak` has 100."""
    assert rounds(tmp_path, size(100, 10)) == []


def test_a_writer_that_is_stopped_behind_its_write_hinders_no_reader_and_loses_nothing(
    tmp_path: Path,
) -> None:
    assert stopped(tmp_path / "s") == []
    assert verify(tmp_path / "s").damaged == []
