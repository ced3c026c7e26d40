"""What an ablation found: repetitions counted by outcome, with one thing held fast and without."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from replayproxy.errors import WrongUsage
from replayproxy.session.bounds import bound_text

SOURCES = {"clock": "time", "seed": "rng", "lanes": "scheduling", "pacing": "pacing"}
ALPHA = 0.05
EXTERNAL = "external"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Repetitions made one way. `outcomes`: how many were alike, of each sort; `different`: from the recording."""

    outcomes: tuple[int, ...]
    different: int

    @property
    def n(self) -> int:
        return sum(self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One thing held fast. `why`: it was not available; `removes` None: that cannot be said; `chance`: how likely as
    many equal repetitions are without it."""

    name: str
    why: str = ""
    tally: Tally | None = None
    removes: bool | None = None
    chance: float | None = None

    @property
    def source(self) -> str:
        return SOURCES[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """All knobs of one episode, beside the repetitions without any."""

    bare: Tally
    knobs: tuple[Knob, ...]

    @property
    def source(self) -> str | None:
        """What makes the repetitions differ; None: not known, or they do not differ."""
        if not differs(self.bare):
            return None
        named = [knob.source for knob in self.knobs if knob.removes]
        if named:
            return " or ".join(named)
        tried = {knob.name for knob in self.knobs if knob.removes is False}
        return EXTERNAL if tried == set(SOURCES) else None

    def to_json(self) -> dict[str, Any]:
        """The member `ablate` of `redrive --json`."""
        return {
            "repeats": self.bare.n, "outcomes": list(self.bare.outcomes), "different": self.bare.different,
            "source": self.source, "told": self.told(),
            "knobs": [
                {
                    "knob": knob.name, "source": knob.source, "available": not knob.why, "why": knob.why,
                    "repeats": knob.tally.n if knob.tally else 0,
                    "outcomes": list(knob.tally.outcomes) if knob.tally else [],
                    "different": knob.tally.different if knob.tally else None,
                    "removes": knob.removes, "chance": knob.chance,
                }
                for knob in self.knobs
            ],
        }  # fmt: skip

    def told(self) -> str:
        """One line for people."""
        if not differs(self.bare):
            return f"nothing to take away: {bound_text(self.bare.n)}"
        if self.source == EXTERNAL:
            return "no knob removes it: external, or state that no restore puts back"
        if self.source:
            return f"source: {self.source}"
        missing = [knob.name for knob in self.knobs if knob.why]
        missing += [name for name in SOURCES if name not in {knob.name for knob in self.knobs}]
        unsure = [knob.name for knob in self.knobs if knob.removes is None and not knob.why]
        parts = [f"{', '.join(unsure)} may remove it, or chance did: more --repeat"] if unsure else []
        parts += [f"not tried: {', '.join(missing)}"] if missing else []
        return "source not known; " + "; ".join(parts or ["no knob removes it"])


def parse_knobs(text: str | None) -> tuple[str, ...]:
    """`--ablate clock,seed,lanes,pacing`, or some of them. Raises WrongUsage."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word not in SOURCES:
            raise WrongUsage(f"--ablate: {word!r} is no knob", hint=", ".join(SOURCES))
    return tuple(dict.fromkeys(words))


def differs(tally: Tally) -> bool:
    return len(tally.outcomes) > 1 or tally.different > 0


def judged(name: str, bare: Tally, held: Tally) -> Knob:
    """Whether the knob takes the difference away. The repetitions among themselves decide, where they differ; else
    that they differ from the recording."""
    knob = Knob(name=name, tally=held)
    if len(bare.outcomes) > 1:
        gone = len(held.outcomes) == 1
        chance = sum((count / bare.n) ** held.n for count in bare.outcomes)
    else:
        gone = held.different == 0
        chance = ((bare.n - bare.different) / bare.n) ** held.n
    if not gone:
        return replace(knob, removes=False)
    return replace(knob, removes=True if chance < ALPHA else None, chance=round(chance, 4))
