"""`replayproxy episode`: an episode on the running recorder around any program."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from replayproxy import client
from replayproxy.cli.common import safe
from replayproxy.core.names import suggestion, variable, why_not_a_name
from replayproxy.errors import Exit, Problem, WorldTrouble, WrongUsage
from replayproxy.session import child
from replayproxy.session.files import is_special
from replayproxy.session.proxied import FORWARD_VARIABLE, episode_proxy
from replayproxy.session.record_options import writable_path
from replayproxy.session.signals import heard
from replayproxy.session.wiring import parse_meta

STOP_SECONDS = 3.0


@click.command(
    short_help="Open an episode on the running recorder around any program.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--episode", "name", metavar="NAME", help="Its name. Default: after the task.")
@click.option("--task", metavar="T")
@click.option("--seed", type=int, metavar="N")
@click.option("--attempt", type=int, metavar="N")
@click.option("--group", metavar="G")
@click.option("--meta", multiple=True, metavar="K=V", help="Repeatable.")
@click.option("--reward-file", type=click.Path(path_type=Path), metavar="PATH", help="Read at the end: a number.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND ..")
def command(
    command: tuple[str, ...], name: str | None, meta: tuple[str, ...], reward_file: Path | None, **fields: Any
) -> int:
    """Open an episode on the recorder of REPLAYPROXY_CONTROL, run COMMAND in it, and end it.

    COMMAND's REPLAYPROXY_URL_<NAME> lead into the episode, and so do {NAME} and the recorder's URL in it and the
    variables of `as=`. Its exit code is the outcome, and is passed on. The reward file holds a number, or
    {"reward": NUMBER}. In `record -- replayproxy episode -- COMMAND ..` it is record that fills in the braces: {NAME}
    leads into the episode there too, but {NAME.host} and {NAME.port} are the recorder's own.
    """
    if not os.environ.get("REPLAYPROXY_CONTROL"):
        raise WrongUsage("REPLAYPROXY_CONTROL is not set", hint="run it under replayproxy record, or set it")
    if name is not None and (why := why_not_a_name(name)):
        raise WrongUsage(f"--episode {name!r}: {why}", hint=f"--episode {suggestion(name)}")
    if reward_file is not None and not is_special(writable_path(reward_file, "--reward-file")):
        reward_file.unlink(missing_ok=True)
    episode = client.episode(name, meta=parse_meta(meta) or None, **fields)
    _asked(episode.open)
    code = asyncio.run(_run(command, episode))
    reward, trouble = (None, None) if reward_file is None else reward_of(reward_file)
    _asked(lambda: episode.end(reward=reward, outcome=f"exit {code}"))
    if trouble:
        click.echo(f"replayproxy: {safe(trouble)}", err=True)
        return code or int(Exit.UNJUDGED)
    return code


def _asked(call: Any) -> Any:
    """What the client says, in our own words."""
    try:
        return call()
    except client.RecorderGone as gone:
        raise WorldTrouble(str(gone), hint="is the recorder still running?") from None
    except client.RecorderRefused as refused:
        again = f"try {refused.suggestion}" if refused.suggestion else ""
        wrong: Problem = WrongUsage(str(refused), hint=again) if refused.status < 500 else WorldTrouble(str(refused))
        raise wrong from None


async def _run(command: tuple[str, ...], episode: client.Episode) -> int:
    """COMMAND's exit code; a signal to us ends it first, and the episode after it."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[int] = loop.create_future()

    def take(number: int) -> None:
        if not came.done():
            came.set_result(number)

    for number in heard():
        loop.add_signal_handler(number, take, number)
    words = child.filled(led_in(command, episode, os.environ), episode.urls)
    try:
        started = await child.start(words, variables(episode, os.environ), stdout_to_stderr=False)
    except child.NotStarted as problem:
        click.echo(f"replayproxy: {safe(str(problem))}", err=True)
        return int(problem.code)
    ended = asyncio.ensure_future(started.wait())
    await asyncio.wait((ended, came), return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        await started.stop(came.result(), STOP_SECONDS)
    return await ended


def led_in(command: tuple[str, ...], episode: client.Episode, environ: Mapping[str, str]) -> tuple[str, ...]:
    """COMMAND with the episode's URLs in the place of the recorder's, which `record -- replayproxy episode -- COMMAND
    {app}` has filled in before we are there to do it."""
    for env, url in episode.urls.items():
        if plain := environ.get(f"REPLAYPROXY_URL_{variable(env)}"):
            whole = re.compile(re.escape(plain) + r"(?![\w.-])(?!/rp/)")
            command = tuple(url.join(whole.split(word)) for word in command)
    return command


def variables(episode: client.Episode, environ: Mapping[str, str]) -> dict[str, str]:
    """What COMMAND finds: the episode's URLs, also in every variable that holds the recorder's URL as it is now;
    the forward proxy's with the episode as its user."""
    found = {f"REPLAYPROXY_URL_{variable(env)}": url for env, url in episode.urls.items()}
    if episode.name is not None:
        found["REPLAYPROXY_EPISODE"] = urllib.parse.quote(episode.name, safe="")
    plain = {environ[name]: url for name, url in found.items() if environ.get(name)}
    if episode.name is not None and (forward := environ.get(FORWARD_VARIABLE)):
        plain[forward] = episode_proxy(forward, episode.name)
    put = {name: plain[value] for name, value in environ.items() if value in plain and name != FORWARD_VARIABLE}
    return put | found


def reward_of(path: Path) -> tuple[float | None, str | None]:
    """(the reward, None), or (None, what is wrong with the file)."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None, f"the reward file {path} was not written"
    except (OSError, UnicodeDecodeError) as error:
        return None, f"the reward file {path} cannot be read: {error}"
    try:
        value = json.loads(text)
    except ValueError:
        return None, f"the reward file {path} holds no number: {text[:40]!r}"
    if isinstance(value, dict):
        value = value.get("reward")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None, f"the reward file {path} holds no number: {text[:40]!r}"
    return float(value), None
