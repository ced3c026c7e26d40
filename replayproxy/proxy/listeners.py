"""Where agents connect: one reverse listener per environment or per episode, each on a socket of our own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

DYNAMIC = "dynamic"
"""The upstream of a listener whose environment comes with each request's ticket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvOptions:
    """What `--env NAME=URL,key=value` says about an environment.

    `host_header`: "upstream" writes the environment's own authority in place of the agent's Host, "keep" leaves it.
    `ca`: PEM file that an https upstream is verified against; `insecure`: it is not verified at all.
    """

    host_header: Literal["upstream", "keep"] = "upstream"
    ca: Path | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listening address. `origin` is `scheme://host:port`; `url` is the origin plus the upstream's path; neither
    ends in a slash. Both are the advertised form where one was given, `bound` is what the socket says."""

    env: str
    url: str
    origin: str
    upstream: str
    bound: tuple[str, int]
    port_episode: str | None = None
    options: EnvOptions = field(default_factory=EnvOptions)

    def episode_url(self, encoded_name: str) -> str:
        """The URL for one episode in path style; `encoded_name` is percent-encoded."""
        return f"{self.origin}/rp/{encoded_name}{self.url.removeprefix(self.origin)}"
