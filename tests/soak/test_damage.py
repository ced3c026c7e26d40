from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.damage import KINDS, trials
from tests.soak.kit import size

pytestmark = pytest.mark.timeout(size(3600, 600))


def test_no_damage_serves_what_was_not_recorded_or_loses_it_in_silence(tmp_path: Path) -> None:
    """Two of each kind; `make soak` has 500."""
    assert trials(tmp_path, range(size(500, 2 * len(KINDS)))) == []
