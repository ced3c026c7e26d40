"""The import rules of docs/design.md, "Layers", held against the source."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "core": {"errors", "orjson"},
    "detect": {"core", "errors"},
    "storage": {"core", "errors", "lmdb", "zstandard", "orjson"},
    "state": {"core", "errors"},
    "proxy": {"core", "storage", "state", "errors", "mitmproxy", "certifi", "h2"},
    "serve": {"core", "detect", "storage", "state", "errors", "aiohttp", "multidict", "yarl", "prometheus_client"},
    "drive": {"core", "storage", "state", "errors", "h11"},
    "session": {
        "core",
        "detect",
        "storage",
        "state",
        "proxy",
        "serve",
        "drive",
        "errors",
        "aiohttp",
        "orjson",
        "h2",
        "pyarrow",
    },
    "demo": {"client", "errors", "aiohttp"},
    "cli": {"*", "click", "rich"},
    "client": set(),
    "testing": {"*"},
    "addons": {"session"},
    "snapshots": {"state", "errors", "aiohttp", "psycopg", "redis"},
}
NOT_IN_CORE = {"asyncio", "socket", "os", "pathlib", "time", "random", "threading", "logging"}


def sources() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((ROOT / "replayproxy").rglob("*.py")):
        part = path.relative_to(ROOT / "replayproxy").parts[0].removesuffix(".py")
        if part not in ("__init__", "__main__"):
            found.append((part, path))
    for folder in ("addons", "snapshots"):
        found += [(folder, path) for path in sorted((ROOT / folder).glob("*.py"))]
    return found


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "replayproxy":
                names |= {f"replayproxy.{alias.name}" for alias in node.names}
            else:
                names.add(node.module or "")
    return names


def violations(part: str, path: Path) -> list[str]:
    allowed = LAYERS[part]
    wrong = []
    for name in imports(path):
        top = name.split(".")[0]
        if top == "replayproxy":
            target = name.split(".")[1] if "." in name else ""
            # The package itself (its version) is nobody's layer.
            if target in ("", "__version__", part) or target in allowed or "*" in allowed:
                continue
            wrong.append(name)
        elif top in sys.stdlib_module_names:
            if part == "core" and top in NOT_IN_CORE:
                wrong.append(name)
        elif top not in allowed:
            wrong.append(name)
    return wrong


@pytest.mark.parametrize(("part", "path"), sources(), ids=lambda value: str(value).removeprefix(str(ROOT)))
def test_a_module_imports_only_what_its_layer_may(part: str, path: Path) -> None:
    assert violations(part, path) == [], f"{path.relative_to(ROOT)} ({part})"


def test_the_rule_sees_a_violation(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text("import asyncio\nimport lmdb\nfrom replayproxy.storage import reader\n")
    assert sorted(violations("core", module)) == ["asyncio", "lmdb", "replayproxy.storage"]


def test_addons_and_snapshots_are_files_and_no_packages() -> None:
    assert not (ROOT / "addons" / "__init__.py").exists()
    assert not (ROOT / "snapshots" / "__init__.py").exists()
