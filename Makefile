# `make demo` and `make test` set up everything they need in .venv and .cache, and nothing outside this folder.

PYTHON ?= $(shell for p in python3 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
SERVERS := kinto radicale mcp openenv

# Tests and benchmarks start our programs a thousand times, as users do: compiled once, not each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test large check-speed workers-speed soak bench bench-others quick lint types servers wheel-check docs accuracy clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "replayproxy needs Python >= 3.12: none of python3, python3.12, python3.13, python3.14 is one" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.run: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/.dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ .venv/.run

.cache/servers/%/.done: tests/e2e/servers/%.txt | .venv/bin/python
	rm -rf .cache/servers/$*
	$(BIN)/python -m venv .cache/servers/$*
	.cache/servers/$*/bin/python -m pip install --quiet --requirement $<
	@# NAME.bare.txt: without what it depends on, of which NAME.txt lists what is used (openenv's all are 450 MB)
	test ! -f $(<:.txt=.bare.txt) || .cache/servers/$*/bin/python -m pip install --quiet --no-deps --requirement $(<:.txt=.bare.txt)
	@touch $@

servers: $(SERVERS:%=.cache/servers/%/.done) ## the servers written by others that the tests talk to, each in its own environment

demo: .venv/.run ## the main job on an embedded environment: record, replay, re-drive, diff, check
	$(BIN)/replayproxy demo

test: .venv/.dev servers ## every test
	$(BIN)/python -m pytest -n 2 --dist loadfile -q tests

large: .venv/.dev ## 300 MiB each way and 10,000 idle connections, with the memory of record and replay measured
	REPLAYPROXY_LARGE=1 $(BIN)/python -m pytest -n 0 -q -s tests/cases/test_large.py tests/e2e/test_long_talk.py

soak: .venv/.dev ## load, kills, damage and full disks at full size (the suite runs them short)
	REPLAYPROXY_SOAK=1 $(BIN)/python -m pytest -n 0 -q -s tests/soak

bench: .venv/.dev ## record, replay and diff beside other programs, in turns; writes docs/performance.md (needs wrk, nginx)
	$(BIN)/python -m tests.bench --page docs

bench-others: ## WireMock, mountebank and talkback for `make bench` (needs npm, java)
	npm install --prefix .cache/bench --no-audit --no-fund --silent wiremock@3.13.2 mountebank@2.9.1 talkback@4.2.0

check-speed: .venv/.dev ## how long check takes over 100,000 and 200,000 exchanges, and how much memory
	$(BIN)/python -m tests.bench.check_speed

workers-speed: .venv/.dev ## what two proxy processes carry against one, in turns
	$(BIN)/python -m tests.bench.workers

quick: .venv/.dev ## the tests that need no other server
	$(BIN)/python -m pytest -n 2 --dist loadfile -q -m 'not e2e' tests

lint: .venv/.dev ## ruff: style and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: .venv/.dev ## mypy, strict
	$(BIN)/mypy

wheel-check: .venv/.dev ## the built wheel, alone in a fresh environment: one import package, and the demo
	sh tests/wheel_alone.sh $(BIN)/python

docs: .venv/.dev ## docs/cli.md from --help, the table of docs/matching.md, docs/demo.svg from a run of the demo
	$(BIN)/python docs/make_cli.py
	$(BIN)/python docs/make_matching.py
	$(BIN)/python docs/make_picture.py

accuracy: .venv/.dev ## the seeded-fault matrix on the hold-out seeds, some 15 minutes; writes docs/accuracy.md
	$(BIN)/python -m tests.faults --seeds hold-out --page

clean: ## all that make made
	rm -rf .venv .cache dist build
