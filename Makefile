# `make demo` and `make test` set up all they need in .venv; `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# For two cores, since tests wait now and then. One thread for each: some libraries would take as many as there are cores.
# What processes of the tests import is compiled once.
THREE_PROCESSES := -m pytest -n 3 --dist loadgroup
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python $(THREE_PROCESSES)
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
TESTED_EXTRAS := bertscore,evaluation,files,local,mcp,ray,serve
SPHINX := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 .venv-docs/bin/sphinx-build --fail-on-warning --keep-going --doctree-dir build/doctrees
CORE_VERSIONS := lowest 0.14.20 newest

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-all test-slow test-stores test-trulens coverage check format bench test-matrix constraints dist docs docs-links clean supported-python

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## install, and ask questions of the sample documents (no key, no model)
	$(BIN)/densex demo

test: $(VENV)/.installed-all  ## install everything, and run all tests but the slow ones (ARGS="-k name" for some of them)
	$(PYTEST) -m "not slow" $(ARGS)

test-fast: $(VENV)/.installed-all  ## run the tests of what needs no store, server or model: half a minute
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadgroup -m "pure and not slow" $(ARGS)

test-all: $(VENV)/.installed-all  ## run the slow tests too: kills, Ray, notebooks, a browser, every store
	$(PYTEST) $(ARGS)

test-slow: $(VENV)/.installed-all  ## run the slow tests only
	$(PYTEST) -m slow $(ARGS)

coverage: $(VENV)/.installed-all  ## run all tests, and say which lines none of them reaches
	$(PYTEST) --cov --cov-report=term-missing:skip-covered $(ARGS)

test-stores: $(VENV)/.installed-stores  ## run the store suite with every store, and write its table into docs/stores.md
	$(BIN)/python -m pytest tests/integration/stores --write-table docs/stores.md $(ARGS)

test-trulens: .venv-trulens/.installed  ## run the tests that need TruLens, in an environment of its own (it needs an older rich)
	OMP_NUM_THREADS=1 .venv-trulens/bin/python -m pytest tests/evaluation/test_trulens.py $(ARGS)

check: $(VENV)/.installed-all  ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

format: $(VENV)/.installed-all  ## mend formatting and imports
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-all  ## run the benchmarks (ARGS="..." are theirs; each names them with ARGS=--help)
	@set -e; for script in $(wildcard benchmarks/*.py); do echo "--- $$script"; $(BIN)/python $$script $(ARGS); done

test-matrix: $(CORE_VERSIONS:%=.venv-matrix/%/.tested)  ## run the tests with old and new llama-index-core, without sentence-transformers

constraints:  ## resolve constraints.txt anew, for every Python; needs uv (ARGS=--upgrade takes the newest versions)
	uv pip compile --quiet --universal --python-version 3.10 --no-annotate --custom-compile-command "make constraints" \
	  --extra all --group dev --output-file constraints.txt $(ARGS) pyproject.toml

dist: $(VENV)/.installed-all  ## build the wheel and the sdist into dist/, and check what PyPI would show of them
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

docs: .venv-docs/.installed  ## build the site into build/docs: notebooks executed, a warning is an error
	$(SPHINX) -b html docs build/docs

docs-links: .venv-docs/.installed  ## follow the links that lead out of the site
	$(SPHINX) -b linkcheck docs build/docs-links

clean:  ## remove the virtual environments and caches
	rm -rf $(VENV) .venv-matrix .venv-docs .venv-trulens .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last and taken away first, so an interrupted installation is begun anew.

$(VENV)/.installed: pyproject.toml constraints.txt | supported-python
	rm -rf $(VENV)
	@echo "Installing into $(VENV); this takes a minute or two the first time."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) --upgrade 'pip>=25.1'  # which knows dependency groups
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-all: $(VENV)/.installed
	@rm -f $(VENV)/.installed
	@echo "Installing what the tests need besides, torch among it; this takes some minutes the first time."
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[huggingface,chroma,faiss,postgres,$(TESTED_EXTRAS)]' --group dev
	@touch $(VENV)/.installed $@

$(VENV)/.installed-stores: $(VENV)/.installed-all
	@echo "Installing the vector stores that only this needs."
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[all]' --group dev
	@touch $@

.venv-trulens/.installed: pyproject.toml | supported-python
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP_INSTALL) -e '.[evaluation,trulens]' hypothesis pytest pytest-asyncio
	@touch $@

.venv-docs/.installed: pyproject.toml constraints.txt | supported-python
	rm -rf $(@D)
	@echo "Installing what the site is built with into $(@D); this takes two minutes the first time."
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP_INSTALL) --upgrade 'pip>=25.1'
	grep -v '^docutils==' constraints.txt > $(@D)/constraints.txt  # Sphinx takes an older one than twine
	$(@D)/bin/python $(PIP_INSTALL) -c $(@D)/constraints.txt -e '.[chroma,evaluation]' --group docs
	@touch $@

supported-python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 15))' || \
	{ echo "Python 3.10 to 3.14 is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 ..."; exit 1; }

core-lowest := -c constraints-lowest.txt
core-0.14.20 := llama-index-core==0.14.20
core-newest := --upgrade llama-index-core

.venv-matrix/%/.tested: .venv-matrix/%/.installed always
	@echo "--- llama-index-core: $*"
	OMP_NUM_THREADS=1 .venv-matrix/$*/bin/python $(THREE_PROCESSES) -m "not slow" $(ARGS)

.venv-matrix/%/.installed: pyproject.toml constraints-lowest.txt | supported-python
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP_INSTALL) --upgrade 'pip>=25.1'
	$(@D)/bin/python $(PIP_INSTALL) $(core-$*) -e '.[$(TESTED_EXTRAS)]' --group test
	@touch $@

.PRECIOUS: .venv-matrix/%/.installed
.PHONY: always
