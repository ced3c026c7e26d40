"""The forward proxy of a recording: which environment its traffic belongs to."""

from __future__ import annotations

from dataclasses import replace

from replayproxy.core.values import EnvWiring
from replayproxy.proxy.listeners import EnvOptions
from replayproxy.proxy.routes import Upstream
from replayproxy.session.addresses import options_of
from replayproxy.session.recording import Recording


class RecordedNames:
    """The `Naming` of a recording: an origin that nobody named becomes an environment of the run."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def env_of(self, at: Upstream, target: bytes) -> str:
        recording = self._recording
        name, is_new = recording.ledger.origins.name_for(at, target)
        if is_new:
            wired = EnvWiring(name=name, upstream=at.origin, options={"forward": True})
            recording.run = replace(recording.run, envs={**recording.run.envs, name: wired})
            recording.writer.update_run(recording.run)
        return name

    async def learn(self, at: Upstream) -> None:
        """It is known here."""

    def options_of(self, at: Upstream) -> EnvOptions:
        spec = self._recording.envs.get(self._recording.ledger.origins.name_of(at) or "")
        return options_of(spec) if spec else EnvOptions()
