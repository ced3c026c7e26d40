"""The replayproxy client for a harness: one file, standard library only, Python 3.9 or later.

    import replayproxy_client as replayproxy            # or: import replayproxy

    with replayproxy.episode(task="crm-7", seed=7) as ep:
        httpx.get(ep.url("crm", default="http://127.0.0.1:9000") + "/deals/42")
        ep.reward = 1.0
    print(ep.verdict, ep.mask)

`async with replayproxy.episode(..)` works the same; without `with`: `ep = open_episode(..)`, `ep.end(reward)`, or
`await aopen_episode(..)`, `await ep.aend(reward)`.

Without `REPLAYPROXY_CONTROL` everything here is inert: `ep.url("crm", default=URL)` gives the address that a replay
has put in `REPLAYPROXY_URL_CRM`, else the default, else raises LookupError. With it and no recorder there, opening
raises RecorderGone, unless `REPLAYPROXY_OPTIONAL=1`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import secrets
import urllib.error
import urllib.parse
import urllib.request
import warnings
from typing import Any, Dict, List, Mapping, Optional, Type

__all__ = ["Episode", "RecorderGone", "RecorderRefused", "aopen_episode", "episode", "open_episode"]

_TIMEOUT = 120.0


class RecorderGone(ConnectionError):
    """REPLAYPROXY_CONTROL names a recorder, and none answers there."""


class RecorderRefused(RuntimeError):
    """The recorder said no. `status` is the HTTP status, `document` the RFC 9457 document, `suggestion` its `try`."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__("%s (%d)" % (document.get("detail") or document.get("title") or "refused", status))
        self.status = status
        self.document = dict(document)
        self.suggestion = document.get("try")


@functools.lru_cache(maxsize=None)
def _opener() -> urllib.request.OpenerDirector:
    """One for all calls: making one reads the system's certificates, which costs 25 ms."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _call(control: str, token: Optional[str], method: str, path: str, body: Optional[Mapping[str, Any]] = None) -> Any:
    """One call of the control API. Proxy variables are not looked at: the way to the recorder is never recorded."""
    headers = {"Accept": "application/json"}
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body).encode("utf-8")
    if token:
        headers["Authorization"] = "Bearer " + token
    request = urllib.request.Request(control.rstrip("/") + path, data=data, headers=headers, method=method)
    try:
        with _opener().open(request, timeout=_TIMEOUT) as answer:
            return json.loads(answer.read().decode("utf-8"))
    except urllib.error.HTTPError as refused:
        with refused:
            raw = refused.read()
        try:
            document = json.loads(raw.decode("utf-8"))
        except ValueError:
            document = {"detail": raw.decode("utf-8", "replace")[:200]}
        raise RecorderRefused(refused.code, document if isinstance(document, dict) else {}) from None
    except (OSError, ValueError) as gone:
        reason = getattr(gone, "reason", gone)
        raise RecorderGone("no recorder answers at REPLAYPROXY_CONTROL=%s: %s" % (control, reason)) from None


class Episode:
    """One rollout. Set `reward`, `outcome` and `meta` before it ends; `verdict`, `mask` and the rest are there after.

    `name` is None while inert and unnamed. An exception that leaves the `with` block becomes the outcome
    `raised NAME`, where no outcome was set, and goes on.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = {key: value for key, value in fields.items() if value is not None}
        self._control: Optional[str] = os.environ.get("REPLAYPROXY_CONTROL") or None
        self._token = os.environ.get("REPLAYPROXY_TOKEN") or None
        self._optional = os.environ.get("REPLAYPROXY_OPTIONAL") == "1"
        self._ended = False
        self._canaries: Dict[str, str] = {}
        self.name: Optional[str] = self._fields.get("episode")
        self.urls: Dict[str, str] = {}
        self.reward: Optional[float] = None
        self.outcome: Optional[str] = None
        self.meta: Dict[str, Any] = {}
        self.state: Optional[str] = None
        self.verdict: str = "unknown"
        self.mask: bool = False
        self.reasons: List[Dict[str, Any]] = []
        self.coverage: Dict[str, Any] = {}

    @property
    def active(self) -> bool:
        """Whether a recorder records this episode."""
        return self._control is not None

    # -- what the agent needs ------------------------------------------------------------------------------------

    def url(self, env: str, default: Optional[str] = None) -> str:
        """The environment's address for this episode, without a trailing slash.

        While recording, an environment that the recorder does not have is a LookupError even with a default: going
        past the recorder unseen would be worse.
        """
        if self.active:
            if env in self.urls:
                return self.urls[env]
            raise LookupError(
                "the recorder has no environment %r for this episode, it has %s"
                % (env, ", ".join(sorted(self.urls)) or "none")
            )
        served = os.environ.get("REPLAYPROXY_URL_" + env.upper().replace("-", "_").replace(".", "_"))
        if served:
            return self._marked(served.rstrip("/"))
        if default is None:
            raise LookupError("no recorder (REPLAYPROXY_CONTROL is not set) and no default for %r" % (env,))
        return default

    def _marked(self, url: str) -> str:
        if self.name is None or urllib.parse.urlsplit(url).path.startswith("/rp/"):
            return url
        parts = urllib.parse.urlsplit(url)
        return "%s://%s/rp/%s%s" % (parts.scheme, parts.netloc, urllib.parse.quote(self.name, safe=""), parts.path)

    @property
    def headers(self) -> Dict[str, str]:
        """The header that marks a request with this episode, for a client that cannot take another address."""
        return {} if self.name is None else {"X-Replay-Episode": urllib.parse.quote(self.name, safe="")}

    def lane(self, name: str) -> Dict[str, str]:
        """The headers of one lane of this episode: parallel tool calls are told apart by them."""
        return dict(self.headers, **{"X-Replay-Lane": urllib.parse.quote(name, safe="")}) if self.headers else {}

    # -- life ----------------------------------------------------------------------------------------------------

    def open(self) -> "Episode":
        """Opens it on the recorder; when it returns the start snapshot has been taken."""
        if self._control is None:
            return self
        try:
            answer = _call(self._control, self._token, "POST", "/v1/episodes", self._fields)
        except RecorderGone as gone:
            if not self._optional:
                raise
            warnings.warn("%s; not recorded (REPLAYPROXY_OPTIONAL=1)" % gone, RuntimeWarning, stacklevel=3)
            self._control = None
            return self
        self.name = answer["episode"]
        self.urls = dict(answer["urls"])
        return self

    def mark(self, step: Optional[int] = None, label: Optional[str] = None, data: Any = None) -> None:
        """Puts a mark into the recording."""
        given = {"step": step, "label": label, "data": data}
        self._post("mark", {key: value for key, value in given.items() if value is not None})

    def canary(self, label: str = "") -> str:
        """A token that no other episode has, for a free-text field of what the agent writes; the recording says whose
        it is. If another episode is ever shown it, that is a proven leak. One label has one token; while a recording
        is replayed it is the recorded one. Inert it is a token all the same.
        """
        if label not in self._canaries:
            if self.active and self.name is None:
                raise RuntimeError("the episode is not open yet: nobody would know whose the canary is")
            token = "rpc-" + secrets.token_hex(8)
            answer = self._post("mark", {"label": "canary", "data": {"canary": token, "for": label}})
            self._canaries[label] = (answer or {}).get("canary") or token
        return self._canaries[label]

    def snapshot(self, label: Optional[str] = None) -> List[Dict[str, Any]]:
        """Takes the configured snapshots now, and says what became of each."""
        answer = self._post("snapshot", {} if label is None else {"label": label})
        return list(answer.get("snapshots", [])) if answer else []

    def end(self, reward: Optional[float] = None, outcome: Optional[str] = None) -> "Episode":
        """Ends it; when it returns everything is on disk. A second call does nothing."""
        if reward is not None:
            self.reward = reward
        if outcome is not None:
            self.outcome = outcome
        if self._ended or not self.active:
            self._ended = True
            return self
        given = {"reward": self.reward, "outcome": self.outcome, "meta": self.meta or None}
        answer = self._post("end", {key: value for key, value in given.items() if value is not None})
        self._ended = True
        if answer:
            self.state, self.verdict, self.mask = answer["state"], answer["verdict"], bool(answer["mask"])
            self.reasons, self.coverage = answer["reasons"], answer["coverage"]
        return self

    def _post(self, verb: str, body: Mapping[str, Any]) -> Any:
        if self._control is None or self.name is None:
            return None
        path = "/v1/episodes/%s/%s" % (urllib.parse.quote(self.name, safe=""), verb)
        try:
            return _call(self._control, self._token, "POST", path, body)
        except RecorderGone as gone:
            if not self._optional:
                raise
            warnings.warn("%s (REPLAYPROXY_OPTIONAL=1)" % gone, RuntimeWarning, stacklevel=3)
            return None

    def _leave(self, kind: Optional[Type[BaseException]]) -> None:
        if kind is None:
            self.end()
            return
        if self.outcome is None:
            self.outcome = "raised " + kind.__name__
        try:
            self.end()
        except (RecorderGone, RecorderRefused):
            pass  # what the caller's own code raised matters more, and it is under way

    def __enter__(self) -> "Episode":
        return self.open()

    def __exit__(self, kind: Optional[Type[BaseException]], *_rest: Any) -> None:
        self._leave(kind)

    # -- the same, for asyncio -----------------------------------------------------------------------------------

    async def aopen(self) -> "Episode":
        await _in_thread(self.open)
        return self

    async def amark(self, step: Optional[int] = None, label: Optional[str] = None, data: Any = None) -> None:
        await _in_thread(self.mark, step, label, data)

    async def acanary(self, label: str = "") -> str:
        token: str = await _in_thread(self.canary, label)
        return token

    async def asnapshot(self, label: Optional[str] = None) -> List[Dict[str, Any]]:
        taken: List[Dict[str, Any]] = await _in_thread(self.snapshot, label)
        return taken

    async def aend(self, reward: Optional[float] = None, outcome: Optional[str] = None) -> "Episode":
        await _in_thread(self.end, reward, outcome)
        return self

    async def __aenter__(self) -> "Episode":
        return await self.aopen()

    async def __aexit__(self, kind: Optional[Type[BaseException]], *_rest: Any) -> None:
        await _in_thread(self._leave, kind)


async def _in_thread(call: Any, *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


def episode(
    episode: Optional[str] = None,
    *,
    task: Optional[str] = None,
    seed: Optional[int] = None,
    attempt: Optional[int] = None,
    group: Optional[str] = None,
    meta: Optional[Mapping[str, Any]] = None,
    envs: Optional[Mapping[str, str]] = None,
    snapshots: Optional[Mapping[str, str]] = None,
    instance: Optional[Mapping[str, str]] = None,
    url_style: Optional[str] = None,
) -> Episode:
    """An episode for `with` or `async with`; it is opened on entry and ended on exit."""
    return Episode(
        {
            "episode": episode, "task": task, "seed": seed, "attempt": attempt, "group": group, "meta": meta,
            "envs": envs, "snapshots": snapshots, "instance": instance, "url_style": url_style,
        }
    )  # fmt: skip


def open_episode(name: Optional[str] = None, **fields: Any) -> Episode:
    """An episode that is open already; the caller calls `.end(reward)`."""
    return episode(fields.pop("episode", name), **fields).open()


async def aopen_episode(name: Optional[str] = None, **fields: Any) -> Episode:
    """The same for asyncio; the caller awaits `.aend(reward)`."""
    return await episode(fields.pop("episode", name), **fields).aopen()
