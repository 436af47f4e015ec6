# Makefile: the commands of everyday work. `make demo` and `make test` do their own set-up.

PYTHON ?= python3
JOBS ?= $(shell nproc)
VENV := .venv
BUILD := build/wheel
WHEEL := build/dist/.built
PREFIX := build/prefix
BIN := $(VENV)/bin
# Python compiles what is imported; of the rest there is half a minute.
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile
PIP_WHEEL := $(BIN)/python -m pip wheel -q --disable-pip-version-check
CMAKE := $(BIN)/cmake
export JOBS
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)
# Modules are installed uncompiled: whoever imports torch first keeps what the next process reads.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/$(BIN):$(PATH)

SOURCES := $(shell find CMakeLists.txt pyproject.toml README.md LICENSE cmake third_party include \
  src python -type f -not -path '*/__pycache__/*' 2>/dev/null)
CPP_FILES = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cuh' '*.cu')

.PHONY: help demo train test test-all cpp-tests zoo bench lint format asan fuzz clean
help:
	@echo "make demo    build, then quantize and multiply the weights of a real model"
	@echo "             (CHECKPOINT=file.safetensors takes another one, and needs no network)"
	@echo "make train   build, then train a small GPT with five recipes, and draw their losses"
	@echo "make test    build, then the C++ tests, the Python tests and the examples"
	@echo "make test-all   the same, with those Python tests that take long"
	@echo "make zoo     convert small models of all types and load them; make test does a part of it"
	@echo "make bench   build, then measure, and write bench/results"
	@echo "make lint    check the style and the types; make format puts the style right"
	@echo "make asan    the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make fuzz    short fuzz runs; needs clang to be guided by coverage"
	@echo "make clean   remove what was built"

demo: $(VENV)/.installed
	@$(BIN)/python -m examples.demo $(if $(CHECKPOINT),--checkpoint "$(CHECKPOINT)")

train: $(VENV)/.installed $(VENV)/.test-tools
	@$(BIN)/python examples/train_gpt.py --steps 400 --output build/losses.png

# Two goals side by side: pip installs, or compilers work.
together = $(MAKE) --no-print-directory $(1) & first=$$!; \
  $(MAKE) --no-print-directory $(2); second=$$?; wait $$first && exit $$second

test: $(VENV)/.build-tools
	@bash tools/system_packages.sh $(PYTHON) tests
	@$(call together,$(VENV)/.test-tools,$(WHEEL))
	@$(call together,$(VENV)/.installed,cpp-tests)
	@bash tools/test.sh $(BUILD) $(PREFIX)

test-all: export MXKERN_TEST_ALL = 1
test-all: test

cpp-tests: $(WHEEL)
	@echo "mxkern: building the C++ tests"
	@$(CMAKE) $(BUILD) -DMXKERN_TESTS=ON -DMXKERN_TEST_FEWER=$(if $(MXKERN_TEST_ALL),OFF,ON) >/dev/null
	@$(CMAKE) --build $(BUILD) -- --quiet
	@$(CMAKE) --install $(BUILD) --component development --prefix $(PREFIX) >/dev/null

zoo: $(VENV)/.installed $(VENV)/.test-tools
	@$(BIN)/python -m pytest -q -n $(JOBS) tests/zoo

bench: $(VENV)/.installed
	@$(BIN)/python -m bench.runner

lint: $(VENV)/.lint-tools
	@printf '%s\n' $(CPP_FILES) | xargs -n 50 -P $(JOBS) $(BIN)/clang-format --dry-run -Werror
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/mypy
	@echo "mxkern: style and types are right"

format: $(VENV)/.lint-tools
	@$(BIN)/clang-format -i $(CPP_FILES)
	@$(BIN)/ruff check --quiet --fix-only
	@$(BIN)/ruff format --quiet

asan: $(VENV)/.build-tools
	@bash tools/system_packages.sh $(PYTHON) tests
	@bash tools/sanitize.sh
	@$(BIN)/ctest --preset asan -j $(JOBS)

fuzz: $(VENV)/.installed
	@bash tools/fuzz.sh 20

clean:
	rm -rf build dist $(VENV)/.installed $(VENV)/.test-tools

# The environment, with the tools of the build.
$(VENV)/.build-tools: pyproject.toml tools/system_packages.sh
	@bash tools/system_packages.sh $(PYTHON)
	@echo "mxkern: preparing the environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python tools/requirements.py build | $(PIP) -r /dev/stdin 'cmake>=3.25' ninja
	@touch $@

# The package as `pip install .` builds it, in a folder that keeps the objects for the next time.
$(WHEEL): $(VENV)/.build-tools $(SOURCES)
	@echo "mxkern: building the package"
	@rm -rf $(@D)
	@$(PIP_WHEEL) --no-deps --no-build-isolation --config-settings=build-dir=$(BUILD) -w $(@D) .
	@touch $@

$(VENV)/.installed: $(WHEEL)
	@echo "mxkern: installing the package"
	@$(BIN)/python tools/requirements.py runtime cli plot | $(PIP) -r /dev/stdin
	@$(PIP) --no-deps --force-reinstall $(dir $(WHEEL))*.whl
	@touch $@

$(VENV)/.test-tools: $(VENV)/.build-tools tools/install_frameworks.sh
	@echo "mxkern: installing the tools of the tests"
	@$(BIN)/python tools/requirements.py test | $(PIP) -r /dev/stdin
	@bash tools/install_frameworks.sh $(BIN)/python
	@touch $@

$(VENV)/.lint-tools: $(VENV)/.build-tools
	@$(BIN)/python tools/requirements.py runtime lint | $(PIP) -r /dev/stdin
	@touch $@
