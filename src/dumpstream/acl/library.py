"""CANN's libraries: finds those of this process or of the installation, and calls their ACL functions."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dumpstream import _native
from dumpstream._errors import AclError, LibraryNotFoundError, ProfilingError

_ENVIRONMENT: Final = "DUMPSTREAM_ACL_LIBRARY"
_LIBRARIES: Final = ("libascend_dump.so", "libacl_rt.so", "libascendcl.so")
_PROFILER_LIBRARY: Final = "libmsprofiler.so"
_REGISTER: Final = "acldumpRegCallback"
_PROFILE: Final = "aclprofInit"


class Acl:
    """The ACL functions of one process; a `Driver`.

    Calls release the GIL but block the thread: make them from a worker thread.
    """

    #: The callback is native: no Python runs on the thread that is inside it.
    delivering: Final = False

    def __init__(self, libraries: list[ctypes.CDLL]) -> None:
        self.libraries = libraries

    @property
    def paths(self) -> tuple[str, ...]:
        """The libraries in use, by the names they were opened with."""
        names = (library._name for library in self.libraries)  # noqa: SLF001 - ctypes offers no other way
        return tuple(str(name or "this process") for name in names)

    def has(self, function: str) -> bool:
        """Whether *function* exists in any of the libraries."""
        return any(hasattr(library, function) for library in self.libraries)

    def init(self, config: Path | None) -> None:
        self.call("aclInit", None if config is None else os.fsencode(config))

    def release(self) -> bool:
        if not self.has("aclFinalizeReference"):
            return False
        self.call("aclFinalizeReference", None)
        return True

    def finalize(self) -> None:
        self.call("aclFinalize")

    def register(self) -> None:
        self.call(_REGISTER, ctypes.c_void_p(_native.callback_address()), ctypes.c_int32(0))

    def unregister(self) -> None:
        self.function("acldumpUnregCallback")()

    def init_dump(self) -> None:
        self.call("aclmdlInitDump")

    def set_dump(self, config: Path) -> None:
        self.call("aclmdlSetDump", os.fsencode(config))

    def finalize_dump(self) -> None:
        self.call("aclmdlFinalizeDump")

    def current_context(self) -> int | None:
        context = ctypes.c_void_p()
        if not self.has("aclrtGetCurrentContext"):
            return None
        code = self.function("aclrtGetCurrentContext")(ctypes.byref(context))
        return context.value if code == 0 else None

    def synchronize(self, context: int) -> None:
        self.call("aclrtSetCurrentContext", ctypes.c_void_p(context))
        self.call("aclrtSynchronizeDevice")

    def function(self, name: str) -> ctypes._FuncPointer:
        """Return the function *name*; for functions that do not return an error code.

        Raises:
            LibraryNotFoundError: none of the libraries has it.
        """
        for library in self.libraries:
            if hasattr(library, name):
                function: ctypes._FuncPointer = getattr(library, name)
                return function
        raise LibraryNotFoundError([f"{path} (has no {name})" for path in self.paths])

    def call(self, name: str, *arguments: object) -> None:
        """Call the function *name*, which returns an error code.

        Raises:
            AclError: the code is not 0.
            LibraryNotFoundError: none of the libraries has the function.
        """
        function = self.function(name)
        function.restype = ctypes.c_int
        if code := function(*arguments):
            raise AclError(name, code)


def load_acl(explicit: str | os.PathLike[str] | None = None) -> Acl:
    """Load the ACL libraries: the one named, else those in this process, else those of the installation.

    If a library is named (also by ``DUMPSTREAM_ACL_LIBRARY``), no other is loaded: functions that it lacks
    are taken from the libraries of this process.

    Raises:
        LibraryNotFoundError: none has the dump functions; the message has everything that was tried.
    """
    tried: list[str] = []
    named = explicit or os.environ.get(_ENVIRONMENT)
    if named:
        path = os.fspath(named)
        library = _open(path, tried)
        if library is None or not hasattr(library, _REGISTER):
            raise LibraryNotFoundError(tried or [f"{path} (has no {_REGISTER})"])
        return Acl([library, *_loaded()])
    for candidates in (_loaded(), _installed(tried)):
        libraries = list(candidates)
        if any(hasattr(library, _REGISTER) for library in libraries):
            return Acl(libraries)
    raise LibraryNotFoundError(["the libraries loaded in this process", *tried])


def load_profiling(explicit: str | os.PathLike[str] | None = None) -> Acl:
    """Load what `load_acl` does, and CANN's profiler if that lacks the functions of profiling.

    Raises:
        LibraryNotFoundError: no ACL library was found.
        ProfilingError: no library has the functions of profiling.
    """
    acl = load_acl(explicit)
    if acl.has(_PROFILE):
        return acl
    tried = [f"{path} (has no {_PROFILE})" for path in acl.paths]
    names = (_PROFILER_LIBRARY,)
    further = [*_loaded(names), *_installed(tried, names)]
    if any(hasattr(library, _PROFILE) for library in further):
        return Acl([*acl.libraries, *further])
    raise ProfilingError(
        f"no library can profile; tried {'; '.join(tried)}. Source the set_env.sh of a CANN with "
        f"{_PROFILER_LIBRARY}, or leave profiling out"
    )


def _loaded(names: Sequence[str] = _LIBRARIES) -> Iterator[ctypes.CDLL]:
    """Yield the libraries of this process: its global scope, then CANN's that were opened privately."""
    yield ctypes.CDLL(None)
    pattern = "|".join(re.escape(name) for name in names)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    for path in dict.fromkeys(re.findall(rf"^[^/\n]*(/.*/(?:{pattern})[.0-9]*)$", maps, re.MULTILINE)):
        if (library := _open(path, [], os.RTLD_NOLOAD)) is not None:
            yield library


def _installed(tried: list[str], names: Sequence[str] = _LIBRARIES) -> Iterator[ctypes.CDLL]:
    """Yield CANN's libraries from the path of the loader, or from ASCEND_HOME_PATH."""
    folders = [""]
    if home := os.environ.get("ASCEND_HOME_PATH"):
        folders += [f"{home}/lib64/", f"{home}/runtime/lib64/"]
    for name in names:
        for folder in folders:
            if (library := _open(folder + name, tried)) is not None:
                yield library
                break


def _open(path: str, tried: list[str], mode: int = 0) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(path, mode=mode or ctypes.DEFAULT_MODE)
    except OSError as exc:
        tried.append(f"{path} ({exc})" if path not in str(exc) else str(exc))
        return None
