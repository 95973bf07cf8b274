# Everything a fresh machine needs is Python 3.11 and make. `make demo` and `make test` do the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
RIVALS := $(VENV)/rivals

.PHONY: help demo test data lint bench soak clean

help:  ## show what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */\1\t/' | expand -t 10

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(RIVALS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

demo: $(READY)  ## digits learnt by uneven workers, under torch's own DDP and under other models
	$(BIN)/paceline demo

test: lint data  ## lint and all tests
	$(BIN)/python -m pytest -n auto --dist worksteal

data: $(READY)  ## Fashion-MNIST and CIFAR-10 for the tests that read them, by apt-get and npm where there are any
	$(BIN)/python tests/data/get.py

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(RIVALS)  ## the figures that README and docs quote, beside other systems
	$(BIN)/paceline bench all

soak: $(READY) data  ## many more random cases, and a planted bug for every invariant
	PACELINE_SOAK=1 $(BIN)/python -m pytest -n auto
	$(BIN)/python -m pytest -n auto soak

clean:  ## remove what was installed and cached
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
