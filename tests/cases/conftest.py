"""TLS files and an authority, made once for all tests over HTTP/2."""

from __future__ import annotations

import pytest

from tests.cases.h2lab import Desk
from tests.session.tls_server import make_tls_files


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("desk")
    return Desk(folder, make_tls_files(folder / "tls"))
