# Two commands do everything: `make demo` trains on embedded data, `make test` passes the tests.
# Both create .venv and install into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test check lint types format bench mutate test-network clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[train,report]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/sumus train

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

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

# breaks the guarantee on purpose, one change at a time, in a copy of the tree; fails if the tests let one pass
mutate: $(VENV)/.dev
	$(BIN)/python benchmarks/mutate.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
