# Every target sets up what it needs: `make demo` and `make test` work on a fresh machine.
# The constraint stays on every pip call: an unpinned torch pulls gigabytes of CUDA packages.
PYTHON ?= python3
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start many processes: each would compile torch's Python again.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin

.PHONY: help demo quick test test-lowest test-browser torture wheel check docs gallery format fuzz mutants bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# Most of what is installed is never imported: no need to byte-compile it first.
INSTALL := $(BIN)/pip install --quiet --no-compile --editable

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) '.[lab,sklearn]'
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
	$(BIN)/python -m pytest -n 2 --dist worksteal

quick: .venv/dev  ## the daily loop: what proves most in under a minute
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

torture: .venv/dev  ## kills, full disks, damaged files and lost workers, the long version
	DIRECTLOSS_TORTURE=1 $(BIN)/python -m pytest tests/test_torture.py -s

# The versions that pyproject.toml declares as the lowest, torch excepted, which the constraint pins.
test-lowest:  ## the quick tier with the lowest versions declared
	rm -rf .venv-lowest && $(PYTHON) -m venv .venv-lowest
	$(PYTHON) tools/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/pip install --quiet --no-compile --editable '.[dev]' --constraint .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pytest -m "not slow"

wheel:  ## build the wheel, install it alone and run the README's first example
	rm -rf dist .venv-wheel && $(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip wheel --quiet --no-deps --wheel-dir dist .
	.venv-wheel/bin/pip install --quiet --no-compile dist/*.whl
	cd .venv-wheel && bin/python -I ../tools/readme.py ../README.md

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

gallery: .venv/dev  ## the pictures of docs/gallery.md, from its examples
	$(BIN)/python tools/gallery

format: .venv/dev  ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# test_program.py takes a hundredth of the number.
FUZZED := matching_fuzz arborescence chain finite gridpath interleaving knapsack path pool program ranking spanning_tree
fuzz: .venv/dev  ## every kernel against other solvers on 200,000 instances, Program on 2,000
	DIRECTLOSS_FUZZ_INSTANCES=200000 $(BIN)/python -m pytest $(FUZZED:%=tests/test_%.py)

mutants: .venv/dev  ## change the core in a hundred places, one at a time: do the tests notice?
	$(BIN)/python tools/mutants

bench: .venv/bench  ## solver speed against other libraries, side by side
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/matching.py
	$(BIN)/python benchmarks/structures.py
	$(BIN)/python benchmarks/memory.py

clean:  ## forget the environment and caches
	rm -rf .venv .venv-lowest .venv-wheel dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
