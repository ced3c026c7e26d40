"""What a test needs of its machine. Where that is not there the test is skipped; under CI it fails, so that nothing
that CI is to show is left out unseen."""

from __future__ import annotations

import importlib
import os
import shutil
from typing import Any, NoReturn

import pytest


def absent(what: str) -> NoReturn:
    """Ends the test: something that it needs is not here."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def program(*names: str) -> str:
    """The path of the first of these programs that is there."""
    found = next(filter(None, map(shutil.which, names)), None)
    return found or absent(f"{' or '.join(names)} is not there")


def module(name: str) -> Any:
    """An importable library that is no dependency but of an extra."""
    try:
        return importlib.import_module(name)
    except ImportError:
        absent(f"{name} is not installed")
