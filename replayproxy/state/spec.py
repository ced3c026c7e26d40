"""A snapshot's specification as typed: `KIND:TARGET[,option=value ..]`, with secrets and braces not yet filled in.

Options are split from the right at `,knownoption=`, so a comma inside a URL or a path is no trouble. `env:VAR`
stands for a secret: alone, after `:`, `=` or a space. Braces (`{episode}`, `{task}`, `{seed}`, `{meta.X}`) are
filled in for one episode, and where the text goes on to be parsed, the value is encoded or bound, never pasted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from replayproxy.errors import WrongUsage
from replayproxy.state.provider import Context, Scope, StateUnreadable

BRACES = re.compile(r"\{(episode|task|seed|meta\.[^{}\s]+)\}")
_WORDS = re.compile(r"\{([a-z][a-z_.]*)\}")
_SECRET = re.compile(r"(?:^|(?<=[:= ]))env:([A-Za-z_][A-Za-z0-9_]*)(?=$|[@& ,/?])")
_SECRET_NAMES = r"[^=&?,\s]*(?:pass(?:word|wd)?|secret|token|api_?-?key|auth|sig(?:nature)?|credential)[^=&?,\s]*"
_NAMED = re.compile(r"(?:[A-Za-z]+ )?env:[A-Za-z_][A-Za-z0-9_]*")
_HIDDEN = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A specification taken apart; what `provider(spec)` is given. `text` is as typed, secrets not filled in."""

    name: str
    kind: str
    target: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    context: Context = field(default_factory=dict)
    text: str = ""

    def option(self, name: str, default: str = "") -> str:
        """The last value given; options that may stand more than once are read from `options`."""
        given = self.options.get(name, ())
        return given[-1] if given else default

    @property
    def needs(self) -> frozenset[str]:
        """The words in braces, whichever part they stand in."""
        parts = [self.target, *(value for given in self.options.values() for value in given)]
        return frozenset(word for part in parts for word in BRACES.findall(part))

    @property
    def scope(self) -> Scope:
        """A state chosen by the episode's own name is that episode's alone."""
        return "episode" if "episode" in self.needs else "instance"

    def value(self, word: str) -> str:
        """What a word in braces stands for in this episode. Raises StateUnreadable."""
        if word not in self.context:
            raise StateUnreadable(
                f"{{{word}}} is not known for this episode", hint="give it when the episode is opened"
            )
        return self.context[word]

    def filled(self, text: str, encode: Callable[[str], str]) -> str:
        """The text with its braces filled in; `encode` makes a value harmless where it is put."""
        return BRACES.sub(lambda match: encode(self.value(match[1])), text)


def as_path(value: str) -> str:
    """For a value inside a path: it names one file or folder, and never leads out of where it stands."""
    if not value or value in (".", "..") or "/" in value or "\0" in value:
        raise StateUnreadable(f"{value!r} cannot stand in a path: it would lead elsewhere")
    return value


def take_apart(text: str, options: Sequence[str]) -> tuple[str, dict[str, tuple[str, ...]]]:
    """The target and the options of what follows `KIND:`."""
    found: dict[str, tuple[str, ...]] = {}
    if not options:
        return text, found
    last = re.compile(
        rf",({'|'.join(map(re.escape, options))})=((?:(?!,(?:{'|'.join(map(re.escape, options))})=).)*)\Z", re.S
    )
    while match := last.search(text):
        value = match[2]
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        found[match[1]] = (value, *found.get(match[1], ()))
        text = text[: match.start()]
    return text, found


def with_secrets(text: str, environ: Mapping[str, str]) -> str:
    """The text with each `env:VAR` replaced. Raises WrongUsage for a variable that is not set."""

    def found(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise WrongUsage(f"env:{match[1]} names a variable that is not set", hint=f"export {match[1]}=..")
        secret, before = environ[match[1]], text[: match.start()]
        # Where a URL goes on to be taken apart, a secret must not end its part: `user:env:VAR@`, `?token=env:VAR`.
        in_url = text[match.end() : match.end() + 1] == "@" or (before.endswith("=") and "?" in before)
        return quote(secret, safe="") if in_url else secret

    return _SECRET.sub(found, text)


def unknown_words(text: str) -> list[str]:
    """Words in braces that nothing would fill in: a typing error, most likely."""
    return [word for word in _WORDS.findall(text) if not BRACES.fullmatch(f"{{{word}}}")]


def redacted(spec: str) -> str:
    """The spec with what may be a secret left out, fit to be kept and printed; `env:VAR` stays."""

    def hide(match: re.Match[str]) -> str:
        return match[0] if _NAMED.fullmatch(match[2]) else match[1] + _HIDDEN

    text = re.sub(r"(//[^/?#\s@:]*:)([^/?#\s]*)(?=@)", hide, spec)
    text = re.sub(rf"(?i)((?<![A-Za-z]){_SECRET_NAMES}=)('(?:[^'\\]|\\.)*'|[^&\s,\"]+)", hide, text)
    return re.sub(r"(,header=[^:,]*:\s*)((?:(?!,(?:header|restore)=).)*)", hide, text)
