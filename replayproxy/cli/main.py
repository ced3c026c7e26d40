"""The command line: which commands there are, and how an error becomes an exit code.

A command lives in a file of its own and is imported when it is called, so that `--help` and `ls` load nothing heavy.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import click

from replayproxy.__main__ import leave
from replayproxy.cli import shield
from replayproxy.errors import Exit, Problem, StoreTrouble

COLLECT_EVERY = (20_000, 20, 20)
"""How seldom Python looks for cycles in a command that works something off. What it reads has none: with Python's own
700 an eighth of what `check` costs is looking in vain."""

NO_WORDS: tuple[type[click.UsageError], ...] = tuple(
    getattr(click.exceptions, name) for name in ("NoArgsIsHelpError",) if hasattr(click.exceptions, name)
)
"""What click raises, with the help as its message, for a group that is called with nothing; before 8.2 it prints it."""

COMMANDS = {
    # name: (module, one line for --help). The command object in the module is called `command`.
    "demo": ("demo", "The whole story on an embedded environment."),
    "doctor": ("doctor", "Will this wiring record what the agent does?"),
    "record": ("record", "Record what an agent says to its environments."),
    "episode": ("episode", "Open an episode on the running recorder around any program."),
    "replay": ("replay", "Let the recording answer your agent."),
    "explain": ("explain", "What would a replay answer to this request?"),
    "redrive": ("redrive", "Send the recorded requests to a live environment."),
    "reproduce": ("reproduce", "Show a finding again on a live environment."),
    "race": ("race", "Release two requests together, and see what no order explains."),
    "diff": ("diff", "Compare two episodes, or two runs."),
    "check": ("check", "Judge a recording: findings, verdicts, failure rate."),
    "mask": ("mask", "Mark, or drop, the rollouts of poisoned episodes."),
    "annotate": ("annotate", "Say rewards and more of episodes, from a file of rollouts."),
    "ls": ("ls", "List runs, or the episodes of a run."),
    "show": ("show", "Show an episode, an exchange, a snapshot or a finding."),
    "blame": ("blame", "Who last wrote this value, across episodes."),
    "grep": ("grep", "Where a text stands: requests, answers, states."),
    "export": ("export", "Write recordings as HAR, flow file or archive."),
    "import": ("import_", "Take in an archive, a HAR or a flow file."),
    "rm": ("rm", "Mark runs or episodes as removed."),
    "merge": ("merge", "Take the runs of other stores into one."),
    "gc": ("gc", "Free the space of what was removed."),
    "fsck": ("fsck", "Verify every record of the store."),
    "verify": ("fsck", "The same as fsck."),
    "provider": ("provider", "Run the conformance suite on a snapshot provider."),
    "addon": ("addon", "Print the path of an add-on, for mitmdump -s."),
    "client": ("client", "Print the one-file client."),
}


class LazyGroup(click.Group):
    """Knows every command's name and line without importing it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if name != "verify"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"replayproxy.cli.{COMMANDS[cmd_name][0]}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name][1]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        from replayproxy import __version__

        click.echo(f"replayproxy {__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Show the version.")
def cli() -> None:
    """Record an agent's HTTP traffic with its environment, replay it, re-drive it, diff it, judge it."""


def main(argv: list[str] | None = None) -> None:
    """The entry point. Never returns."""
    gc.set_threshold(*COLLECT_EVERY)
    arguments = sys.argv[1:] if argv is None else argv
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    shield.install(lambda path, name: _damaged(path, name, as_json))
    code = run(arguments, as_json)
    if code == Exit.INTERRUPTED_TWICE:
        leave(code)
    sys.exit(code)


def run(arguments: list[str], as_json: bool = False) -> int:
    """Runs one command and gives its exit code; every error has been shown when it returns."""
    try:
        code = cli.main(args=arguments, prog_name="replayproxy", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as wrong:
        if isinstance(wrong, NO_WORDS):
            click.echo(wrong.message, err=True)
            return int(Exit.USAGE)
        at = getattr(wrong, "ctx", None)
        hint = f"{at.command_path if at else 'replayproxy'} --help"
        return _tell(wrong.format_message(), "wrong usage", Exit.USAGE, as_json, hint=hint)
    except Problem as problem:
        return _tell(problem.what, problem.title, problem.exit, as_json, hint=problem.hint)
    except (KeyboardInterrupt, click.Abort):
        return interrupted(as_json)
    except BrokenPipeError:
        # The reader of our output has left (`| head`): nothing is wrong, and nobody is there to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as fault:
        if isinstance(fault, FileNotFoundError) and _nowhere():
            hint = "cd to one that is there"
            return _tell("the current directory has been removed", "wrong usage", Exit.USAGE, as_json, hint=hint)
        return _tell(
            f"{type(fault).__name__}: {fault}; this is a fault of replayproxy, report {_report(fault)}",
            "internal error", Exit.OURS, as_json,
        )  # fmt: skip


def _damaged(path: object, name: str, as_json: bool) -> int:
    return _tell(
        f"{path} is damaged: reading it ended in {name}", StoreTrouble.title, StoreTrouble.exit, as_json,
        hint="replayproxy fsck",
    )  # fmt: skip


def _nowhere() -> bool:
    """Whether the directory that relative paths start from is gone."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def interrupted(as_json: bool) -> int:
    """Tells that somebody did not want to wait, and gives the exit code, which no further interrupt changes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _tell("interrupted: nothing more was waited for", "interrupted", Exit.INTERRUPTED_TWICE, as_json)


def _tell(what: str, title: str, code: Exit, as_json: bool, hint: str = "") -> int:
    from replayproxy.core.shown import safe

    line = " ".join(what.split())
    print(safe(f"replayproxy: {line}{f' -> {hint}' if hint else ''}"), file=sys.stderr)
    if as_json:
        document: dict[str, Any] = {"type": "about:blank", "title": title, "detail": line, "exit": int(code)}
        if hint:
            document["hint"] = hint
        import json

        print(json.dumps(document), flush=True)
    return int(code)


def _report(fault: BaseException) -> str:
    """Writes the traceback to a file of its own and gives its path."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="replayproxy-fault-", suffix=".txt", delete=False, encoding="utf-8"
    ) as out:
        traceback.print_exception(fault, file=out)
    return out.name


if __name__ == "__main__":
    main()
