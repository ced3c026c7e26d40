"""From `NAME=SPEC` to a provider: bundled files, a user's own file, and third parties' packages, all one way.

Providers are files, not modules of this package: each is found by path and run as a module of its own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import replayproxy
from replayproxy.errors import Problem, WrongUsage
from replayproxy.state.provider import Context, Provider, StateUnreadable, reason_of
from replayproxy.state.spec import Spec, redacted, take_apart, unknown_words, with_secrets

__all__ = ["Loaded", "bundled", "load", "parse_named", "redacted"]

BUNDLED = {
    "http": "http_endpoint.py", "sqlite": "sqlite_file.py", "dir": "file_tree.py", "postgres": "postgres_db.py",
    "redis": "redis_store.py", "command": "command_output.py",
}  # fmt: skip
GROUP = "replayproxy.snapshots"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\Z")


@dataclass(frozen=True, eq=False)
class Loaded:
    """A snapshot as configured. `env` is the part of the name before the first dot; `spec` is free of secrets."""

    name: str
    spec: str
    make: Callable[[Context], Provider]
    needs: frozenset[str] = frozenset()
    context: Context = field(default_factory=dict, hash=False)

    @property
    def env(self) -> str:
        return self.name.partition(".")[0]

    def bind(self, context: Context) -> Loaded:
        """The same for one episode: its own provider, with the braces filled in."""
        return replace(self, context=dict(context))

    @cached_property
    def provider(self) -> Provider:
        """Made at first use. Raises StateUnreadable when a word in braces is not known."""
        return self.make(self.context)

    @classmethod
    def of(cls, name: str, make: Callable[[], Provider], spec: str = "") -> Loaded:
        """A snapshot of code's own making; `make` is called for each fresh start, and after an error."""
        return cls(name=name, spec=spec, make=lambda _: make())


def parse_named(text: str) -> tuple[str, str]:
    """`NAME=SPEC` taken apart. Raises WrongUsage."""
    name, equals, spec = text.partition("=")
    if not equals or not spec:
        raise WrongUsage(f"snapshot {redacted(text)!r}: it is NAME=SPEC", hint="for instance crm=sqlite:/data/crm.db")
    if not _NAME.match(name):
        raise WrongUsage(
            f"snapshot name {name!r}: letters, digits, _ and -, parts joined by dots, a letter first",
            hint="the part before the first dot is the environment's name",
        )
    return name, spec


def load(name: str, spec: str, *, context: Context | None = None) -> Loaded:
    """A provider for the spec; nothing is connected or read yet. Raises WrongUsage, one line, on a bad spec."""
    try:
        return _load(name, spec, context or {}, os.environ)
    except WrongUsage as wrong:
        raise WrongUsage(f"snapshot {name}={redacted(spec)}: {wrong.what}", hint=wrong.hint) from wrong


def _load(name: str, text: str, context: Context, environ: Mapping[str, str]) -> Loaded:
    module, kind, rest = _module_of(text)
    make = getattr(module, "provider", None)
    if not callable(make):
        raise WrongUsage(f"{kind} has no function provider(spec)", hint="see the guide on providers")
    target, options = take_apart(rest, getattr(module, "OPTIONS", ()))
    for part in [target, *(v for key, given in options.items() if key != "where" for v in given)]:
        if unknown := unknown_words(part.partition("where=")[0]):
            raise WrongUsage(
                f"{{{unknown[0]}}} is nothing that is filled in", hint="{episode}, {task}, {seed} and {meta.X} are"
            )

    def filled(part: str) -> str:
        # A provider that takes its target apart into words fills in secrets afterwards, so that none makes a word.
        return part if getattr(module, "FILLS_SECRETS", False) else with_secrets(part, environ)

    described = Spec(
        name=name,
        kind=kind,
        target=filled(target),
        options={key: tuple(map(filled, given)) for key, given in options.items()},
        text=redacted(text),
    )

    def made(context: Context) -> Provider:
        provider: Provider = make(replace(described, context=dict(context)))
        return provider

    loaded = Loaded(name=name, spec=redacted(text), make=made, needs=described.needs, context=dict(context))
    _tried(loaded)
    return loaded


def _tried(loaded: Loaded) -> None:
    """A spec that can never work is refused now, and not at the first snapshot: the provider is made once."""
    trial = {word: loaded.context.get(word, "x") for word in loaded.needs}
    try:
        loaded.make(trial).close()
    except Problem as problem:
        if isinstance(problem, WrongUsage | StateUnreadable):
            raise WrongUsage(problem.what, hint=problem.hint) from problem
        raise
    except Exception as error:
        raise WrongUsage(reason_of(error)) from error


def _module_of(text: str) -> tuple[ModuleType | Any, str, str]:
    """(module, its kind for messages, what follows the kind's colon)."""
    file = re.match(r"(.+?\.py)(?::(.*))?\Z", text, re.S)
    kind, colon, rest = text.partition(":")
    if file and (kind not in BUNDLED or not colon):
        return _run_file(Path(file[1]).expanduser()), file[1], file[2] or ""
    if not colon:
        raise WrongUsage("it is KIND:TARGET or ./FILE.py:ARGUMENT", hint=f"kinds: {', '.join(BUNDLED)}")
    if kind in BUNDLED:
        if not rest:
            raise WrongUsage(f"nothing stands after {kind}:", hint="see the guide on snapshots")
        return _run_file(bundled("snapshots") / BUNDLED[kind]), kind, rest
    for found in entry_points(group=GROUP, name=kind):
        return _third_party(found, kind), kind, rest
    raise WrongUsage(f"there is no snapshot kind {kind!r}", hint=f"kinds: {', '.join(BUNDLED)}, or ./FILE.py:ARG")


def _third_party(found: Any, kind: str) -> Any:
    try:
        return found.load()
    except Exception as error:
        raise WrongUsage(f"the package that gives {kind}: does not load: {reason_of(error)}") from error


def bundled(folder: str) -> Path:
    """Where the files of `addons` or `snapshots` are: inside the installed wheel, or beside the source."""
    package = Path(replayproxy.__file__).parent
    installed = package / "_bundled" / folder
    return installed if installed.exists() else package.parent / folder


def _run_file(path: Path) -> ModuleType:
    """The file as a module of its own; run once per path."""
    if not path.is_file():
        raise WrongUsage(f"there is no file {path}")
    where = path.resolve()
    name = f"replayproxy_snapshot_{where.stem}_{abs(hash(str(where))):x}"
    if name in sys.modules:
        return sys.modules[name]
    described = importlib.util.spec_from_file_location(name, where)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    # Before it runs: dataclasses and pickling look their module up while it is being made.
    sys.modules[name] = module
    try:
        described.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception):
            raise WrongUsage(f"{path} does not run: {reason_of(error)}") from error
        raise
    return module
