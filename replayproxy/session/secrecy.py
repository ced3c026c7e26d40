"""The store's key for tokens, and the redactor that a recording, a replay or a re-drive works with.

The key lies in the store's directory, mode 0600, and nowhere else: it is in no archive and in no record. Its id, which
tells nothing of it, is kept in each run, so that a run from another store is known as such.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replayproxy.core.redact import Redactor, SecretRule
from replayproxy.core.redact_token import KEY_BYTES
from replayproxy.core.shown import count
from replayproxy.core.values import Run
from replayproxy.errors import StoreTrouble, WrongUsage

KEY_FILE = "secret.key"


def for_recording(store: Path, *, keep: bool = False, rules: Sequence[SecretRule] = ()) -> Redactor:
    """Makes the key with the first recording of a store."""
    return Redactor(None) if keep else Redactor(_key(store) or _made(store), rules)


def load(store: Path, run: Run | None = None) -> Redactor:
    """The redactor that a run was recorded with: it keeps what that one kept, and has its rules.

    Where the store has no key (a run that was imported) it is one of its own, under which no token is the recorded
    one: `same_key` says so.
    """
    kept = Kept.of(run) if run is not None else Kept(kept=False)
    if kept.kept:
        return Redactor(None)
    return Redactor(_key(store) or secrets.token_bytes(KEY_BYTES), kept.rules)


def for_redrive(store: Path, run: Run) -> Redactor:
    """As the run was recorded; the store gets a key if it has none, for what is saved."""
    kept = Kept.of(run)
    return for_recording(store, keep=kept.kept, rules=kept.rules)


def shown(store: Path) -> Redactor:
    """For lines about no run in particular. Never fails: what cannot be read gives a key of its own."""
    try:
        return load(store)
    except StoreTrouble:
        return Redactor(secrets.token_bytes(KEY_BYTES))


@dataclass(frozen=True, slots=True)
class Kept:
    """What a run says of its secrets. A run of a version before there was redaction kept them."""

    kept: bool
    key: str = ""
    rules: tuple[SecretRule, ...] = ()

    @classmethod
    def of(cls, run: Run) -> Kept:
        said: Mapping[str, Any] | None = run.config.get("secrets")
        if said is None:
            return cls(kept=True)
        rules = tuple(SecretRule.of_table(table) for table in said.get("tables", ()))
        return cls(kept=bool(said.get("kept")), key=str(said.get("key", "")), rules=rules)


def holding(run: Run) -> list[str]:
    """What is told of a run that has its secrets in it; nothing of any other."""
    if not Kept.of(run).kept:
        return []
    how = "with --keep-secrets" if "secrets" in run.config else "by a version without redaction"
    return [f"credentials, cookies and tokens are in it as they were sent (recorded {how})"]


def shown_as(redactor: Redactor) -> Callable[[str], str]:
    """The token of a secret text, as an id that is a credential is kept."""

    def token(value: str) -> str:
        return redactor.token(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    return token


def same_key(redactor: Redactor, run: Run) -> bool:
    """Whether a live secret gives the token that stands in the run. False: it was recorded into another store."""
    kept = Kept.of(run)
    return kept.kept or kept.key == redactor.key_id


def wired(redactor: Redactor) -> dict[str, Any]:
    """What a run keeps: `Run.config["secrets"]`."""
    tables = [rule.table() for rule in redactor.rules]
    return {
        "kept": redactor.keeps, "key": redactor.key_id, "rules": [rule.name for rule in redactor.rules],
        **({"tables": tables} if tables else {}),
    }  # fmt: skip


def told(redactor: Redactor) -> list[str]:
    """What a recorder says at its start."""
    if redactor.keeps:
        return [
            "--keep-secrets: credentials, cookies and tokens are stored as they are sent, and are shown",
            "who can read the store, or an export of it, can use them",
        ]
    rules = f", and by {count(len(redactor.rules), 'rule')} of yours" if redactor.rules else ""
    return [f"credentials, cookies and tokens are replaced by rp-secret-.. before they are stored{rules}"]


def must_agree(run: Run, redactor: Redactor) -> None:
    """Refuses to append to a run that keeps its secrets otherwise: half of it would not match."""
    kept = Kept.of(run)
    if kept.kept != redactor.keeps:
        how = "with the secrets in it" if kept.kept else "without the secrets"
        raise WrongUsage(
            f"run {run.name} was recorded {how}", hint="--keep-secrets" if kept.kept else "without --keep-secrets"
        )
    if not kept.kept and (kept.key != redactor.key_id or kept.rules != redactor.rules):
        what = "the [[secret]] rules" if kept.key == redactor.key_id else "the store's secret.key"
        raise WrongUsage(f"run {run.name} was recorded with other values of {what}", hint="another --run")


def _key(store: Path) -> bytes | None:
    """The key, or None where there is none. StoreTrouble where it is there and cannot be used."""
    path = store / KEY_FILE
    try:
        with path.open("rb") as file:
            key = file.read(KEY_BYTES + 1)
            if len(key) == KEY_BYTES and os.fstat(file.fileno()).st_mode & 0o077:
                # Copied or unpacked, it became everybody's to read. In a store that cannot be written it stays so.
                with suppress(OSError):
                    os.fchmod(file.fileno(), 0o600)
    except (FileNotFoundError, NotADirectoryError):  # an archive is a file, and holds no key
        return None
    except OSError as error:
        raise StoreTrouble(f"{path} cannot be read: {error.strerror}", hint="chmod 600, as its owner") from None
    if len(key) != KEY_BYTES:
        raise StoreTrouble(
            f"{path} holds {'more' if len(key) > KEY_BYTES else len(key)} bytes, and a key has {KEY_BYTES}",
            hint="put the store's own key back",
        )
    return key


def _made(store: Path) -> bytes:
    """A new key, created so that of two recorders one makes it and the other reads it."""
    path, key = store / KEY_FILE, secrets.token_bytes(KEY_BYTES)
    partial = store / f".{KEY_FILE}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, key)
            os.fsync(handle)
        finally:
            os.close(handle)
        try:
            path.hardlink_to(partial)  # exclusive, and never seen half written
        except FileExistsError:
            return _key(store) or key
        finally:
            partial.unlink()
    except OSError as error:
        raise StoreTrouble(f"{path} cannot be made: {error.strerror}") from None
    return key
