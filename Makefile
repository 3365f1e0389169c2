# `make demo` trains on embedded data, `make quick` and `make check` test; all create .venv and install into it.
PYTHON ?= python3
VENV := .venv
MINUTES ?= 60
BIN := $(VENV)/bin
# more workers than cores: many tests wait for processes of their own
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# byte code is kept, whatever the environment says: tests start a hundred processes
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install demo quick unit warm test test-long check lint types format docs coverage bench bench-check mutate verify soak test-network clean

# the pip of constraints.txt resolves in a third of the time of the one that Python brings, which is enough where there is no index
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	-$(PIP) install -c constraints.txt --upgrade pip

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[train,report]'
	@touch $@

# byte code is made of what tests import, when they do
$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install --no-compile -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.demo

install: $(VENV)/.dev

demo: $(VENV)/.demo
	$(BIN)/sumus train

# after every change: under a minute on two cores once types and compiled loops are cached
quick: $(VENV)/.dev
	@begin=$$(date +%s); $(MAKE) --no-print-directory lint types unit \
	&& echo "make quick took $$(( $$(date +%s) - begin )) s"

# as many workers as cores: what is left here waits for nobody
unit: $(VENV)/.dev
	$(PYTEST) -n auto -m 'not deep and not network and not bigdata and not long' --hypothesis-profile=quick

# byte code of all that tests import, made by one process before four would make it at once
warm: $(VENV)/.dev
	$(BIN)/python -m pytest --collect-only -qq -m 'not long' >/dev/null || true  # make test tells what cannot be collected

test: $(VENV)/.dev
	$(PYTEST) -m 'not long'

# the rest of the tests: more seeds, engines and sizes
test-long: $(VENV)/.dev
	$(PYTEST) -m long

# every real engine and every real kill; CI runs the fast part of it with the other tests
test-network: $(VENV)/.dev
	SUMUS_TEST_NETWORK=all $(BIN)/python -m pytest -m network --timeout=900 tests/end_to_end

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: lint types test

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

# lines of src that the unit tests run, processes of their own included
coverage: $(VENV)/.dev
	$(PYTEST) -m 'not deep and not network and not bigdata' --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

# one after the other, because their figures are times: half an hour; writes docs/performance.md
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/collect.py

# fails where a figure is worse than in benchmarks/stored.json by more than a fifth: ten minutes
bench-check: $(VENV)/.dev
	$(BIN)/python benchmarks/collect.py --check

# breaks the guarantee on purpose, one change at a time, in a copy of the tree; fails if the tests let one pass
mutate: $(VENV)/.dev
	$(BIN)/python benchmarks/mutate.py --jobs 2

# the model of guard, crash and ratchet in spin, each of its seeded faults, and every schedule of five silos
verify: $(VENV)/.dev
	@command -v spin >/dev/null || apt-get install -y spin gcc >/dev/null 2>&1 || true
	$(BIN)/python benchmarks/verify.py

# a year of a federation in an hour, with kills, hangs, full disks and changes; writes docs/soak.md and its figures
soak: $(VENV)/.dev
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES) --page docs/soak.md --out docs/figures

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
