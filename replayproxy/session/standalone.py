"""The recorder inside a user's own mitmdump or mitmweb: identity by carriers only, no control API, no snapshots.

Options (`--set NAME=VALUE`): `replay_store`, `replay_run`, `replay_episode`, `replay_undeclared`, `replay_idle`, and
`replay_env` of the proxy's part. The first two also come from REPLAYPROXY_STORE and REPLAYPROXY_RUN.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from replayproxy import __version__
from replayproxy.core.extract import Extractors
from replayproxy.core.identity import EpisodeBook
from replayproxy.core.names import suggestion, why_not_a_name
from replayproxy.core.values import EnvWiring, Episode, Exchange, Outcome, Run
from replayproxy.errors import Problem, WrongUsage
from replayproxy.proxy.scribe import Ticket
from replayproxy.proxy.standalone import standalone_addon
from replayproxy.session import secrecy, tally_text, wiring
from replayproxy.session.addresses import Addresses
from replayproxy.session.camera import Plan
from replayproxy.session.episodes import Episodes
from replayproxy.session.identities import Identities
from replayproxy.session.record_options import ALPHABET
from replayproxy.session.recording import Recording
from replayproxy.state.capture import Capture
from replayproxy.storage import Store, Writer, open_store

OPTIONS = {
    "replay_store": ("", "The store. Default: REPLAYPROXY_STORE, else ./.replayproxy."),
    "replay_run": ("", "The run's name. Default: REPLAYPROXY_RUN, else date, time and four letters."),
    "replay_episode": ("", "Traffic that names no episode belongs to this one."),
    "replay_undeclared": ("accept", "accept or refuse: what an id first seen in a request does."),
    "replay_keep_secrets": ("", "yes: credentials are stored as they are sent."),
    "replay_idle": ("10m", "An episode without traffic is sealed after this time."),
}
SEAL_SECONDS = 7.0

log = logging.getLogger("replayproxy")


class _Environments(Recording):
    """A recording whose environments become known by their traffic."""

    def finished(self, ticket: Ticket, exchange: Exchange) -> None:
        if exchange.env not in self.run.envs and exchange.upstream:
            wired = EnvWiring(name=exchange.env, upstream=exchange.upstream)
            self.run = replace(self.run, envs={**self.run.envs, exchange.env: wired})
            self.writer.update_run(self.run)
        super().finished(ticket, exchange)


class _Flows:
    """What `Episodes` wants of a proxy: here it is the user's, and only the recording of a flow is ours to end."""

    def __init__(self, addon: Any) -> None:
        self._addon = addon

    async def unlisten(self, listener: Any) -> None:
        """There is none of ours to close: `listen` gives none."""

    async def listen(self, *_: Any, **__: Any) -> Any:
        # Only the control API opens listeners, and here there is no control API.
        raise RuntimeError("the listeners are those of the user's own mitmproxy")

    def release(self, wanted: Callable[[Ticket], bool], *, streams_only: bool = False) -> int:
        count = 0
        for live in tuple(self._addon.open):
            if live.ticket and not live.ended and (live.is_stream or not streams_only) and wanted(live.ticket):
                live.release(Outcome.OPEN_AT_END, error="open at end")
                count += 1
        return count


class _Late:
    """The recording, for the proxy's part, which is made before the options are known."""

    def __init__(self) -> None:
        self.recording: Recording | None = None

    def __getattr__(self, name: str) -> Any:
        if self.recording is None:
            raise RuntimeError("the recording has not begun")
        return getattr(self.recording, name)


class StandaloneRecorder:
    """A mitmproxy add-on that holds the record add-on, and opens and closes the store around it."""

    name = "replayproxy"

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._late = _Late()
        self._record = standalone_addon(self._late, now=time.monotonic_ns, wall=time.time_ns)
        self.addons = [self._record]
        self._options: Any = None
        self._store: Store | None = None
        self._writer: Writer | None = None
        self._episodes: Episodes | None = None
        self._idle: asyncio.Task[None] | None = None

    # -- mitmproxy's hooks ---------------------------------------------------------------------------------------

    def load(self, loader: Any) -> None:
        self._options = loader.master.options
        for name, (default, text) in OPTIONS.items():
            loader.add_option(name, str, default, text)

    async def running(self) -> None:
        try:
            self._open()
        except Problem as problem:
            # Said where mitmdump looks for errors at start, so that it ends instead of running unrecorded.
            log.error("replayproxy: %s", problem)
            raise SystemExit(int(problem.exit)) from None

    async def done(self) -> None:
        if self._episodes is None or self._writer is None or self._store is None or self._recording is None:
            return
        if self._idle is not None:
            self._idle.cancel()
        self._episodes.engine.release(lambda _: True)
        deadline = asyncio.get_running_loop().time() + SEAL_SECONDS
        await self._episodes.end_all(deadline)
        await self._recording.close(deadline)
        self._tell()
        try:
            self._writer.close()
        except Problem as problem:
            log.error("replayproxy: %s", problem)
        self._store.close()

    # -- open and close ------------------------------------------------------------------------------------------

    def _option(self, name: str, fallback: str = "") -> str:
        return str(getattr(self._options, name) or fallback)

    def _open(self) -> None:
        store = self._option("replay_store", os.environ.get("REPLAYPROXY_STORE") or ".replayproxy")
        letters = "".join(secrets.choice(ALPHABET) for _ in range(4))
        dated = f"{time.strftime('%Y%m%d-%H%M%S')}-{letters}"
        run = self._option("replay_run", os.environ.get("REPLAYPROXY_RUN") or dated)
        episode = self._option("replay_episode") or None
        if episode is not None and (why := why_not_a_name(episode)):
            raise WrongUsage(f"replay_episode {episode!r}: {why}", hint=suggestion(episode))
        if (undeclared := self._option("replay_undeclared")) not in ("accept", "refuse"):
            raise WrongUsage(f"replay_undeclared: {undeclared!r} is neither accept nor refuse")
        idle = wiring.seconds(self._option("replay_idle"), "replay_idle")
        self._store = open_store(Path(store), create=True)
        redactor = secrecy.for_recording(Path(store), keep=self._keeps())
        self._writer = self._store.writer(redactor=redactor)
        opened = self._writer.open_run(
            Run(
                key=0,
                name=run,
                opened_wall=time.time_ns(),
                snapshot_when=(),
                version=__version__,
                config={"secrets": secrecy.wired(redactor)},
            )
        )
        book = EpisodeBook(undeclared=undeclared, option=episode)
        self._recording = _Environments(
            writer=self._writer, run=opened, envs=(), book=book,
            identities=Identities(Extractors(()), book, secrecy.shown_as(self._writer.redactor)),
            capture=Capture([], save=self._writer.put_nodes, now=time.monotonic_ns, wall=time.time_ns),
            plan=Plan(when=()), now=time.monotonic_ns, wall=time.time_ns,
        )  # fmt: skip
        self._late.recording = self._recording
        flows = _Flows(self._record)
        self._episodes = Episodes(self._recording, flows, Addresses(engine=flows, envs=()))
        if episode is not None:
            now = time.monotonic_ns()
            self._recording.ledger.open(Episode(key=0, run_key=0, name=episode, opened=now, opened_wall=time.time_ns()))
        self._idle = asyncio.get_running_loop().create_task(self._watch_idle(idle))
        log.info("replayproxy: recording run %s into %s", run, store)
        for line in secrecy.told(redactor):
            log.info("replayproxy: %s", line)

    def _keeps(self) -> bool:
        given = self._option("replay_keep_secrets").lower()
        if given not in ("", "yes", "no", "true", "false"):
            raise WrongUsage(f"replay_keep_secrets: {given!r} is neither yes nor no")
        return given in ("yes", "true")

    async def _watch_idle(self, idle: float) -> None:
        assert self._episodes is not None
        while True:
            await asyncio.sleep(min(max(idle / 4, 0.05), 5.0))
            await self._episodes.end_idle(idle)

    def _tell(self) -> None:
        assert self._recording is not None
        counts = self._recording.tally
        upstreams = {name: env.upstream for name, env in self._recording.run.envs.items()}
        assert self._store is not None
        said = tally_text.lines(
            counts, seconds=0, upstreams=upstreams, instances={}, store=str(self._store.path), size=0
        )
        whole = not counts.why_not_whole()
        for line in said[:-1]:
            log.log(logging.INFO if whole else logging.WARNING, "%s", line)


def standalone_record_addon() -> StandaloneRecorder:
    """What addons/record.py puts into its list."""
    return StandaloneRecorder()
