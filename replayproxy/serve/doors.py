"""Where agents come in while a recording is replayed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A listener for one environment. `origin` is as advertised, `port` the one that was bound; `path` is the
    environment's own, which the agent's URL keeps. `port_episode`: the one episode that is answered here."""

    env: str
    origin: str
    port: int
    path: str = ""
    port_episode: str | None = None

    @property
    def url(self) -> str:
        return self.origin + self.path

    def episode_url(self, encoded_name: str) -> str:
        """The URL for one episode in path style."""
        return f"{self.origin}/rp/{encoded_name}{self.path}"
