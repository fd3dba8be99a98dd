# One verb per chore. `make train` and `make test` set up what they need first.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
EDITABLE := flock $(VENV) $(PIP) install -c constraints.txt --no-build-isolation -e
EXTRAS := dev,plot,video,box2d,pettingzoo,sb3,wandb,tensorboard,neptune,ray,sweep
C_FILES := $(shell find csrc -name '*.[ch]' -o -name '*.cpp')
CORE := $(filter-out csrc/tests/%,$(C_FILES)) csrc/envs.def CMakeLists.txt pyproject.toml
# An editable install knows the modules it was made with: a folder changes when one is added.
FOLDERS := pufferlib/ $(filter-out %__pycache__/,$(wildcard pufferlib/*/))

.PHONY: help train test test-slow test-integrations test-stress check format docs native bench wheel build extras clean

help:  ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

train: build  ## train breakout with the dashboard, about ten seconds
	$(BIN)/puffer train breakout

test: build extras native  ## C tests under sanitizers, then the Python tests
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: build extras  ## Python tests that take long: torchrun, sweeps, learning, other packages' envs
	$(BIN)/python -m pytest -n 2 -m slow

test-integrations: build extras  ## every family of third-party envs, with its packages
	$(BIN)/python scripts/test_integrations.py
	.integrations/all/bin/python -m pytest -p no:cacheprovider tests/integrations

test-stress: build extras  ## tests again and again: quiet, busy, on one core, in random order, ...
	$(BIN)/python scripts/stress_tests.py $(STRESS)

check: build extras  ## format, lint, types and layers, without changing a file
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layers.py

format: build extras  ## rewrite all files in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(C_FILES)

docs: build  ## write the generated tables, lists and pictures of README and docs
	$(BIN)/python scripts/generate_docs.py

native:  ## C tests under ASan, UBSan and TSan
	csrc/tests/run.sh

bench: build extras  ## the speed bars beside their yardsticks
	$(BIN)/python benchmarks/bars.py

wheel: build  ## a wheel in dist/
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist .

build: $(VENV)/.built  ## the venv with what training needs, and the C core

extras: $(VENV)/.extras  ## what tests and benchmarks need on top

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -U pip
	$(PIP) install -c constraints.txt "scikit-build-core>=0.10" "nanobind>=2.4" ninja
	$(PIP) install -c constraints.txt torch
	touch $@

$(VENV)/.built: $(VENV)/.installed $(CORE) $(FOLDERS)
	$(EDITABLE) .
	touch $@

$(VENV)/.extras: pyproject.toml constraints.txt | $(VENV)/.built
	$(EDITABLE) ".[$(EXTRAS)]"
	touch $@

clean:  ## remove what was built, keep the venv
	rm -rf build dist $(VENV)/.built
