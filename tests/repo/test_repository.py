"""Facts about the repository itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parents[2]
MODULE_LINES = 450
FUNCTION_LINES = 90


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def code() -> list[Path]:
    return [p for p in tracked("*.py") if p.relative_to(ROOT).parts[0] in ("replayproxy", "addons", "snapshots")]


def test_the_command_line_page_is_what_help_says() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "make_cli.py"), "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run `make docs`"


def test_every_option_of_the_command_line_page_is_one_of_the_program() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert page.count("\n  -h, --help ") == page.count("\n## ")
    program = [sys.executable, "-m", "replayproxy"]
    for words in ([], ["ls"], ["race"]):
        told = subprocess.run([*program, *words, "-h"], capture_output=True, text=True, check=True).stdout
        assert "\n  -h, --help " in told


def test_the_matching_table_is_what_the_code_does() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "make_matching.py"), "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run `make docs`"


def test_modules_are_short() -> None:
    long = {str(p.relative_to(ROOT)): n for p in code() if (n := len(p.read_text().splitlines())) > MODULE_LINES}
    assert long == {}


def test_functions_fit_a_screen_or_two() -> None:
    long = {}
    for path in code():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    long[f"{path.relative_to(ROOT)}:{node.name}"] = lines
    assert long == {}


def test_every_module_and_public_function_says_what_it_is() -> None:
    silent = []
    for path in code():
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree):
            silent.append(str(path.relative_to(ROOT)))
    assert silent == []


def test_no_path_of_a_developers_machine_is_in_the_tree() -> None:
    wrong = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if re.search(r"(^|[^A-Za-z0-9_.])/(work|root|home/[a-z]+)/", text, re.MULTILINE):
            wrong.append(str(path.relative_to(ROOT)))
    assert wrong == []


def test_nothing_heavy_is_imported_for_help_and_for_looking() -> None:
    probe = (
        "import sys, replayproxy.cli.main as m\n"
        "m.run(['--help']); m.run(['ls', '--help'])\n"
        "print([n for n in ('mitmproxy', 'aiohttp', 'rich.markdown') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_relative_link_in_the_documentation_leads_somewhere() -> None:
    dead = []
    for page in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                dead.append(f"{page.relative_to(ROOT)} -> {target}")
    assert dead == []


def test_every_module_that_the_design_page_names_is_there() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    named = set(re.findall(r"`((?:core|serve|session|storage|proxy|cli)/\w+\.py)`", page))
    assert len(named) > 10
    assert [one for one in sorted(named) if not (ROOT / "replayproxy" / one).exists()] == []


WORD = re.compile(r"--[a-z][a-z-]+")


def test_every_command_and_option_that_the_documentation_shows_is_there() -> None:
    """In blocks of code: `replayproxy COMMAND .. --option`; what stands behind ` -- ` is the child's own."""
    from replayproxy.cli.main import COMMANDS, cli

    at, wrong = click.Context(cli), []
    for page in tracked("README.md", "docs/*.md"):
        for block in re.findall(r"```\w*\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                for part in re.split(r"   +|(?= && )", line.partition(" #")[0]):
                    found = re.search(r"replayproxy ([a-z]+)( .*)?$", part.partition(" -- ")[0])
                    if found is None or page.name == "cli.md":
                        continue
                    if found[1] not in COMMANDS:
                        wrong.append(f"{page.name}: {part.strip()}")
                        continue
                    command = cli.get_command(at, found[1])
                    assert command is not None
                    known = {word for option in command.params for word in (*option.opts, *option.secondary_opts)}
                    asked = WORD.findall(re.sub(r"'[^']*'|\"[^\"]*\"", "", found[2] or ""))
                    wrong += [
                        f"{page.name}: {part.strip()}: {word}" for word in asked if word not in known | {"--help"}
                    ]
    assert wrong == []
