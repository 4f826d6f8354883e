# Everything runs in a virtual environment of its own; nothing but python3 (3.11+), a C compiler and make is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard $(addprefix src/dumpstream/native/,*.[ch] */*.[ch] */*/*.[ch]))
C_FILES := $(NATIVE) $(wildcard tests/*/*.[ch] benchmarks/*.c)
MODULES := $(wildcard $(addprefix src/dumpstream/,*.py* */*.py */*/*.py))
DEMO := build/demo
AARCH64 := build/aarch64
# How many processes run Python tests at once. Many tests wait for processes and timers, so two cores carry four.
WORKERS ?= 4
PARALLEL := --numprocesses $(WORKERS) --dist worksteal
# The Azure server of the tests, from npm; without npm the tests leave Azure out, and say so.
AZURITE := build/azurite/node_modules/.bin/azurite-blob

# Hundreds of tests start Python; each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo man test test-engine test-page test-scale test-stores test-workloads lint native-test native-test-aarch64 test-aarch64 wheels pytest bench clean
help: ## show this
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

# Runs $(2) with a dot for each second under the title $(1); shows what it printed only if it failed.
define with_dots
@printf '%s ' '$(1)'; log=$$(mktemp); ( $(2) ) > $$log 2>&1 & job=$$!; trap 'kill $$job; rm -f $$log; exit 130' INT TERM; \
    while kill -0 $$job 2>/dev/null; do printf .; sleep 1; done; \
    if wait $$job; then echo ' done'; rm -f $$log; else echo ' failed'; cat $$log; rm -f $$log; exit 1; fi
endef

$(BIN)/uv:
	$(call with_dots,making $(VENV),$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check uv)

# The development install: Python files are used in place, the native part is built again when it changed.
$(VENV)/installed: $(BIN)/uv pyproject.toml CMakeLists.txt $(NATIVE) $(VENV)/modules
	$(call with_dots,installing dumpstream and its tools,$(BIN)/uv pip install --python $(BIN)/python -C cmake.define.DUMPSTREAM_WERROR=ON --editable '.[all]' --group dev)
	@touch $@

# That install finds modules by a list, so it is made again when a module is added, moved or deleted.
$(VENV)/modules: $(BIN)/uv FORCE
	@find src -name '*.py' | sort | cmp -s - $@ || find src -name '*.py' | sort > $@

.PHONY: FORCE
FORCE:

# Shows a command as it is typed, in lines that fit a terminal, and runs it.
define shown
@printf '\n$$ %s\n' "$(1)" | sed 's/ \(-- dump\|--select\)/ \\\n    \1/'; PATH="$(abspath $(BIN)):$$PATH"; $(1)
endef

demo: $(VENV)/installed ## capture a simulated job of four processes, verify it, and find its first NaN
	@rm -rf $(DEMO)
	$(call shown,dumpstream capture --out $(DEMO) -- dumpstream simulate --ranks 4 --workload job --fault rank2:nan=5@12)
	$(call shown,dumpstream verify $(DEMO))
	$(call shown,dumpstream diagnose $(DEMO) | head -6 | fold -sw 90)
	@printf '\nTo go on: `. $(BIN)/activate` puts dumpstream into your PATH, and `dumpstream view $(DEMO)` shows this job.\n'

man: $(VENV)/installed ## the man page: man -l build/man/man1/dumpstream.1
	@mkdir -p build/man/man1
	$(BIN)/python -m dumpstream.cli.grammar.manual > build/man/man1/dumpstream.1

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

test-engine: $(VENV)/installed ## plans on a dask cluster, whose workers and store are killed; not part of test
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m engine tests/engine

# Debian's chromium, or another browser whose path is in CHROMIUM.
test-page: $(VENV)/installed ## the page of a run in a real browser; not part of test
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || { echo 'chromium is missing; apt-get install chromium, or set CHROMIUM to its path' >&2; exit 1; }
	$(BIN)/python -m pytest $(PARALLEL) -m page tests/view

test-scale: $(VENV)/installed ## 64 processes with 20,000 files each into one collector; not part of test
	$(BIN)/python -m pytest -m scale tests/scale

test-workloads: $(VENV)/installed ## diagnoses a thousand random workloads; minutes, not part of test
	$(BIN)/python -m pytest $(PARALLEL) -m workloads tests/diagnosis

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

# aarch64, emulated. Everything is in $(AARCH64) and made once: Debian's Python, a virtual environment of it with the
# versions that $(VENV) has, and the wheel, which is cross-built again when a source has changed.
$(AARCH64)/sysroot/usr/bin/python3: tests/aarch64/sysroot.sh tests/aarch64/launcher.c
	mkdir -p $(AARCH64)
	tests/aarch64/sysroot.sh $(AARCH64)

$(AARCH64)/dependencies: $(AARCH64)/sysroot/usr/bin/python3 pyproject.toml | $(VENV)/installed
	$(BIN)/uv venv --quiet --clear --python $< $(AARCH64)/venv
	$(BIN)/uv pip freeze --python $(BIN)/python --exclude-editable > $(AARCH64)/versions.txt
	$(BIN)/uv pip install --python $(AARCH64)/venv/bin/python --only-binary :all: --constraints $(AARCH64)/versions.txt \
	    --requirements pyproject.toml --all-extras
	@touch $@

$(AARCH64)/installed: $(AARCH64)/dependencies CMakeLists.txt tests/aarch64/toolchain.cmake $(NATIVE) $(MODULES)
	rm -rf $(AARCH64)/dist
	_PYTHON_HOST_PLATFORM=linux-aarch64 $(BIN)/uv build --wheel --python $(BIN)/python --out-dir $(AARCH64)/dist \
	    -C cmake.toolchain-file=tests/aarch64/toolchain.cmake -C cmake.define.DUMPSTREAM_WERROR=ON
	$(BIN)/uv pip install --python $(AARCH64)/venv/bin/python --no-deps --reinstall $(AARCH64)/dist/*.whl
	@touch $@

test-aarch64: $(AARCH64)/installed ## captures by an emulated aarch64 program, compared with captures here; not part of test
	$(BIN)/python -m pytest --verbose -m aarch64 tests/aarch64

# fork_test and pages_test are left out: qemu neither wipes pages on fork nor populates them.
native-test-aarch64: $(VENV)/installed $(AARCH64)/sysroot/usr/bin/python3 ## the C tests for aarch64, emulated; not part of test
	$(BIN)/cmake -S . -B build/native-aarch64 -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DCMAKE_TOOLCHAIN_FILE=tests/aarch64/toolchain.cmake -DCMAKE_BUILD_TYPE=Release \
	    -DDUMPSTREAM_NATIVE_TESTS=ON -DDUMPSTREAM_WERROR=ON >/dev/null
	MAKEFLAGS= $(BIN)/cmake --build build/native-aarch64
	$(BIN)/ctest --test-dir build/native-aarch64 --output-on-failure --exclude-regex 'fork_test|pages_test'

wheels: $(BIN)/uv ## the release wheels for x86-64 and aarch64, in dist; needs docker
	$(BIN)/uv tool run --from 'cibuildwheel>=3' cibuildwheel --platform linux --output-dir dist

bench: $(VENV)/installed ## all benchmarks, a few minutes
	for bench in benchmarks/bench_*.py; do $(BIN)/python $$bench || exit 1; done

clean: ## remove everything that was made
	rm -rf $(VENV) build dist
