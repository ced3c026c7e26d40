"""What is kept beside the exchanges, without secrets: a run's wiring, an episode's meta and faults, events, reasons.

Rules of this file: a member named like a credential loses its value, and so does a secret inside any other text. The
config's rules are kept whole: they name places, and must apply in replay as they did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from replayproxy.core.annotation import META
from replayproxy.core.known import Known
from replayproxy.core.redact import Redactor
from replayproxy.core.values import EnvWiring, Episode, Event, Run, Snapshot


def clean_run(redactor: Redactor, run: Run) -> Run:
    """A run without the secrets of its words: URLs, specs, resets, meta, faults."""
    if redactor.keeps:
        return run
    return replace(
        run,
        envs={name: _wiring(redactor, env) for name, env in run.envs.items()},
        snapshots={name: redactor.text(spec) for name, spec in run.snapshots.items()},
        meta=redactor.value(run.meta),
        faults=tuple(redactor.text(fault) for fault in run.faults),
    )


def _wiring(redactor: Redactor, env: EnvWiring) -> EnvWiring:
    reset = env.reset
    if reset is not None:
        method, url, body = reset
        form = not body.lstrip().startswith(("{", "["))
        # A form begins with a name; what is put in front makes it look like the query that it is.
        made = redactor.text(f"?{body}")[1:] if form and "=" in body else redactor.text(body)
        reset = method, redactor.text(url), made
    return replace(env, upstream=redactor.text(env.upstream), listener=redactor.text(env.listener), reset=reset)


def clean_episode(redactor: Redactor, episode: Episode, known: Known | None = None) -> Episode:
    """An episode without the secrets of its words. Its name, task and group are ids, and stay."""
    if redactor.keeps:
        return episode
    return replace(
        episode,
        meta=redactor.value(episode.meta, known),
        envs={name: redactor.text(url, known) for name, url in episode.envs.items()},
        outcome=episode.outcome and redactor.text(episode.outcome, known),
        faults=tuple(redactor.text(fault, known) for fault in episode.faults),
        annotated=_annotated(redactor, episode.annotated, known),
    )


def _annotated(redactor: Redactor, annotated: Mapping[str, Any], known: Known | None) -> Mapping[str, Any]:
    """What an annotation keeps of a member that it changed is as secret as the member."""
    if "said" not in annotated:
        return annotated
    said = dict(annotated["said"])
    if isinstance(said.get("outcome"), str):
        said["outcome"] = redactor.text(said["outcome"], known)
    # A name like `api_key` tells, and `meta.api_key` is none.
    meta = {name.removeprefix(META): value for name, value in said.items() if name.startswith(META)}
    cleaned = redactor.value(meta, known)
    return {**annotated, "said": {**said, **{META + name: value for name, value in cleaned.items()}}}


def clean_event(redactor: Redactor, event: Event, known: Known | None = None) -> Event:
    """An event without the secrets of its detail."""
    if redactor.keeps:
        return event
    return replace(event, detail=redactor.value(event.detail, known))


def clean_snapshot(redactor: Redactor, snapshot: Snapshot, known: Known | None = None) -> Snapshot:
    """A snapshot without the secrets of its reason and label; its rows are `state.discreet`'s."""
    if redactor.keeps or not (snapshot.reason or snapshot.label):
        return snapshot
    return replace(snapshot, reason=redactor.text(snapshot.reason, known), label=redactor.text(snapshot.label, known))
