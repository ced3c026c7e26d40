"""Which clients are there, in the agent's world: programs on PATH, and libraries in the interpreter that runs it.

Each is asked itself, by a subprocess: what our own process has imported says nothing about the agent.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from replayproxy.errors import WrongUsage
from replayproxy.session.canary_clients import Client
from replayproxy.session.canary_process import ended

PROBE_SECONDS = 5.0
_VERSION = re.compile(r"\d+(?:\.\d+)+")

_PROBE = """import importlib.util, json, sys
try:
    from importlib.metadata import version
except ImportError:
    version = lambda name: "?"
found = {}
for name in sys.argv[1:]:
    if importlib.util.find_spec(name) is not None:
        try:
            found[name] = version(name)
        except Exception:
            found[name] = "?"
told = {"prefix": sys.prefix, "path": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3], "modules": found}
print(json.dumps(told))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """`modules`: those of the asked ones that it has, with their versions."""

    path: str
    prefix: str
    version: str
    modules: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A client that is there. `python`: the interpreter that has it, "" for a program of its own."""

    program: str
    version: str
    python: str = ""


async def find(clients: Sequence[Client], python: str | None) -> dict[str, Found]:
    """{client's name: what there is}; one that is not there is not in it.

    `python` None: `python3` on PATH, which is most likely the agent's, and for what it lacks our own. Raises WrongUsage
    when a `python` that was asked for is none.
    """
    refused = WrongUsage(f"--python {python}: it is no Python that runs", hint="the interpreter of the agent")
    if python is not None and shutil.which(python) is None:
        raise refused
    programs, interpreters = await asyncio.gather(
        _programs({client.program for client in clients if client.program}),
        _interpreters(clients, python),
    )
    # Only here, when both are done: asyncio may wait for ever for a subprocess whose start is cancelled.
    if interpreters is None:
        raise refused
    found: dict[str, Found] = {}
    for client in clients:
        one = programs.get(client.program) if client.program else _library(client, interpreters)
        if one is not None:
            found[client.name] = one
    return found


async def _programs(wanted: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], Found]:
    names = list(wanted)

    async def one(program: tuple[str, ...]) -> Found | None:
        path = next((where for name in program if (where := shutil.which(name))), None)
        return None if path is None else Found(program=path, version=await _version(path))

    found = await asyncio.gather(*(one(program) for program in names))
    return {program: one for program, one in zip(names, found, strict=True) if one is not None}


async def _version(program: str) -> str:
    """What it says of itself, or "?": it is tried in any case."""
    said = await ended((program, "--version"), seconds=PROBE_SECONDS)
    match = _VERSION.search(said.out)
    return match[0] if match else "?"


async def _interpreters(clients: Sequence[Client], python: str | None) -> list[Interpreter] | None:
    """Those that have what the clients need; None when the one that was asked for is no Python."""
    modules = sorted({module for client in clients for module in client.modules})
    if all(client.program for client in clients):
        return []
    if python is not None:
        only = await _interpreter(python, modules)
        return None if only is None else [only]
    there = [path for path in (shutil.which("python3"), sys.executable) if path]
    asked = await asyncio.gather(*(_interpreter(path, modules) for path in there))
    distinct = {one.prefix: one for one in reversed(asked) if one is not None}
    return [one for one in asked if one is not None and distinct.get(one.prefix) is one]


async def _interpreter(path: str, modules: Sequence[str]) -> Interpreter | None:
    said = await ended((path, "-c", _PROBE, *modules), seconds=PROBE_SECONDS)
    try:
        told = json.loads(said.out)
        # What it says of itself, because what is on PATH may be a script that takes its time to find it.
        path = told["path"] or path
        return Interpreter(path=path, prefix=told["prefix"], version=told["version"], modules=told["modules"])
    except (ValueError, KeyError, TypeError):
        return None


def _library(client: Client, interpreters: Sequence[Interpreter]) -> Found | None:
    for one in interpreters:
        if all(module in one.modules for module in client.modules):
            version = one.modules[client.modules[0]] if client.modules else one.version
            return Found(program=one.path, version=version, python=one.path)
    return None
