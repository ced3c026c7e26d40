#!/bin/sh
# Builds the wheel, installs it with its declared dependencies and nothing else in a fresh environment, and runs the
# demo away from the source tree. $1: a python that has `build`.
set -eu
root=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/$1" -m build --quiet --wheel --outdir "$work/dist" "$root"
"$root/$1" - "$work"/dist/*.whl <<'PY'
import sys, zipfile
tops = {name.split("/")[0] for name in zipfile.ZipFile(sys.argv[1]).namelist()}
packages = {top for top in tops if not top.endswith(".dist-info")}
assert packages == {"replayproxy"}, packages
names = zipfile.ZipFile(sys.argv[1]).namelist()
for needed in ("replayproxy/_bundled/addons/record.py", "replayproxy/_bundled/snapshots/sqlite_file.py", "replayproxy/py.typed", "replayproxy/session/rulesets/nemo-gym.toml"):
    assert needed in names, needed
print("wheel: one import package, bundled files present")
PY
"$root/$1" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet "$work"/dist/*.whl
cd "$work"
./venv/bin/replayproxy --version
./venv/bin/python -c "import replayproxy, sys; assert 'site-packages' in replayproxy.__file__, replayproxy.__file__"
./venv/bin/replayproxy demo
