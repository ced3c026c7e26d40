"""The state side of a re-drive: what was there is kept, the recorded start is put back and read, snapshots are taken.

Nothing is overwritten before the state found is on disk as snapshot `before-restore`; nothing is sent before the state
read back is the recorded one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from replayproxy.core import prolly
from replayproxy.core.canonical import body_of
from replayproxy.core.jsonvalue import canonical, pointer
from replayproxy.core.redact import Redactor
from replayproxy.core.treediff import tree_diff
from replayproxy.core.values import Outcome, Request, RowChange, Snapshot, SnapshotStatus, Trace
from replayproxy.drive.message import message
from replayproxy.drive.origin import Origin, origin
from replayproxy.drive.wire import Lines
from replayproxy.errors import CannotJudge, RestoreUnfaithful, WorldTrouble
from replayproxy.session.redrive_targets import Targets
from replayproxy.session.wiring import Reset
from replayproxy.state.capture import Capture, Overlapping
from replayproxy.state.discreet import discreet
from replayproxy.state.provider import CannotRestore
from replayproxy.state.restore import read_root, restore

RESET_LIMIT = 60.0
SHOWN_ROWS = 3


@dataclass(slots=True, kw_only=True)
class Restored:
    """What stands at the start of a repetition. `by`: snapshot or environment -> "provider", "reset" or "found" (it
    was there already). `verified`: snapshots whose root read back is the recorded one. `open`: why the start is not
    known to be the recorded one, of each environment where it is not. `answers_only`: environments that were reset
    and have no snapshot to verify it by."""

    by: dict[str, str] = field(default_factory=dict)
    verified: dict[str, bytes] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    answers_only: list[str] = field(default_factory=list)


class States:
    """The snapshots and resets of one episode's re-drive, over all its repetitions. `load` gives recorded nodes;
    `save` takes new ones, which are kept here too, so that both sides can be compared."""

    def __init__(
        self, trace: Trace, targets: Targets, *, load: prolly.Load, save: Callable[[Mapping[bytes, bytes]], None],
        say: Callable[[str], None], redactor: Redactor | None = None,
    ) -> None:  # fmt: skip
        self._redactor = redactor or Redactor(None)
        loaded = [discreet(one, self._redactor) for one in targets.loaded]
        self._trace, self._targets, self._say = trace, targets, say
        self._load_recorded, self._save_too = load, save
        self._nodes: dict[bytes, bytes] = {}
        self._capture = Capture(
            loaded, save=self.save, now=time.monotonic_ns, wall=time.time_ns,
            envs={*trace.run.envs, *targets.envs},
        )  # fmt: skip
        self._loaded = {one.name: one for one in loaded}
        self._starts = {s.name: s for s in trace.snapshots if s.when == "start" and _usable(s)}
        self._numbers = 0

    def save(self, nodes: Mapping[bytes, bytes]) -> None:
        self._nodes.update(nodes)
        self._save_too(nodes)

    def load(self, address: bytes) -> bytes:
        """A node of either side."""
        return self._nodes[address] if address in self._nodes else self._load_recorded(address)

    def close(self) -> None:
        self._capture.close()

    # -- before ------------------------------------------------------------------------------------------------------

    async def found(self) -> list[Snapshot]:
        """The state as it is now, of everything that a restore may overwrite. CannotJudge when any cannot be read."""
        kept = []
        for number, name in enumerate(self._loaded):
            shot = await self._capture.take(name, when="before-restore", n=number, mode="hold")
            if shot.status is not SnapshotStatus.TAKEN:
                raise CannotJudge(
                    f"snapshot {name}: the state found cannot be kept ({shot.reason}); nothing was overwritten",
                    hint=f"--snapshot {name}=SPEC where it lies on this machine; replayproxy doctor tries it",
                )
            kept.append(shot)
        return kept

    # -- restore -----------------------------------------------------------------------------------------------------

    async def restore(self) -> Restored:
        """Puts the recorded start back and reads it. RestoreUnfaithful names the first row that differs."""
        done = Restored()
        for env in self._targets.envs:
            if env in self._targets.resets:
                await self._reset(env, self._targets.resets[env], done)
        for name in self._loaded:
            owner = self._capture.env_of(name)
            if name in self._starts and (owner is None or owner not in done.by):
                await self._write(name, owner, done)
        for env in self._targets.envs:
            if not any(env == key.partition(".")[0] for key in done.by) and not self._shared(done):
                await self._fall_back(env, done)
        await self._read_back(done)
        self._judge(done)
        return done

    async def reset(self) -> Restored:
        """Sends the environments' own resets, and puts nothing back: what they leave stays. Raises CannotJudge."""
        done = Restored()
        for env in self._targets.envs:
            known = self._targets.resets.get(env) or self._targets.fallbacks.get(env)
            if known is not None:
                await self._reset(env, known, done)
        if done.open:
            raise CannotJudge("; ".join(f"{env}: {why}" for env, why in done.open.items()))
        return done

    async def hook(self, requests: Sequence[Reset]) -> None:
        """Sends what sets an environment's clock or seed. Raises CannotJudge when it does not take it."""
        for one in requests:
            self._say(f"{one.env}: {one.method} {self._redactor.text(one.url)}")
            status = await send_reset(one.filled(os.environ), self._targets.envs[one.env].origin)
            if not 200 <= status < 400:
                raise CannotJudge(f"{one.env}: {one.method} {urlsplit(one.url).path} answered {status}")

    def _shared(self, done: Restored) -> bool:
        """Whether a snapshot that belongs to all environments was written back."""
        return any(self._capture.env_of(name) is None for name in done.by if name in self._loaded)

    async def _write(self, name: str, env: str | None, done: Restored) -> None:
        start = self._starts[name]
        assert start.root is not None
        self._say(f"overwriting the state of {name} ({self._loaded[name].spec}) with {self._address(start)}")
        try:
            found = await restore(
                self._loaded[name], start.root, self._load_recorded, save=self.save, aside=start.aside
            )
        except CannotRestore as cannot:
            reset = self._targets.fallbacks.get(env or "")
            if reset is None or env is None:
                self._say(f"{name}: {cannot.what}, and there is no reset")
                return
            if env not in done.by:
                await self._reset(env, reset, done)
            return
        done.by[name] = "provider"
        if found == start.root:
            done.verified[name] = found
        else:
            raise self._unfaithful(name, start.root, found, "restore")

    async def _fall_back(self, env: str, done: Restored) -> None:
        if env in self._targets.fallbacks:
            await self._reset(env, self._targets.fallbacks[env], done)

    async def _reset(self, env: str, reset: Reset, done: Restored) -> None:
        self._say(f"resetting {env}: {reset.method} {self._redactor.text(reset.url)}")
        status = await send_reset(reset.filled(os.environ), self._targets.envs[env].origin)
        done.by[env] = "reset"
        if not 200 <= status < 400:
            done.open[env] = f"its reset answered {status}"

    async def _read_back(self, done: Restored) -> None:
        """The roots of what the provider has not verified itself."""
        for name, loaded in self._loaded.items():
            start = self._starts.get(name)
            if start is None or start.root is None or name in done.verified:
                continue
            found = await read_root(loaded, save=self.save)
            env = self._capture.env_of(name)
            by = done.by.get(name) or done.by.get(env or "") or ""
            if found != start.root:
                raise self._unfaithful(name, start.root, found, by)
            done.verified[name] = found
            done.by.setdefault(name, by or "found")

    def _judge(self, done: Restored) -> None:
        for env in self._targets.envs:
            names = [name for name in done.verified if self._capture.env_of(name) in (env, None)]
            if names:
                done.open.pop(env, None)
            elif env in done.open:
                continue
            elif done.by.get(env) == "reset":
                done.answers_only.append(env)
            else:
                reasons = [f"{name}: {why}" for name, why in self._targets.unusable.items() if _of(name, env)]
                reasons += [
                    f"{shot.name}: no start state was recorded ({shot.reason or shot.status})"
                    for shot in self._trace.snapshots
                    if shot.when == "start" and not _usable(shot) and _of(shot.name, env)
                ]
                done.open[env] = "; ".join(reasons) or "there is neither a snapshot nor a reset"

    def _unfaithful(self, name: str, wanted: bytes, found: bytes, by: str) -> RestoreUnfaithful:
        changes = prolly.diff(wanted, found, self._load_recorded, self.load)
        rows = "; ".join(row_text(change) for change in islice(changes, SHOWN_ROWS))
        more = sum(1 for _ in changes)
        lead = f"after the {by}" if by else "nothing restores it, and"
        return RestoreUnfaithful(
            f"{lead} {name} is not as it was recorded: {rows}{f' (and {more} more rows)' if more else ''};"
            " nothing was sent",
            hint=self._advice(name, by),
        )

    def _advice(self, name: str, by: str) -> str:
        env = self._capture.env_of(name)
        if by != "reset" or env not in self._targets.resets or not self._starts[name].can_restore:
            return "see to the restore, or give --reset / --snapshot that can"
        why = "what it stamps with the time of the reset is never as recorded"
        return f"leave --reset {env} out: the provider of {name} writes the state back; {why}"

    def _address(self, snapshot: Snapshot) -> str:
        return f"{self._trace.address}/s{snapshot.n}"

    # -- while driving -----------------------------------------------------------------------------------------------

    async def take(
        self, recorded: Sequence[Snapshot], *, after: tuple[int, int] | None, overlapping: Overlapping
    ) -> list[Snapshot]:
        """The live counterparts of recorded snapshots, in their order."""
        taken = []
        for shot in recorded:
            if shot.name in self._loaded:
                self._numbers += 1
                taken.append(
                    await self._capture.take(
                        shot.name, when=shot.when, n=self._numbers - 1, mode=shot.mode, label=shot.label, after=after,
                        overlapping=overlapping,
                    )
                )  # fmt: skip
        return taken

    async def now(self, when: str) -> dict[str, Snapshot]:
        """Every state as it is now, by the snapshot's name. CannotJudge when one cannot be read."""
        taken = {name: await self._capture.take(name, when=when, n=0, mode="free") for name in self._loaded}
        for name, shot in taken.items():
            if shot.status is not SnapshotStatus.TAKEN:
                raise CannotJudge(f"snapshot {name} cannot be read now: {shot.reason or shot.status}")
        return taken

    def begin(self) -> None:
        """A repetition begins: its snapshots count from 0."""
        self._numbers = 0


def _usable(snapshot: Snapshot) -> bool:
    return snapshot.root is not None and snapshot.status is SnapshotStatus.TAKEN


def _of(name: str, env: str) -> bool:
    return name.partition(".")[0] == env


async def send_reset(reset: Reset, known: Origin) -> int:
    """The status of its answer. WorldTrouble when nobody answers. `known`: the environment, whose certificates hold
    for a reset at the same address."""
    parts = urlsplit(reset.url)
    where = origin(f"{parts.scheme}://{parts.netloc}")
    where = known if where == replace(known, path="") else where
    body = reset.body.encode()
    fields: list[tuple[bytes, bytes]] = [(b"Host", where.authority.encode()), (b"User-Agent", b"replayproxy")]
    if body:
        kind = b"application/json" if body[:1] in (b"{", b"[") else b"application/x-www-form-urlencoded"
        fields.append((b"Content-Type", kind))
    if body or reset.method not in ("GET", "HEAD", "DELETE"):
        fields.append((b"Content-Length", str(len(body)).encode()))
    request = Request(
        method=reset.method.encode(), target=reset.target, version=b"HTTP/1.1", fields=tuple(fields), body=body_of(body)
    )
    lines = Lines()
    try:
        answer = await lines.send("reset", where, message(request, host=None, pieces=lambda _: iter(())),
                                  limit=RESET_LIMIT)  # fmt: skip
    finally:
        lines.close()
    if answer.response is None or answer.outcome is not Outcome.ANSWERED:
        raise WorldTrouble(
            f"the reset of {reset.env} was not answered: {reset.method} {where.url}{urlsplit(reset.url).path}: "
            f"{answer.error or answer.outcome}",
            hint="is the environment up?",
        )
    return answer.response.status


def row_text(change: RowChange) -> str:
    """`deals/42 /stage "lead" | "won"`: table, key, pointer, recorded and live."""
    where = f"{change.table}/{change.key}"
    if change.before is None:
        return f"{where} is not recorded and was found: {short(change.after)}"
    if change.after is None:
        return f"{where} is recorded and was not found: {short(change.before)}"
    first = next(iter(tree_diff(change.before, change.after)), None)
    if first is None:
        return f"{where}  {short(change.before)} | {short(change.after)}"
    return f"{where} {pointer(*first.a_path)} {short(first.a)} | {short(first.b)}".replace("  ", " ")


def short(value: Any, limit: int = 80) -> str:
    """A value on one line, recorded first."""
    try:
        text = canonical(value).decode("utf-8", "backslashreplace")
    except TypeError:
        text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
