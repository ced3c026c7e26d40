"""Where agents come in while a recording is replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A listener for one environment. `origin` is as advertised, `port` the one that was bound; `path` is the
    environment's own, which the agent's URL keeps. `port_episode`: the one episode that is answered here. Of a request
    that came by the forward proxy, `origin` is "": nothing in its answer is put right for the agent."""

    env: str
    origin: str
    port: int
    path: str = ""
    port_episode: str | None = None

    @property
    def url(self) -> str:
        return self.origin + self.path

    @property
    def is_forward(self) -> bool:
        return not self.origin

    def episode_url(self, encoded_name: str) -> str:
        """The URL for one episode in path style."""
        return f"{self.origin}/rp/{encoded_name}{self.path}"


ASIDE = b"-length"
"""With the front's header before it: the name of a field that is Content-Length again in the front."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """How one request came in. `asked`: the address that the agent wanted, where no environment has it. `is_http2`: the
    agent speaks that with the front."""

    door: Door
    proxy_user: str | None = None
    asked: str = ""
    is_http2: bool = False

    @property
    def why_not(self) -> str:
        """Why it cannot be answered from any episode; "" when it can."""
        return f"no environment of the recording has the address {self.asked}" if self.asked else ""


UNKNOWN = Door(env="", origin="", port=0)


@dataclass(slots=True, kw_only=True)
class FrontDoor:
    """The one door behind the front, through which requests of all environments come. A header that only the front can
    set says of each where it came in: environment, listener, proxy user, the address that was asked for, and the
    agent's version of HTTP, each percent-encoded, `-` for none."""

    header: str
    doors: dict[str, Door] = field(default_factory=dict)

    def entrance(self, headers: Mapping[str, str]) -> Entrance | None:
        """None: it did not come through the front."""
        words = headers.get(self.header, "").split(" ")
        if len(words) != 5:
            return None
        env, listener, user, asked, version = (
            None if word == "-" else unquote(word, errors="surrogateescape") for word in words
        )
        if listener is not None:
            door = self.doors.get(listener, UNKNOWN)
        else:
            door = Door(env=env, origin="", port=0) if env else UNKNOWN
        asked = (asked or "") if door is UNKNOWN else ""
        return Entrance(door=door, proxy_user=user, asked=asked, is_http2=version == "2")
