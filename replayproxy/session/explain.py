"""What a replay would answer to one request, asked offline: the same search over the same script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.misses import Document, miss_document, named
from replayproxy.core.nearest import Situation, nearest
from replayproxy.core.receipt import binding_document
from replayproxy.core.redact import Known
from replayproxy.core.replayer import Miss, Replayer
from replayproxy.core.rules import Rule
from replayproxy.core.values import UNATTRIBUTED, Body, Episode, Request, Run
from replayproxy.errors import Exit, WrongUsage
from replayproxy.proxy.head import take_marks
from replayproxy.serve.loading import load_script
from replayproxy.serve.stage import lane_of
from replayproxy.session import secrecy
from replayproxy.session.replay import chosen
from replayproxy.session.replay_rules import relaxation
from replayproxy.storage import Reader, Resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request as the agent would send it, marks and all. `env`, `lane` None: as the request and the run say."""

    request: Request
    env: str | None = None
    lane: str | None = None
    rules: Sequence[Rule] = ()
    today: date


def explain(reader: Reader, resolved: Resolved, question: Question) -> tuple[Document, int]:
    """The document, and the exit code: 0 it would be served, 1 it would be a miss. As at the start of the replay:
    nothing has been answered yet. Raises Problem for what cannot be replayed."""
    run, episodes, _ = chosen(reader, resolved)
    marks = take_marks(question.request.target, question.request.fields)
    request = replace(question.request, target=marks.target)
    episode = _episode(run, episodes, marks.claims.prefix or marks.claims.header or marks.claims.baggage)
    env = _env(run, question.env)
    request = secrecy.load(reader.env.path, run).request(request, env=env)
    lane = question.lane or lane_of(marks.claims)
    redactor = secrecy.load(reader.env.path, run)
    script = load_script(reader, run, episode, relaxation(run, question.rules, question.today), redactor)
    replayer = Replayer(script)
    request = redactor.request(request, Known(), env=env)  # as a replay does: what is asked is shown
    found = replayer.ask(script.identify(env, request), lane)
    asked = {"env": env, "lane": lane, "request": named(request)}
    if isinstance(found, Miss):
        now = Situation(asked=found.asked, lane=lane, consumers={})
        document = miss_document(script, found, nearest(script, now, lambda body: _loaded(reader, body)))
        return {"served": False, **document, **asked}, int(Exit.DIFFERENT)
    exchange = found.entry.exchange
    return {
        "served": True,
        "run": script.run,
        "episode": script.episode,
        **asked,
        "exchange": f"{script.address}/{found.entry.seq}",
        "grade": found.grade.value,
        "status": exchange.response.status if exchange.response else None,
        "outcome": exchange.outcome.value,
        "bindings": [binding_document(script, one) for one in (*replayer.bindings, *found.echoes)],
        "rules": [
            {"name": rule.name, "action": rule.action, "uses": replayer.uses[rule.name]}
            for rule in script.rules.rules
            if replayer.uses[rule.name]
        ],
        "expired_rules": [rule.name for rule in script.rules.expired],
    }, int(Exit.OK)


def _loaded(reader: Reader, body: Body) -> Body:
    return body if body.size > VIEW_LIMIT else replace(body, inline=reader.body(body))


def _episode(run: Run, episodes: Sequence[Episode], claimed: str | None) -> Episode:
    """The one that was named, else the one that the request is marked with, else the only one."""
    real = [episode for episode in episodes if episode.name != UNATTRIBUTED]
    if len(real) == 1:
        return real[0]
    found = next((episode for episode in real if episode.name == claimed), None)
    if found is None:
        raise WrongUsage(f"run {run.name} has {len(real)} episodes", hint=f"replayproxy explain {run.name}/EPISODE")
    return found


def _env(run: Run, given: str | None) -> str:
    known = ", ".join(run.envs) or "none"
    if given is not None and given not in run.envs:
        raise WrongUsage(f"--env {given}: run {run.name} has no such environment", hint=f"it has {known}")
    if given is None and len(run.envs) != 1:
        raise WrongUsage(f"run {run.name} has several environments", hint=f"--env, one of {known}")
    return given or next(iter(run.envs))
