.DEFAULT_GOAL := help
.PHONY: help install demo test weekly proofs kernel mutation compatibility peers versions lint types docs recorded bench clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Apart: BackPACK and timm bring torchvision, which transformers imports where it finds it, fit for this torch or not.
PEERS := $(VENV)/peers
SUITES := $(VENV)/suites
VERSIONS := $(VENV)/versions
OLDEST := $(shell sed -n 's/^torch = \["torch>=\(.*\)"\]/\1/p' pyproject.toml)
READING := $(patsubst %,tests/lai_torch/test_%.py,programs placing coupled)

TESTS := not slow

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 18

install: $(READY) ## create .venv with everything pinned in constraints.txt

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(READY) ## the main job: rescue a training run on digits with 40% wrong labels
	$(BIN)/python -m experiments noisy-labels

test: $(READY) ## every proof, and every test that is quick; TESTS="not weekly" takes what CI runs
	$(BIN)/python -m pytest -n auto --dist worksteal -m "$(TESTS)"

weekly: $(READY) ## what runs before a release: every study, long samples of other packages' suites; JAX optimises
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/python -m pytest -n auto --dist worksteal -m weekly

proofs: $(READY) ## the symbolic proofs alone, and how many mutants they reject
	$(BIN)/python -m pytest proofs

kernel: ## statements for every size under Coq's kernel, each with its axioms; KERNEL=required where Coq must be there
	$(PYTHON) -m tests.support.kernel

mutation: $(READY) ## change lai_core and lai_storage in every small way, one at a time, and count what the tests see (25 minutes of CPU)
	$(BIN)/python -m tests.mutation

compatibility: ## every suite inside torch, transformers, peft, timm and JAX's libraries (installs them; some hours)
	$(PYTHON) -m venv $(SUITES)
	$(SUITES)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[compatibility]"
	$(SUITES)/bin/python -m benchmarks compatibility

peers: ## what others compute, too: opacus, captum, BackPACK, kronfluence, dattri, dattri-llm (installs them)
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[peers]"
	$(PEERS)/bin/python -m benchmarks judge

versions: ## the reader of torch's graph on the oldest supported torch, and on the newest of the index (installs both)
	for torch in "torch==$(OLDEST).*" torch; do \
	  $(PYTHON) -m venv --clear $(VERSIONS) && \
	  $(VERSIONS)/bin/python -m pip install --quiet --disable-pip-version-check "$$torch" -e ".[torch,jax,storage]" \
	    array-api-strict beartype hypothesis pytest && \
	  $(VERSIONS)/bin/python -m pytest -m "not slow" $(READING) || exit 1; \
	done

lint: $(READY) ## ruff, import-linter, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

types: $(READY) ## how complete the types of the public names are (installs basedpyright)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[types]"
	for package in lai_core lai_storage lai_torch lai_jax; do \
	  PATH=$(BIN):$$PATH PYTHONPATH=.:adapters basedpyright --verifytypes $$package --ignoreexternal || exit 1; \
	done

docs: $(READY) ## the site, under build/docs
	$(BIN)/python -m sphinx -W -n -b html docs build/docs

recorded: $(READY) ## run the guide's pages that train; their outputs are committed (2 minutes of CPU)
	$(BIN)/python docs/_ext/recorded.py

bench: $(READY) ## every benchmark; figures under build/
	for name in processes "exactness torch" "exactness jax" "cost torch" "cost jax"; do \
	  $(BIN)/python -m benchmarks $$name || failed=1; \
	done; exit $${failed:-0}

clean: ## remove what was built, the environment included
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
