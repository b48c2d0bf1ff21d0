# Every target sets up what it needs: `make demo` and `make test` work on a fresh machine.
# The constraint stays on every pip call: an unpinned torch pulls gigabytes of CUDA packages.
PYTHON ?= python3
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
BIN := .venv/bin

.PHONY: help demo test test-browser check docs format fuzz bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# Most of what is installed is never imported: no need to byte-compile it first.
INSTALL := $(BIN)/pip install --quiet --no-compile --editable

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	touch $@

.venv/dev: .venv/core
	$(INSTALL) '.[dev]'
	touch $@

.venv/bench: .venv/core
	$(INSTALL) '.[bench]'
	touch $@

.venv/browser: .venv/dev
	$(INSTALL) '.[browser]'
	touch $@

# With the tools of .venv/dev: ruff lays out the signatures.
.venv/docs: .venv/dev
	$(INSTALL) '.[docs]'
	touch $@

demo: .venv/core  ## train something small and real, and show a table
	$(BIN)/directloss sort --recipe best --sizes 10,40,100 --methods direct0,dsl --repetitions 8 --jobs 2 --store demo.sqlite --output demo

test: .venv/dev  ## the test suite, doctests included
	$(BIN)/python -m pytest -n 2

test-browser: .venv/browser  ## the report and its playground, in headless Chromium
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
		{ echo "no Chromium here: install Debian's chromium and chromium-driver" >&2; exit 1; }
	$(BIN)/python -m pytest tests/browser

check: .venv/dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/docs  ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: .venv/dev  ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: .venv/dev  ## the matching solver against SciPy on 200,000 instances
	DIRECTLOSS_FUZZ_INSTANCES=200000 $(BIN)/python -m pytest tests/test_matching_fuzz.py

bench: .venv/bench  ## solver speed against SciPy, lapx and Sinkhorn, side by side
	$(BIN)/python benchmarks/matching.py

clean:  ## forget the environment and caches
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
