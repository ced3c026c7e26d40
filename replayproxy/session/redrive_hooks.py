"""What an environment offers to have its clock or its random numbers set: `[env.NAME] clock` and `seed` of the config.

Each is `METHOD URL [BODY]`, sent after a restore and before anything else. `{time}` (ISO 8601) and `{unix}` (seconds)
are the recorded episode's beginning, `{seed}` its seed, 0 where it has none. Nothing is guessed: what is not configured
is not available.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from replayproxy.core.values import Episode
from replayproxy.session.config import Config
from replayproxy.session.wiring import EnvSpec, Reset, parse_reset

HOOKS = ("clock", "seed")


def hooks(config: Config, episode: Episode, specs: Mapping[str, EnvSpec]) -> dict[str, dict[str, Reset]]:
    """Per knob, the request of each environment that has one. Raises WrongUsage for what is no request."""
    found: dict[str, dict[str, Reset]] = {}
    for knob in HOOKS:
        for name in specs:
            text = config.env.get(name, {}).get(knob)
            if text:
                found.setdefault(knob, {})[name] = parse_reset(name, filled(str(text), episode), tuple(specs.values()))
    return found


def filled(text: str, episode: Episode) -> str:
    """With what is known of the episode."""
    at = datetime.fromtimestamp(episode.opened_wall / 1e9, tz=UTC)
    words = {
        "{time}": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "{unix}": f"{at.timestamp():.3f}",
        "{seed}": str(episode.seed if episode.seed is not None else 0),
    }  # fmt: skip
    for word, value in words.items():
        text = text.replace(word, value)
    return text
