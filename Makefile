# What a newcomer needs is `make run` and `make test`; `make check` is what CI runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= examples/quickstart/treadle.toml

.DEFAULT_GOAL := help
.PHONY: help install dev run test check lint coverage bench lock clean

help:  ## Show this help
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: $(VENV)/.installed  ## Create .venv with treadle and the quickstart's models

dev: $(VENV)/.dev  ## The same, and what tests and checks need

run: install  ## Start a node with the quickstart's three models
	$(BIN)/treadle up $(CONFIG)

test: dev  ## Run the tests (no GPU needed)
	$(BIN)/pytest

check: lint coverage  ## Everything that CI checks

lint: dev  ## Format, style, types and the floors of the architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

coverage: dev  ## Run the tests and report what they reach
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

bench: dev  ## Measure everything, side by side (about 20 minutes; needs wrk)
	$(BIN)/python -m bench.servers
	$(BIN)/python bench/priority.py
	$(BIN)/python bench/batching.py
	$(BIN)/python bench/monitor.py
	$(BIN)/python bench/control.py

lock:  ## Pin the newest versions that fit pyproject.toml (needs uv)
	uv pip compile -q --universal --python-version 3.11 --extra grpc --extra images \
		--custom-compile-command 'make lock' -o requirements/base.txt pyproject.toml
	uv pip compile -q --universal --python-version 3.11 --extra dev \
		--custom-compile-command 'make lock' \
		-c requirements/base.txt -o requirements/dev.txt pyproject.toml

clean:  ## Remove the environments and caches
	rm -rf $(VENV) .bench bench/results .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .coverage* .import_linter_cache dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "treadle needs Python 3.11 to 3.13; choose one with make PYTHON=…"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "no venv module: on Debian and Ubuntu, apt install python3-venv"; exit 1; }

$(VENV)/.installed: $(BIN)/python pyproject.toml requirements/base.txt requirements/quickstart.txt
	$(BIN)/pip install -q --disable-pip-version-check -r requirements/base.txt
	$(BIN)/pip install -q --disable-pip-version-check --no-deps -r requirements/quickstart.txt
	$(BIN)/pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed requirements/dev.txt requirements/torch.txt
	$(BIN)/pip install -q --disable-pip-version-check -r requirements/dev.txt -r requirements/torch.txt
	@touch $@
