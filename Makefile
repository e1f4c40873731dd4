# `make run` and `make test` need python3 (3.10 or newer) and make; all else goes into .venv.

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test test-all goldens lint style clean

run: $(VENV)/.run  ## emit all kernels into build/out and verify them
	$(BIN)/gen emit --variant all
	$(BIN)/gen verify

# Tests start hundreds of processes: without bytecode, each would compile all that it imports.
run test test-all lint style: export PYTHONDONTWRITEBYTECODE :=
test test-all: export PATH := $(CURDIR)/$(BIN):$(PATH)
test: style  ## the test suite, a few cases of each kind
	$(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

test-all: lint  ## all tests: also those marked slow, with more types and shapes, and newly drawn examples
	$(BIN)/python -m pytest -n $(JOBS) -m "" --hypothesis-profile=drawn $(PYTEST_ARGS)

goldens: $(VENV)/.test  ## write tests/golden anew, after a change of the templates
	$(BIN)/python -m pytest -q tests/source/test_goldens.py --update-goldens

lint: style $(VENV)/.dev  ## what `make test` checks of the sources, and their types
	$(BIN)/mypy

style: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) build/out dist

# The stamps: set-up runs again only where pyproject.toml has changed.
$(VENV)/.run: pyproject.toml
	$(call install,.,130)
	touch $@

$(VENV)/.test: pyproject.toml
	$(call install,.[test],250)
	touch $(VENV)/.run $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.test
	$(call install,.[dev],270)
	touch $@

define install
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	{ echo "error: $(PYTHON) is older than 3.10; give a newer one: make PYTHON=python3.12" >&2; exit 3; }
@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || \
	{ echo "error: $(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 3; }
@echo "Downloading up to $(2) MB of Python packages into $(VENV); NVRTC is 50 to 80 of these."
$(BIN)/python -m pip install --quiet --no-compile --editable '$(1)'
endef
