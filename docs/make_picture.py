"""Runs the demo and draws what it printed, as it printed it, into docs/demo.svg."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parent / "demo.svg"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "replayproxy", "demo"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            check=False,
        )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        return done.returncode
    console = Console(record=True, width=118, file=io.StringIO())
    console.print(Text("$ replayproxy demo"))
    console.print(Text(done.stdout))
    drawn = console.export_svg(title="replayproxy demo")
    # No font from elsewhere: a page that shows the picture asks nobody for anything.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL).replace("Fira Code, ", ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
