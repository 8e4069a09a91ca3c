# Everything below works from a clean clone with Python 3.11+, make and a compiler.
# The first command that needs the environment makes it; later ones reuse it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two workers, one thread each: on a small machine more threads only fight each other.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

BENCH ?= $(wildcard benchmarks/*.py)

.DEFAULT_GOAL := help
.PHONY: help install run test test-all lint types format bench docs docs-sessions clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

install: $(STAMP) ## make the environment in .venv (the other commands do it themselves)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev,docs]'
	@touch $@

run: $(STAMP) ## the main job: all experiments at quick scale, and a page with their verdicts
	$(BIN)/secondguess reproduce --preset quick --out out

test: $(STAMP) ## every check that is not marked slow
	$(PYTEST) -m "not slow"

test-all: $(STAMP) ## every check
	$(PYTEST)

lint: $(STAMP) ## style of the code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## types of the code
	$(BIN)/pyright

format: $(STAMP) ## put the code in its style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## speed and memory, as ratios against a named peer (BENCH=benchmarks/metrics.py for one)
	@failed=0; for bench in $(BENCH); do \
		echo "== $$bench"; $(BIN)/python $$bench || failed=1; done; exit $$failed

docs: $(STAMP) ## the documentation, as pages in out/docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs out/docs
	@echo "docs: out/docs/index.html"

docs-sessions: $(STAMP) ## record the sessions of README and docs again (PAGES=docs/x.md for one)
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python docs/sessions.py $(PAGES)

clean: ## remove the environment and everything that was made
	rm -rf $(VENV) out build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
