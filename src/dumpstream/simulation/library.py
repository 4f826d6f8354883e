"""The shared library of the simulated runtime, as ctypes sees it; native/sim/api/sim.h says what it does."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class FileForecast(ctypes.Structure):
    """struct dssim_file."""

    _fields_ = (
        ("name", ctypes.c_char * 4096),
        ("fault", ctypes.c_char * 64),
        ("bytes", ctypes.c_uint64),
        ("chunks", ctypes.c_uint64),
    )


class Counters(ctypes.Structure):
    """struct dssim_counters."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("files", "delivered", "refused", "disk", "lost", "ignored", "exceptions")
    )


_PROTOTYPES: Mapping[str, tuple[type | None, tuple[type, ...]]] = {
    "aclInit": (ctypes.c_int, (ctypes.c_char_p,)),
    "aclFinalize": (ctypes.c_int, ()),
    "aclFinalizeReference": (ctypes.c_int, (ctypes.POINTER(ctypes.c_uint64),)),
    "aclmdlInitDump": (ctypes.c_int, ()),
    "aclmdlSetDump": (ctypes.c_int, (ctypes.c_char_p,)),
    "aclmdlFinalizeDump": (ctypes.c_int, ()),
    "acldumpRegCallback": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_int32)),
    "acldumpUnregCallback": (None, ()),
    "acldumpGetPath": (ctypes.c_char_p, (ctypes.c_int,)),
    "acldumpSaveExceptionInfo": (
        ctypes.c_int,
        (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t),
    ),
    "acldumpGetExceptionInfoPath": (ctypes.c_int, (ctypes.c_char_p, ctypes.c_size_t)),
    "aclopStartDumpArgs": (ctypes.c_int, (ctypes.c_uint32, ctypes.c_char_p)),
    "aclopStopDumpArgs": (ctypes.c_int, (ctypes.c_uint32,)),
    "aclrtSetDevice": (ctypes.c_int, (ctypes.c_int32,)),
    "aclrtGetDevice": (ctypes.c_int, (ctypes.POINTER(ctypes.c_int32),)),
    "aclrtResetDevice": (ctypes.c_int, (ctypes.c_int32,)),
    "aclrtGetCurrentContext": (ctypes.c_int, (ctypes.POINTER(ctypes.c_void_p),)),
    "aclrtSetCurrentContext": (ctypes.c_int, (ctypes.c_void_p,)),
    "aclrtSynchronizeDevice": (ctypes.c_int, ()),
    "aclprofInit": (ctypes.c_int, (ctypes.c_char_p, ctypes.c_size_t)),
    "aclprofFinalize": (ctypes.c_int, ()),
    "aclprofStart": (ctypes.c_int, (ctypes.c_void_p,)),
    "aclprofStop": (ctypes.c_int, (ctypes.c_void_p,)),
    "aclprofSetConfig": (ctypes.c_int, (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)),
    "aclprofCreateConfig": (
        ctypes.c_void_p,
        (ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64),
    ),
    "aclprofDestroyConfig": (ctypes.c_int, (ctypes.c_void_p,)),
    "aclprofModelSubscribe": (ctypes.c_int, (ctypes.c_uint32, ctypes.c_void_p)),
    "aclprofModelUnSubscribe": (ctypes.c_int, (ctypes.c_uint32,)),
    "aclprofCreateSubscribeConfig": (ctypes.c_void_p, (ctypes.c_int8, ctypes.c_int, ctypes.c_void_p)),
    "aclprofDestroySubscribeConfig": (ctypes.c_int, (ctypes.c_void_p,)),
    "aclprofGetOpDescSize": (ctypes.c_int, (ctypes.POINTER(ctypes.c_size_t),)),
    "aclprofGetOpNum": (ctypes.c_int, (ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint32))),
    "dssim_workload_open": (ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)),
    "dssim_workload_close": (None, (ctypes.c_void_p,)),
    "dssim_config_open": (ctypes.c_void_p, (ctypes.c_char_p,)),
    "dssim_config_close": (None, (ctypes.c_void_p,)),
    "dssim_ops_per_step": (ctypes.c_uint64, (ctypes.c_void_p,)),
    "dssim_file_describe": (
        ctypes.c_int,
        (
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_uint32,
            ctypes.POINTER(FileForecast),
            ctypes.c_void_p,
        ),
    ),
    "dssim_load": (None, (ctypes.c_void_p,)),
    "dssim_load_models": (None, ()),
    "dssim_unload_models": (None, ()),
    "dssim_start": (ctypes.c_int, (ctypes.c_uint64,)),
    "dssim_run": (ctypes.c_uint64, (ctypes.c_uint64,)),
    "dssim_stop": (None, ()),
    "dssim_read_counters": (None, (ctypes.POINTER(Counters),)),
    "dssim_reset": (None, ()),
}


def simulated_library() -> Path:
    """Return the path of the simulated runtime, a shared library with CANN's ABI.

    Raises:
        FileNotFoundError: the package was installed without it.
    """
    spec = importlib.util.find_spec("dumpstream._native")
    directory = Path(spec.origin).parent if spec and spec.origin else Path(__file__).parent
    path = directory / "libascendcl_sim.so"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; install dumpstream again")
    return path


@cache
def load_library() -> ctypes.CDLL:
    """Return the library with the prototypes of all its functions set."""
    library = ctypes.CDLL(str(simulated_library()))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def check_errno(result: int) -> None:
    """Raise the OSError that a negative *result* stands for."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
