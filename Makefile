# Everything a person or CI types. `make` alone says what there is.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup servers run test check soak bench docs release clean

VENV ?= .venv
BIN := $(VENV)/bin
# two steps: what Harken needs to run, and on top of it what tests and checks need
RUN := $(VENV)/.harken-run
DEV := $(VENV)/.harken-dev
# more than there are cores: the tests of real processes wait most of their time
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores + (cores < 3 ? 2 * cores : 2))))
# some machines forbid it; compiling everything again for each of the hundreds of processes that the tests start takes
# longer than the tests
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest -p tests.forked_workers --workers $(WORKERS)
DEMO ?=
# how long `make soak` is (tests/soak.py)
ROUNDS ?= 1
# measurements of `make bench`, all by default; with QUICK=1 only a look
ONLY ?=
QUICK ?=
# beside other tools, which are installed into a cache for it
PEERS ?=

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN) ## Start the demo: a small incident service, and workflows that react to it
	@$(BIN)/harken demo $(DEMO)

test: setup servers ## Run all tests (about a quarter of an hour on two cores)
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

soak: setup servers ## The crash and property tests at length, about an hour; ROUNDS=10 for ten times as long
	@HARKEN_SOAK=$(ROUNDS) $(PYTEST) --timeout 14400 $$($(BIN)/python -m tests.soak)
	@HARKEN_SOAK=$(ROUNDS) $(BIN)/python -m pytest --timeout 14400 $$($(BIN)/python -m tests.soak --alone)

bench: setup servers ## Measure throughput, lag, memory, start and growth; ONLY=growth,webhook for some of it
	@$(BIN)/python -m bench$(if $(ONLY), --only $(ONLY))$(if $(QUICK), --quick)$(if $(PEERS), --peers)

docs: setup ## Build the documentation as a site into site/, and check it: links, examples, transcripts
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "docs: site/index.html"
	@$(PYTEST) tests/docs

release: setup ## Build the package, check it, and try it in clean environments (docs/releasing.md)
	@PYTHON=$(BIN)/python .ci/release

servers: setup ## Bring the servers and recordings that tests need, before the first test
	@echo "servers: looking for what the tests need"
	@$(BIN)/python -m tests.downloads

setup: $(DEV)

$(RUN): pyproject.toml constraints.txt .ci/venv .ci/install
	@.ci/venv $(VENV)
	@.ci/install $(BIN)/python "Harken and what it needs to run" .
	@touch $@

$(DEV): $(RUN)
	@.ci/install $(BIN)/python "what tests and checks need" '.[dev]'
	@touch $@

clean: ## Remove the virtual environment and what tools have cached
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist site
