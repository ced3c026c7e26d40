"""The entry point of `replayproxy` and `python -m replayproxy`: nothing is imported before an interrupt is caught."""

import sys


def main() -> None:
    """Never returns."""
    try:
        from replayproxy.cli.main import main as run

        run()
    except KeyboardInterrupt:  # while modules were imported: what a command is interrupted in, `cli.main` tells
        leave(_interrupted(sys.argv[1:]))


def leave(code: int) -> None:
    """Never returns: it ends at once, as who interrupts wants it: no thread is waited for.

    Python's own end would hear one more interrupt, and die of it. Run by `-m` it also dies of one that was caught, when
    that came while a text was executed, as a dataclass's methods are.
    """
    import os

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # nobody is there to read it
    os._exit(code)


def _interrupted(arguments: list[str]) -> int:
    """Says what `cli.main.interrupted` says, which may not be there yet."""
    import json
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told = "interrupted: nothing more was waited for"
    sys.stderr.write(f"replayproxy: {told}\n")
    if "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments):
        document = {"type": "about:blank", "title": "interrupted", "detail": told, "exit": 130}
        sys.stdout.write(f"{json.dumps(document)}\n")
    return 130


if __name__ == "__main__":
    main()
