# Everything a person or CI types. `make` alone says what there is.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup run test check soak bench docs clean

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.harken-setup
# more than there are cores: the tests of real processes wait most of their time
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores + (cores < 4 ? cores : 2))))
# some machines forbid it; compiling everything again for each of the hundreds of processes that the tests start takes
# longer than the tests
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
DEMO ?=

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: setup ## Start the demo: a small incident service, and workflows that react to it
	@$(BIN)/harken demo $(DEMO)

test: setup ## Run all tests (at most ten minutes on two cores)
	@echo "tests: running"
	@$(PYTEST) tests

# with CI set a test whose server is missing fails; without, it is skipped, and named at the end
check: setup ## Everything CI runs: ruff, mypy, import-linter, tests
	@echo "ruff: checking"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "mypy: checking"
	@$(BIN)/mypy
	@echo "import-linter: checking"
	@$(BIN)/lint-imports
	@CI=true $(MAKE) --no-print-directory test

soak: setup ## The crash and property tests with many more rounds (an hour or more)
	@HARKEN_SOAK=1 $(PYTEST) --timeout 14400 tests

bench: setup ## Measure throughput, lag, memory and start time beside their limits
	@$(BIN)/python -m bench

docs: setup ## Check that every link in the documentation resolves and every example loads
	@$(BIN)/python -m pytest tests/docs

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt .ci/venv
	@.ci/venv $(VENV)
	@echo "setup: installing Harken and its pinned dependencies into $(VENV)"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[dev]' --constraint constraints.txt
	@touch $@
	@echo "setup: done"

clean: ## Remove the virtual environment and what tools have cached
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
