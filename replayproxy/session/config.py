"""The config file: which one is used, and what may stand in it.

`--config FILE`, else `REPLAYPROXY_CONFIG`, else `./replayproxy.toml`, else `[tool.replayproxy]` of
`./pyproject.toml`; there is no search upward, so that where a command is run decides. A key is the long name of an
option, or one of the tables of `TABLES`; any other is refused, because a misspelt key that is ignored costs a night.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from replayproxy.core.extract import run_examples
from replayproxy.core.extractrule import extract_rules
from replayproxy.core.names import why_not_an_env
from replayproxy.core.redact_rules import SecretRule
from replayproxy.errors import WrongUsage
from replayproxy.session.pattern_probe import why_too_slow
from replayproxy.session.wiring import eventual_times

TEXT, LIST, FLAG, NUMBER = "a text", "a text or a list of texts", "true or false", "a number"
TIMES = 'a table of times, such as {"POST /jobs" = "2s"}'

OPTIONS: dict[str, str] = {
    "store": LIST, "run": TEXT, "append": FLAG, "keep-secrets": FLAG, "episode": TEXT, "idle": TEXT, "undeclared": TEXT,
    "snapshot-when": TEXT, "snapshot-mode": TEXT, "url-style": TEXT, "workers": NUMBER, "listen": TEXT,
    "control": TEXT, "advertise": LIST, "allow-upstream": LIST, "ready-file": TEXT, "summary": TEXT,
    "log-every": TEXT, "upstream-timeout": TEXT, "upstream-connect": TEXT, "upstream-idle": TEXT,
    "chaos": LIST, "chaos-seed": NUMBER, "forward": TEXT, "forward-auth": FLAG, "pass": LIST, "json": FLAG,
    "probe": FLAG, "judge": TEXT, "fail-fast": FLAG, "when-full": TEXT,
    "task": TEXT, "seed": NUMBER, "attempt": NUMBER, "group": TEXT, "reward-file": TEXT,
    "rules": LIST, "pace": TEXT, "order": TEXT, "on-miss": TEXT,
    "repeat": NUMBER, "ablate": TEXT, "save": TEXT, "disposable": LIST,
    "fail-on": TEXT, "max-failure-rate": NUMBER, "require": TEXT, "reference": TEXT, "baseline": TEXT,
    "write-baseline": TEXT, "junit": TEXT, "md": TEXT,
    "on": LIST, "verdicts": TEXT, "how": TEXT, "max-masked": NUMBER, "max-unmatched": NUMBER,
    "where": TEXT, "sort": TEXT, "by": TEXT,
}  # fmt: skip
"""Every long option that a file may set, with the kind of value it takes."""

ENV_KEYS: dict[str, str] = {
    "url": TEXT, "listen": TEXT, "as": TEXT, "tls": FLAG, "ca": TEXT, "insecure": FLAG, "host": TEXT, "reads": LIST,
    "eventual": TIMES, "claims": LIST, "clock": TEXT, "seed": TEXT,
}  # fmt: skip
"""What `[env.NAME]` may hold: the words of `--env`, `reads`, `eventual`, `claims`, what sets its clock and its seed."""

LARGEST = 4 << 20
"""Bytes of a config file. What never ends (`/dev/full`) is none; a pipe, as of `<(..)`, may be one."""

TABLES = ("env", "snapshot", "reset", "silence", "meta", "rule", "secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the file said, checked for its shape. `path` None: there was no file."""

    path: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    snapshot: Mapping[str, str] = field(default_factory=dict)
    reset: Mapping[str, str] = field(default_factory=dict)
    silence: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    rules: Sequence[Mapping[str, Any]] = ()
    secrets: tuple[SecretRule, ...] = ()

    def value(self, option: str, flag: Any, default: Any = None) -> Any:
        """The flag where it was given (an empty tuple was not), else what the file says, else `default`."""
        if flag is not None and flag != () and flag is not False:
            return flag
        return self.options.get(option, default)

    def values(self, option: str, flags: Sequence[str]) -> tuple[str, ...]:
        """A repeatable option: the flags where any was given, else the file's, one text or a list."""
        found = flags or self.options.get(option, ())
        return (found,) if isinstance(found, str) else tuple(found)

    def reads(self, env: str) -> tuple[str, ...]:
        """The requests of an environment that are declared to be reads."""
        found = self.env.get(env, {}).get("reads", ())
        return (found,) if isinstance(found, str) else tuple(found)

    def claims(self, env: str) -> tuple[str, ...]:
        """The columns of an environment (`desks.steward`) that name who has the row, one at a time."""
        found = self.env.get(env, {}).get("claims", ())
        columns = (found,) if isinstance(found, str) else tuple(found)
        for column in columns:
            if not all(column.rpartition(".")[::2]):
                raise WrongUsage(f"[env.{env}] claims: {column!r} is no column", hint='claims = ["desks.steward"]')
        return columns

    def eventual(self, env: str) -> dict[str, float]:
        """The writes of an environment that act after their answer, with the seconds within which they do."""
        return eventual_times(env, self.env.get(env, {}))


def discover(explicit: Path | str | None, cwd: Path, environ: Mapping[str, str]) -> Config:
    """Finds and reads the one config file. WrongUsage, in one line, when it cannot be used as it is."""
    named = explicit or environ.get("REPLAYPROXY_CONFIG") or None
    if named is not None:
        path = cwd / named
        table = _read(path, missing=f"the config file {path} is not there")
        return _checked(path, _tool_table(table) or {} if path.name == "pyproject.toml" else table)
    path = cwd / "replayproxy.toml"
    if path.is_file():
        return _checked(path, _read(path))
    path = cwd / "pyproject.toml"
    if path.is_file():
        own = _tool_table(_read(path))
        if own is not None:
            return _checked(path, own)
    return Config()


def _read(path: Path, missing: str = "") -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise WrongUsage(f"the config file {path} is no config: it is over 4 MiB", hint="--config FILE")
        return tomllib.loads(data.decode().replace("\r\n", "\n"))
    except FileNotFoundError:
        raise WrongUsage(missing or f"{path} is not there", hint="--config FILE") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as wrong:
        raise WrongUsage(f"the config file {path} cannot be read: {wrong}") from None


def _tool_table(document: Mapping[str, Any]) -> dict[str, Any] | None:
    tool = document.get("tool")
    own = tool.get("replayproxy") if isinstance(tool, dict) else None
    return own if isinstance(own, dict) else None


def _checked(path: Path, table: Mapping[str, Any]) -> Config:
    where = str(path)
    options = {}
    for key, value in table.items():
        if key in TABLES:
            continue
        if key not in OPTIONS:
            raise WrongUsage(f"{where}: unknown key {key!r}", hint=_near(key, [*OPTIONS, *TABLES]))
        options[key] = _as_kind(where, key, value, OPTIONS[key])
    return Config(
        path=path,
        options=options,
        env=_envs(where, _table(where, table, "env")),
        snapshot=_texts(where, table, "snapshot"),
        reset=_texts(where, table, "reset"),
        silence=_table(where, table, "silence"),
        meta=_meta(where, table),
        rules=_rules(where, table.get("rule", [])),
        secrets=_secrets(where, table.get("secret", [])),
    )


def _meta(where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON can say, for it is kept and shown as that; a date of TOML's, and `nan`, it cannot."""
    found = _table(where, table, "meta")
    for name, value in found.items():
        if not _is_json(value):
            said = value.isoformat() if hasattr(value, "isoformat") else value
            raise WrongUsage(f"{where}: [meta] {name}: {said} is nothing that JSON can say", hint="write it as a text")
    return found


def _is_json(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(map(_is_json, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _near(key: str, known: Sequence[str]) -> str:
    found = get_close_matches(key, known, n=1)
    return f"did you mean {found[0]!r}?" if found else "keys are the long option names"


def _as_kind(where: str, key: str, value: Any, kind: str) -> Any:
    """The value, a text where one is meant. WrongUsage where it is of another kind."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and _is_json(value)
    texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    fits = {
        # `control = 9000`, and `listen = 8101` of an environment, read naturally without quotes.
        TEXT: isinstance(value, str) or number,
        LIST: isinstance(value, str) or texts,
        FLAG: isinstance(value, bool),
        NUMBER: number,
        TIMES: isinstance(value, dict) and all(isinstance(one, str) and " /" in key for key, one in value.items()),
    }[kind]
    if not fits:
        raise WrongUsage(f"{where}: {key} must be {kind}, not {value!r}")
    return str(value) if kind is TEXT else value


def _table(where: str, table: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise WrongUsage(f"{where}: {key} must be a table, [{key}]")
    return found


def _texts(where: str, table: Mapping[str, Any], key: str) -> dict[str, str]:
    found = _table(where, table, key)
    for name, value in found.items():
        if not isinstance(value, str):
            raise WrongUsage(f"{where}: [{key}] {name} must be a text, not {value!r}")
    return found


def _envs(where: str, table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, keys in table.items():
        if why := why_not_an_env(name):
            raise WrongUsage(f"{where}: [env.{name}]: {why}")
        if not isinstance(keys, dict):
            raise WrongUsage(f"{where}: env.{name} must be a table, [env.{name}]")
        found[name] = {}
        for key, value in keys.items():
            if key not in ENV_KEYS:
                raise WrongUsage(f"{where}: [env.{name}]: unknown key {key!r}", hint=_near(key, list(ENV_KEYS)))
            found[name][key] = _as_kind(f"{where}: [env.{name}]", key, value, ENV_KEYS[key])
    return found


def _rules(where: str, rules: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise WrongUsage(f"{where}: rule must be a list of tables, [[rule]]")
    try:
        run_examples(extract_rules(rules))
    except WrongUsage as wrong:
        raise WrongUsage(f"{where}: {wrong.what}", hint=wrong.hint) from None
    return tuple(rules)


def _secrets(where: str, tables: Any) -> tuple[SecretRule, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise WrongUsage(f"{where}: secret must be a list of tables, [[secret]]")
    rules: list[SecretRule] = []
    for number, table in enumerate(tables, 1):
        name = table.get("name")
        try:
            rule = SecretRule.of_table(table)
            if rule.place == "pattern" and (why := why_too_slow(rule.what)):
                raise ValueError(f"pattern {rule.what!r}: {why}")
        except ValueError as wrong:
            raise WrongUsage(f"{where}: [[secret]] {name if isinstance(name, str) else number}: {wrong}") from None
        if any(rule.name == other.name for other in rules):
            raise WrongUsage(f"{where}: two [[secret]] rules are named {rule.name}")
        rules.append(rule)
    return tuple(rules)
