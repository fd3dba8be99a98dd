# One verb per chore. `make train` and `make test` set up what they need first.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# pip would compile every module of every package; Python compiles those that are imported.
INSTALL := $(PIP) install --no-compile -c constraints.txt
EDITABLE := flock $(VENV) $(INSTALL) --no-build-isolation -e
EXTRAS := dev,plot,video,box2d,pettingzoo,sb3,wandb,tensorboard,neptune,ray,sweep
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
SDIST := dist/pufferlib-$(VERSION).tar.gz
# Tests run on the wheel, as users install it: from a folder where the sources are not on the path.
PYTEST := cd build && venv/bin/python -m pytest --package ../dist -n 2 --dist loadgroup
# Warnings of other projects about each other are theirs.
CLIENTS := -m pytest -p no:cacheprovider -W default
C_FILES := $(shell find csrc -name '*.[ch]' -o -name '*.cpp')
CORE := $(filter-out csrc/tests/%,$(C_FILES)) csrc/envs.def CMakeLists.txt pyproject.toml
# An editable install knows the modules it was made with: a folder changes when one is added.
FOLDERS := pufferlib/ $(filter-out %__pycache__/,$(wildcard pufferlib/*/))
PACKAGE := $(shell find pufferlib -type f -not -path '*/__pycache__/*') README.md LICENSE

.DELETE_ON_ERROR:
# Repeats the errors of compiler and linker below what pip says around them.
COMPILER_ERRORS := grep -E -A 3 ': error: |undefined (reference|symbol)'

.PHONY: help train test test-slow test-integrations test-stress check format docs native asan installed bench wheel build extras clean

help:  ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

train: build  ## train breakout with the dashboard, about ten seconds
	$(BIN)/puffer train breakout

test:  ## C tests under ASan and UBSan, then the Python tests
	$(MAKE) --no-print-directory -j2 asan installed
	$(PYTEST) -m "not slow" ../tests

test-slow: build/venv/.installed extras  ## C tests under TSan, Python tests that take long: torchrun, sweeps, learning, other packages' envs
	SANITIZERS=tsan csrc/tests/run.sh
	$(PYTEST) -m slow ../tests

test-integrations: build extras  ## third-party envs, and clients of ours, with their packages
	$(BIN)/python scripts/test_integrations.py
	.integrations/all/bin/python -m pytest -p no:cacheprovider tests/integrations
	.integrations/clients/bin/python $(CLIENTS) --ignore tests/clients/test_rllib.py tests/clients
	.integrations/rllib/bin/python $(CLIENTS) tests/clients/test_rllib.py

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

asan:
	SANITIZERS=asan csrc/tests/run.sh

installed:  # one after the other: both use the objects of the core
	$(MAKE) --no-print-directory -j1 build/venv/.installed extras

bench: build extras  ## the speed bars beside their yardsticks
	$(BIN)/python benchmarks/bars.py

wheel: $(SDIST)  ## an sdist and the wheel made of it, in dist/

build: $(VENV)/.built  ## the venv with what training needs, and the C core

extras: $(VENV)/.extras  ## what tests and benchmarks need on top

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -U pip
	$(INSTALL) "scikit-build-core>=0.10" "nanobind>=2.4" ninja
	$(INSTALL) torch
	touch $@

$(VENV)/.built: $(VENV)/.installed $(CORE) $(FOLDERS)
	$(EDITABLE) . 2>&1 | tee $(VENV)/build.log || { $(COMPILER_ERRORS) $(VENV)/build.log; false; }
	touch $@

$(VENV)/.extras: pyproject.toml constraints.txt | $(VENV)/.built
	$(EDITABLE) ".[$(EXTRAS)]"
	touch $@

# The wheel is made of the sdist's files and, not to compile all of the core again, of the objects of
# the clone: tests/test_package.py compares the files of both.
$(SDIST): $(VENV)/.built $(PACKAGE) $(FOLDERS)
	rm -rf dist
	$(BIN)/python -c "from scikit_build_core.build import build_sdist; build_sdist('dist')" > /dev/null
	$(PIP) wheel --no-deps --no-build-isolation -w dist -C cmake.source-dir=$(CURDIR) \
	  -C build-dir="$(CURDIR)/build/{wheel_tag}" $@

# The wheel in a venv of its own, which borrows all other packages.
build/venv/.installed: $(SDIST)
	$(BIN)/python -m venv --clear --without-pip build/venv
	$(PIP) --python build/venv/bin/python install --no-deps dist/pufferlib-$(VERSION)-*.whl
	$(BIN)/python -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
	  > $$(echo build/venv/lib/python*/site-packages)/borrowed.pth
	touch $@

clean:  ## remove what was built, keep the venv
	rm -rf build dist $(VENV)/.built
