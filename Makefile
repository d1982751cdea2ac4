# linbench: `make run` and `make test` need nothing but Python 3.11+, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# a process for each core, each with one thread; tests as pytest compiles them are kept, or each process would compile all anew
TESTS := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal
RESULTS ?= results/cpu

.DEFAULT_GOAL := help
.PHONY: help setup run test test-all lint check figures drawn docs site clean

help:  ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY)  ## make .venv with linbench and its tools

# most of what is installed is never imported; what every command imports is compiled here, all else when it is first imported
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "linbench needs Python 3.11 or newer; name one with PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[dev]'
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import matplotlib.pyplot, pandas, torch'
	touch $@

run: $(READY)  ## the main job on the CPU: train Gated DeltaNet on associative recall, show a table and draw its curves
	$(BIN)/linbench run mqar --model gated_deltanet --device cpu

test: $(READY)  ## all tests but the few long ones marked nightly
	$(TESTS) -m 'not nightly'

test-all: $(READY)  ## all tests, those marked nightly too
	$(TESTS)

lint: $(READY)  ## style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p linbench
	$(BIN)/lint-imports

check: lint  ## lint, and of each fast test four cases at most
	$(TESTS) -m 'not slow and not gpu' --cases 4 --snapshot-warn-unused

figures: $(READY)  ## every table and figure of RESULTS (default results/cpu), from stored results alone, into build/; those that pages show are renewed
	rm -rf build/$(RESULTS)/tables build/$(RESULTS)/figures
	$(BIN)/linbench table --results $(RESULTS) --save build/$(RESULTS)/tables
	$(BIN)/linbench figures --results $(RESULTS) --save build/$(RESULTS)/figures
	cd build/$(RESULTS) && for file in tables/* figures/*; do [ ! -e "$(CURDIR)/$(RESULTS)/$$file" ] || cp "$$file" "$(CURDIR)/$(RESULTS)/$$file"; done

drawn: $(READY)  ## results/drawn.json, docs/claims.md, docs/reproduction.md, and the tables and pictures that pages show, anew from stored results
	$(BIN)/python -m tests.results.drawn
	$(BIN)/linbench claims --save docs/claims.md
	$(BIN)/linbench reproduce --save docs/reproduction.md
	$(BIN)/python -m tests.pages.blocks

docs: $(READY)  ## the site of README and docs, in build/site; every link is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean

site: $(READY)  ## the leaderboard with README and docs as one site, in build/leaderboard, from the results that come with linbench
	$(BIN)/linbench site --docs docs --save build/leaderboard

clean:  ## remove what setup and runs made; tracked results stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
