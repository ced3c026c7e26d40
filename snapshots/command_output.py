"""`command:CMD[,restore=CMD][,shell=yes][,timeout=SECONDS]`: a state that a program of yours prints as JSON.

`{table: {key: {..}}}` is rows, anything else one opaque document. An exit code other than 0 is no state, and the last
line of stderr is the reason. A restore runs its own command with the captured document, byte for byte, on stdin.

CMD is split into words as a shell would and run without one. With `shell=yes` it is a line for /bin/sh. Either way what
stands in braces, and `env:VAR`, is one piece of text to the program: it never becomes a word or a command of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from replayproxy.errors import WrongUsage
from replayproxy.state import CannotRestore, Changes, Reading, RestoreFailed, Rows, Scope, Spec, StateUnreadable
from replayproxy.state.delta import changes_between
from replayproxy.state.document import document_of, read_document, rows_of, write_document
from replayproxy.state.spec import BRACES, redacted, with_secrets

OPTIONS = ("restore", "shell", "timeout")
FILLS_SECRETS = True
TIMEOUT = 25.0
"""Seconds: less than a snapshot may take, so that the reason is told."""
ASIDE = ("document", "stdout")
_PASTED = re.compile(r"\{(?:episode|task|seed|meta\.[^{}\s]+)\}|(?<![^:= \"'])env:[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is run: words, and variables beside those of this process. `shown` is fit for a message."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    shown: str


class CommandOutput:
    """`restore_with`: None when no command was given for it."""

    atomic = False  # what the program does to read it is not known
    aside_is_the_rows = True  # the document as it came, which a restore gives back

    def __init__(self, read: Line, restore_with: Line | None, timeout: float, scope: Scope) -> None:
        self._line, self._restore_with, self._timeout = read, restore_with, timeout
        self.scope: Scope = scope
        self._known: Rows | None = None

    @property
    def can_restore(self) -> bool:
        return self._restore_with is not None

    def capture(self) -> Reading:
        out = self._run(self._line, None, StateUnreadable)
        try:
            rows = rows_of(read_document(out))
        except StateUnreadable as wrong:
            raise StateUnreadable(f"{self._line.shown}: {wrong.what}") from wrong
        known, self._known = self._known, rows
        changes = changes_between(known, rows) if known is not None else None
        aside = {ASIDE[0]: {ASIDE[1]: out}}
        return Reading(rows=rows if changes is None else Changes(rows=changes), aside=aside)

    def restore(self, rows: Rows) -> None:
        self.restore_whole(rows, {})

    def restore_whole(self, rows: Rows, aside: Rows) -> None:
        if self._restore_with is None:
            raise CannotRestore("no command restores it", hint='give restore="CMD", which gets the document on stdin')
        # As it came: members and rows keep their order, which an environment may show in its lists.
        document = aside.get(ASIDE[0], {}).get(ASIDE[1])
        if document is None or rows_of(read_document(document)) != rows:
            document = write_document(document_of(rows))
        self._run(self._restore_with, document, RestoreFailed)

    def close(self) -> None:
        """Nothing runs between readings."""

    def _run(self, line: Line, given: bytes | None, failure: type[StateUnreadable] | type[RestoreFailed]) -> bytes:
        try:
            running = subprocess.Popen(
                line.words, env={**os.environ, **line.variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL if given is None else subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise failure(f"{line.shown} cannot be run: {reason}") from None
        with running:
            try:
                out, told = running.communicate(given, timeout=self._timeout)
            except subprocess.TimeoutExpired:
                raise failure(f"{line.shown} did not end in {self._timeout:g} s", hint="timeout=SECONDS") from None
            finally:
                _end(running)
        if running.returncode:
            raise failure(f"{line.shown} {_how(running.returncode)}{_last_line(told)}")
        return out


def _end(running: subprocess.Popen[bytes]) -> None:
    """All that the command started and left behind goes with it: it would hold our pipes, or write on."""
    try:
        os.killpg(running.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # the usual case: nobody is left


def _how(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _last_line(told: bytes) -> str:
    lines = [line.strip() for line in told.decode("utf-8", "replace").splitlines() if line.strip()]
    return f": {redacted(lines[-1])[:300]}" if lines else ""


def provider(spec: Spec) -> CommandOutput:
    make = _of_shell if _is_yes(spec.option("shell", "no")) else _of_words
    restore = spec.option("restore")
    try:
        timeout = float(spec.option("timeout", str(TIMEOUT)))
    except ValueError:
        timeout = 0
    if not timeout > 0:
        raise WrongUsage(f"timeout={spec.option('timeout')}: it is a number of seconds")
    return CommandOutput(make(spec, spec.target), make(spec, restore) if restore else None, timeout, spec.scope)


def _is_yes(given: str) -> bool:
    if given not in ("yes", "no"):
        raise WrongUsage(f"shell={given}: it is yes or no")
    return given == "yes"


def _of_words(spec: Spec, text: str) -> Line:
    """Split first, filled in afterwards."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise WrongUsage(f"the command cannot be split into words: {error}") from None
    if not words:
        raise WrongUsage("there is no command")
    filled = []
    for before, word in zip(["", *words], words, strict=False):
        if before == "-c" and _PASTED.search(word):
            raise WrongUsage(
                "a value would become part of a program's text after -c",
                hint="shell=yes, or give it as a word by itself",
            )
        value = spec.filled(with_secrets(word, os.environ), str)
        if value.startswith("-") and not word.startswith("-"):
            raise StateUnreadable(f"{value!r} cannot stand as a word: it would be an option")
        filled.append(value)
    return Line(words=tuple(filled), variables={}, shown=_shown(words[0]))


def _of_shell(spec: Spec, text: str) -> Line:
    """Values come as variables, each quoted as the place where it stands needs it."""
    variables: dict[str, str] = {}
    out, at, quote = "", 0, ""
    while at < len(text):
        if found := _PASTED.match(text, at):
            word = BRACES.fullmatch(found[0])
            name = f"REPLAYPROXY_VALUE_{len(variables)}"
            variables[name] = spec.value(word[1]) if word else with_secrets(found[0], os.environ)
            out += {"": f'"${{{name}}}"', '"': f"${{{name}}}", "'": f"'\"${{{name}}}\"'"}[quote]
            at = found.end()
            continue
        if text[at] == "\\" and quote != "'":
            out += text[at : at + 2]
            at += 2
            continue
        if text[at] in "\"'" and quote in ("", text[at]):
            quote = "" if quote else text[at]
        out += text[at]
        at += 1
    return Line(words=("/bin/sh", "-c", out), variables=variables, shown=_shown(text.split(maxsplit=1)[0]))


def _shown(word: str) -> str:
    """The program's name, for a message: its words may hold what nobody is to read."""
    return f"command {redacted(word)}"
