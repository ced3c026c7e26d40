"""Which environment an address belongs to, where the agent names addresses itself: in forward mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from replayproxy.core.values import EnvWiring, Episode
from replayproxy.proxy.routes import Upstream, env_of_authority, parse_upstream
from replayproxy.session.wiring import DYNAMIC

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Origins:
    """The environments' origins. Of several on one origin, the one whose path is the longest that begins the target
    is meant. The names of the loopback are one, where none fits as it is written."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, str, int], list[tuple[bytes, str]]] = {}
        self._names: set[str] = set()

    @classmethod
    def of(cls, envs: Iterable[EnvWiring], episodes: Iterable[Episode] = ()) -> Origins:
        """Those of a run: its environments, and what its episodes put in the place of dynamic ones."""
        made = cls()
        for env in envs:
            made.add(env.name, env.upstream)
        for episode in episodes:
            for name, url in episode.envs.items():
                made.add(name, url)
        return made

    def add(self, name: str, url: str) -> None:
        """A dynamic environment has no origin of its own: only its name is taken."""
        self._names.add(name)
        if url == DYNAMIC or not url:
            return
        at = parse_upstream(url)
        entry = (at.path.encode(), name)
        for key in _keys(at):
            held = self._at.setdefault(key, [])
            if entry not in held:
                held.append(entry)
                held.sort(key=lambda pair: -len(pair[0]))

    @property
    def ports(self) -> frozenset[int]:
        """Every port that one of the environments has, on whatever host."""
        return frozenset(port for _, _, port in self._at)

    def name_of(self, at: Upstream, target: bytes = b"/") -> str | None:
        for key in _keys(at):
            held = self._at.get(key)
            if held:
                return next((name for path, name in held if _below(path, target)), held[0][1])
        return None

    def name_for(self, at: Upstream, target: bytes = b"/") -> tuple[str, bool]:
        """(name, whether it is a new one): an origin that nobody named is named by its authority, and no two share
        a name."""
        found = self.name_of(at, target)
        if found is not None:
            return found, False
        base = name = env_of_authority(at.authority)
        number = 2
        while name in self._names:
            name, number = f"{base}-{number}", number + 1
        self.add(name, at.origin)
        return name, True


def _keys(at: Upstream) -> Iterator[tuple[str, str, int]]:
    host = at.host.lower().removesuffix(".")
    yield at.scheme, host, at.port
    if host in _LOOPBACK:
        yield at.scheme, "(loopback)", at.port


def _below(path: bytes, target: bytes) -> bool:
    return target.startswith(path) and target[len(path) : len(path) + 1] in (b"", b"/", b"?")
