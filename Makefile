# Everything runs in .venv, which is made on first use and again when pyproject.toml or constraints.txt change.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help venv java demo test check bench soak clean
MAKEFLAGS += --no-print-directory

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.headwater-installed
PIP   := $(BIN)/python -m pip -qq --disable-pip-version-check

TESTS ?=
WORKERS ?= 2
BENCH ?=
SOAK_MINUTES ?= 10
export SOAK_MINUTES

help:  ## List the targets
	@echo "make <target>"
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile

venv: java $(STAMP)  ## Make .venv with tested versions; needs Python 3.11+ and Java 17+

demo: venv  ## Show stream tables following a changing table, about a minute
	@$(BIN)/headwater demo

test: check  ## Check, then run all tests in WORKERS=2 processes (TESTS="tests/plan -k count" for some)
	@$(BIN)/python -m pytest -q $(if $(TESTS),$(TESTS),-n $(WORKERS) --dist loadfile --no-loadscope-reorder)

check: venv  ## Lint, formatting, types and layers
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "format: run $(BIN)/ruff format"; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@out=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$out"; exit 1; }
	@echo "check: lint, formatting, types and layers are fine"

bench: venv  ## Run one benchmark: make bench BENCH=name
	@if [ -z "$(BENCH)" ]; then \
	  echo "bench: name one, make bench BENCH=name. There are:"; \
	  found=$$(ls benchmarks 2>/dev/null | sed -n 's/^\([a-z][a-z0-9_]*\)\.py$$/  \1/p'); echo "$${found:-  none yet}"; exit 2; \
	fi
	@$(BIN)/python -m benchmarks.$(BENCH)

soak: venv  ## Random histories, and random compositions of all operators, side by side for SOAK_MINUTES (default 10)
	@$(BIN)/python -m tests.soak & histories=$$!; $(BIN)/python -m tests.soak_compose; compositions=$$?; \
	  wait $$histories && exit $$compositions

clean:  ## Remove .venv, caches and build output
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@bash scripts/java.sh

$(STAMP): pyproject.toml constraints.txt
	@python=$$(bash scripts/python.sh) || exit 1; \
	if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "venv: making $(VENV) with $$($$python -V)"; \
	  rm -rf $(VENV) && $$python -m venv $(VENV) || { echo "venv: $$python -m venv failed, see above"; exit 1; }; \
	fi
	@echo "venv: installing (the first time Spark is downloaded, about 450 MB)"
	@$(PIP) install -c constraints.txt -e '.[dev,postgres]' || { echo "venv: installing failed, see above; make venv tries again"; exit 1; }
	@touch $@
