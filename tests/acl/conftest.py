"""A library that only records its calls, and a program on the simulated runtime."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dumpstream import Lifecycle, load_acl
from dumpstream.simulation import Workload, dump_config, simulated_library
from dumpstream.simulation.library import load_library
from dumpstream.simulation.workload import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SMALL = Workload(models=1, ops=3, tensor_bytes="64")

#: Functions that write down that they were called, and return what `code_<name>` says.
FAKE = r"""
#include <string.h>

char calls[1000], config[4096];
void *registered;

static int called(const char *name, int code) {
    strcat(strcat(calls, name), " ");
    return code;
}

#define FUNCTION(name) \
    int code_##name; \
    int name(void) { return called(#name, code_##name); }

#ifdef WITH_DUMP
int code_acldumpRegCallback;
int acldumpRegCallback(void *callback, int flag) {
    registered = flag == 0 ? callback : NULL;
    return called("acldumpRegCallback", code_acldumpRegCallback);
}
FUNCTION(acldumpUnregCallback)
#endif

#ifdef WITH_REFERENCES
FUNCTION(aclFinalizeReference)
#endif

#ifdef WITH_ACL
FUNCTION(aclInit)
FUNCTION(aclFinalize)
FUNCTION(aclmdlInitDump)
FUNCTION(aclmdlFinalizeDump)
FUNCTION(aclrtSynchronizeDevice)
FUNCTION(aclrtSetCurrentContext)
int code_aclmdlSetDump;
int aclmdlSetDump(const char *path) {
    strcpy(config, path);
    return called("aclmdlSetDump", code_aclmdlSetDump);
}
int code_aclrtGetCurrentContext;
int aclrtGetCurrentContext(void **context) {
    *context = (void *)0x7700;
    return code_aclrtGetCurrentContext;
}
#endif
"""


def build_library(path: Path, *parts: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-o",
        str(path),
        *(f"-DWITH_{part}" for part in parts),
    ]
    subprocess.run(command, input=FAKE, text=True, check=True)
    return path


@pytest.fixture(scope="session")
def build() -> Callable[..., Path]:
    """Compile a library with some *parts* of the functions."""
    return build_library


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a library that has all functions, and CANN's two that divide them."""
    directory = tmp_path_factory.mktemp("with a space") / "lib"
    build_library(directory / "everything.so", "DUMP", "ACL")
    build_library(directory / "libascend_dump.so", "DUMP")
    build_library(directory / "libacl_rt.so", "ACL")
    return directory


class Fake:
    """A library for one test, and the calls it got."""

    def __init__(self, path: Path) -> None:
        self.acl = load_acl(path)
        self._library = ctypes.CDLL(str(path))

    def __setitem__(self, function: str, code: int) -> None:
        ctypes.c_int.in_dll(self._library, f"code_{function}").value = code

    @property
    def calls(self) -> list[str]:
        return (ctypes.c_char * 1000).in_dll(self._library, "calls").value.decode().split()

    @property
    def config(self) -> bytes:
        return (ctypes.c_char * 4096).in_dll(self._library, "config").value

    @property
    def registered(self) -> int | None:
        return ctypes.c_void_p.in_dll(self._library, "registered").value


@pytest.fixture
def fake(libraries: Path, tmp_path: Path) -> Fake:
    return Fake(Path(shutil.copy(libraries / "everything.so", tmp_path / "fake.so")))


@pytest.fixture
def only_dump(libraries: Path, tmp_path: Path) -> Fake:
    return Fake(Path(shutil.copy(libraries / "libascend_dump.so", tmp_path / "dump_only.so")))


class Program:
    """A program on the simulated runtime, which loads models and runs them."""

    def __init__(self, directory: Path) -> None:
        self.library = load_library()
        self.lifecycle = Lifecycle(load_acl(simulated_library()))
        self._directory = directory

    def config(self, name: str, **changes: object) -> Path:
        """Write a configuration with a dump_path of its own."""
        dump_path = self._directory / name
        dump_path.mkdir()
        root = json.loads(dump_config(dump_path))
        root["dump"] |= changes
        path = self._directory / f"{name}.json"
        path.write_text(json.dumps(root))
        return path

    def load(self) -> None:
        """Load a model, instead of the one before."""
        with opened(_SMALL) as workload:
            self.library.dssim_load(workload)
        self.library.dssim_load_models()

    def run(self) -> int:
        """Run the model for one step; return how many files it dumped."""
        return int(self.library.dssim_run(1))

    def load_and_run(self) -> None:
        self.load()
        self.run()

    def dumped_to_disk(self, name: str) -> int:
        """Return the number of files below the dump_path of configuration *name*."""
        return sum(1 for path in (self._directory / name).rglob("*") if path.is_file())


class Clock:
    """A clock for a driver: a wait is over at once, and `meanwhile` happens in it."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return sum(self.waits)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("dumpstream.acl.pyacl.time", clock)
    return clock


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    library = load_library()
    library.dssim_reset()
    yield Program(tmp_path)
    library.dssim_reset()


@pytest.fixture
def life(program: Program) -> Lifecycle:
    return program.lifecycle
