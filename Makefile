# Two commands are enough: `make setup` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.trl-ext-setup
TORCH := torch==2.13.0
OFFLINE := HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_DATASETS_OFFLINE=1 PYTHONHASHSEED=0
SOURCES := trl_ext reward_funcs datasets_builders tests .ci
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup model lint format types test demo wheel wheel-check clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv and install everything (PYTHON=python3.12 picks the interpreter)

# torch comes before anything that depends on it: a plain install of the dependencies would choose its own build
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "trl-ext needs Python 3.11 or newer; name one with: make setup PYTHON=/path/to/python3"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "this Python has no ensurepip; install it (Debian, Ubuntu: apt-get install python3-venv)"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TORCH)'
	$(BIN)/python -m pip install --quiet -e '.[demo,dev]'
	@touch $@

model: setup ## fetch the demo model into the cache
	@$(BIN)/python -m trl_ext.smol

lint: setup ## ruff, rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup ## let ruff correct what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup ## mypy
	$(BIN)/mypy

test: setup ## the tests, offline (ARGS="-k kl -m 'not slow'" goes to pytest)
	@$(BIN)/python -m trl_ext.smol || echo "no demo model: the tests marked 'model' will be skipped"
	$(OFFLINE) $(BIN)/python -m pytest $(ARGS)

demo: setup model ## train the demo model on two-digit addition (ARGS go to trl-ext demo)
	$(BIN)/trl-ext demo $(ARGS)

wheel: setup ## build the wheel into dist/
	$(BIN)/python -m build --wheel --outdir dist .

wheel-check: setup ## build the wheel and try it in an empty environment
	$(BIN)/python .ci/wheel_check.py

clean: ## remove build output and caches, keep .venv and the cached model
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
