# draftlab: `make report` and `make test` work on a fresh machine with Python 3.11, pip and make.
# Every target makes .venv if it is absent and installs only what it needs; paths may hold spaces.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
# reasoning-gym builds one dependency from source; without a compiler its tests are skipped, and say so
CC_FOUND := $(shell command -v cc || command -v gcc || command -v clang)

.DEFAULT_GOAL := help
.PHONY: help report study seeds test test-slow lint docs notebook

help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

report: $(VENV)/.core ## write the reports listed in reports/plan.yaml (no torch needed)
	$(PY) -m analysis.report

study: $(VENV)/.train ## train and evaluate the arms of the study from nothing, then compare them
	@test -n "$(CC_FOUND)" || { echo "make study: no C compiler found; install one (Debian: apt-get install gcc): the prompt generator builds from source"; exit 1; }
	$(PIP) -e ".[train,prompts]"
	$(PY) -m drafters.study drafters/recipes/study.yaml

seeds: study ## train DFlash and DFlare with four more seeds each, and compare them over all
	$(PY) -m drafters.study drafters/recipes/study-seeds.yaml

test: $(VENV)/.test ## run the tests
	$(PY) -m pytest -n 2 --dist loadfile

test-slow: $(VENV)/.test ## run the minutes-long tests too
	$(PY) -m pytest -n 2 --dist loadfile -m "slow or not slow"

lint: $(VENV)/.test ## ruff, mypy, and the direction of imports
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

docs: $(VENV)/.docs ## build the documentation site into site/
	$(PY) docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict

notebook: $(VENV)/.notebook ## open the notebooks
	$(PY) -m jupyter lab reports/notebooks

$(PY):
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(PY)
	$(PIP) -e .
	@touch $@

$(VENV)/.train: $(VENV)/.core
	$(PIP) -e ".[train]"
	@touch $@

$(VENV)/.test: $(VENV)/.train
	$(PIP) -e ".[train,notebook,dev]"
	$(if $(CC_FOUND),$(PIP) -e ".[prompts]",@echo "no C compiler: the tests of the prompt generator will be skipped")
	$(PIP) --no-deps dflash==0.1.0
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) -e ".[docs]"
	@touch $@

$(VENV)/.notebook: $(VENV)/.core
	$(PIP) -e ".[notebook]"
	@touch $@
