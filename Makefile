# Everything runs in a virtual environment of its own; nothing but python3 (3.11+), a C compiler and make is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard $(addprefix src/dumpstream/native/,*.[ch] */*.[ch] */*/*.[ch]))
C_FILES := $(NATIVE) $(wildcard tests/*/*.[ch] benchmarks/*.c)
DEMO := build/demo
# How many processes run Python tests at once. Many tests wait for processes and timers, so two cores carry four.
WORKERS ?= 4
PARALLEL := --numprocesses $(WORKERS) --dist worksteal
# The Azure server of the tests, from npm; without npm the tests leave Azure out, and say so.
AZURITE := build/azurite/node_modules/.bin/azurite-blob

.PHONY: help demo test test-scale test-stores lint native-test native-test-aarch64 pytest bench clean
help: ## show this
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

# The development install: Python files are used in place, the native part is built again when it changed.
$(VENV)/installed: $(BIN)/uv pyproject.toml CMakeLists.txt $(NATIVE) $(VENV)/modules
	$(BIN)/uv pip install --quiet --python $(BIN)/python -C cmake.define.DUMPSTREAM_WERROR=ON --editable '.[all]' --group dev
	@touch $@

# That install finds modules by a list, so it is made again when a module is added, moved or deleted.
$(VENV)/modules: $(BIN)/uv FORCE
	@find src -name '*.py' | sort | cmp -s - $@ || find src -name '*.py' | sort > $@

.PHONY: FORCE
FORCE:

demo: $(VENV)/installed ## capture a simulated job of four processes, list it and verify it
	rm -rf $(DEMO)
	$(BIN)/dumpstream capture --out $(DEMO) -- $(BIN)/dumpstream simulate --ranks 4
	$(BIN)/dumpstream ls $(DEMO)
	$(BIN)/dumpstream verify $(DEMO)

# Linting has one core busy, so the two native builds run beside it. pytest keeps all cores busy by itself.
test: $(VENV)/installed ## lint, types, native tests, Python tests; minutes
	$(MAKE) --jobs=3 --output-sync=target lint native-test
	$(MAKE) pytest

pytest: $(VENV)/installed ## the Python tests
	$(BIN)/python -m pytest $(PARALLEL)

$(AZURITE):
	npm install --prefix build/azurite --no-audit --no-fund --loglevel=error 'azurite@^3' || \
	    echo 'azurite cannot be installed; the tests leave Azure out' >&2

test-stores: $(VENV)/installed $(if $(shell command -v npm),$(AZURITE)) ## captures into real servers (seaweedfs, azurite), killed and cut off; minutes, not part of test
	$(BIN)/python -m pytest $(PARALLEL) -m stores tests/remote

test-scale: $(VENV)/installed ## 64 processes with 20,000 files each into one collector; not part of test
	$(BIN)/python -m pytest -m scale tests/scale

lint: $(VENV)/installed ## ruff, mypy, clang-format, codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	$(BIN)/codespell

native-test: native-test-address native-test-thread ## the C tests under ASan + UBSan and under TSan

# Without MAKEFLAGS: ninja counts its jobs itself.
native-test-address: SANITIZE := address,undefined
native-test-thread: SANITIZE := thread
native-test-%: $(VENV)/installed
	$(BIN)/cmake -S . -B build/native-$* -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DDUMPSTREAM_NATIVE_TESTS=ON -DDUMPSTREAM_WERROR=ON -DDUMPSTREAM_SANITIZE=$(SANITIZE) >/dev/null
	MAKEFLAGS= $(BIN)/cmake --build build/native-$*
	$(BIN)/ctest --test-dir build/native-$* --output-on-failure --parallel 2

# Debian's cross compiler and user-mode emulation. fork_test is left out: qemu does not wipe pages on fork.
native-test-aarch64: $(VENV)/installed ## the C tests for aarch64, emulated; not part of test
	@command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64 >/dev/null || \
	    { echo 'missing: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user' >&2; exit 1; }
	$(BIN)/cmake -S . -B build/native-aarch64 -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc \
	    '-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu' -DCMAKE_BUILD_TYPE=Release \
	    -DDUMPSTREAM_NATIVE_TESTS=ON -DDUMPSTREAM_WERROR=ON >/dev/null
	$(BIN)/cmake --build build/native-aarch64
	$(BIN)/ctest --test-dir build/native-aarch64 --output-on-failure --exclude-regex fork_test

bench: $(VENV)/installed ## all benchmarks, a few minutes
	for bench in benchmarks/bench_*.py; do $(BIN)/python $$bench || exit 1; done

clean: ## remove everything that was made
	rm -rf $(VENV) build dist
