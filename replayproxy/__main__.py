"""`python -m replayproxy` is the same as `replayproxy`."""

from replayproxy.cli.main import main

main()
