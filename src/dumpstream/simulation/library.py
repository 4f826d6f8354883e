"""The shared library of the simulated runtime, for ctypes; native/sim/api/sim.h says what it does."""

import ctypes
import importlib.util
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple


class FileForecast(ctypes.Structure):
    """struct dssim_file."""

    _fields_ = (
        ("name", ctypes.c_char * 4096),
        ("fault", ctypes.c_char * 64),
        ("bytes", ctypes.c_uint64),
        ("chunks", ctypes.c_uint64),
    )


class _SourceTruth(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_uint32), ("index", ctypes.c_uint32), ("op", ctypes.c_uint64))


class OperandTruth(ctypes.Structure):
    """struct dssim_operand."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("nans", ctypes.c_uint64),
        ("infinities", ctypes.c_uint64),
        ("saturated", ctypes.c_uint64),
        ("dtype", ctypes.c_uint32),
        ("dims", ctypes.c_uint32),
        ("dim", ctypes.c_uint64 * 8),
        ("in_place", ctypes.c_uint32),
        ("injected", ctypes.c_uint32),
        ("sources", ctypes.c_uint32),
        ("source", _SourceTruth * 2),
    )


class ExecutionTruth(ctypes.Structure):
    """struct dssim_execution."""

    _fields_ = (
        ("name", ctypes.c_char * 64),
        ("type", ctypes.c_char * 64),
        ("model", ctypes.c_uint64),
        ("task", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("is_call", ctypes.c_uint32),
        ("is_collective", ctypes.c_uint32),
        ("is_undumped", ctypes.c_uint32),
        ("inputs", ctypes.c_uint32),
        ("outputs", ctypes.c_uint32),
        ("operand", OperandTruth * 6),
    )


class SimulationCounters(NamedTuple):
    """What happened to the chunks since the library was loaded."""

    files: int  #: that the device has sent to their end
    delivered: int  #: chunks that the callback took
    refused: int  #: chunks that the callback answered with nonzero; they are lost
    disk: int  #: chunks written to disk, because no callback was registered
    lost: int  #: chunks in flight when the dump was finalised, or that could not be written to disk
    ignored: int  #: registrations while another callback was registered
    exceptions: int  #: exception dumps, which go to disk and never to the callback


def read_counters() -> SimulationCounters:
    """Return the counters of the library."""
    counters = (ctypes.c_uint64 * len(SimulationCounters._fields))()  # struct dssim_counters
    load_library().dssim_read_counters(counters)
    return SimulationCounters(*counters)


_INT, _I8, _I32, _U32, _U64 = ctypes.c_int, ctypes.c_int8, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64
_TEXT, _ADDRESS, _SIZE = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
_to = ctypes.POINTER

#: The arguments of every function that has any.
_ARGUMENTS: Mapping[str, tuple[type, ...]] = {
    "aclInit": (_TEXT,),
    "aclFinalizeReference": (_to(_U64),),
    "aclmdlSetDump": (_TEXT,),
    "acldumpRegCallback": (_ADDRESS, _I32),
    "acldumpGetPath": (_INT,),
    "acldumpSaveExceptionInfo": (_TEXT, _TEXT, _ADDRESS, _SIZE),
    "acldumpGetExceptionInfoPath": (_TEXT, _SIZE),
    "aclopStartDumpArgs": (_U32, _TEXT),
    "aclopStopDumpArgs": (_U32,),
    "aclrtSetDevice": (_I32,),
    "aclrtGetDevice": (_to(_I32),),
    "aclrtResetDevice": (_I32,),
    "aclrtGetCurrentContext": (_to(_ADDRESS),),
    "aclrtSetCurrentContext": (_ADDRESS,),
    "aclprofInit": (_TEXT, _SIZE),
    "aclprofStart": (_ADDRESS,),
    "aclprofStop": (_ADDRESS,),
    "aclprofSetConfig": (_INT, _TEXT, _SIZE),
    "aclprofCreateConfig": (_to(_U32), _U32, _INT, _ADDRESS, _U64),
    "aclprofDestroyConfig": (_ADDRESS,),
    "aclprofModelSubscribe": (_U32, _ADDRESS),
    "aclprofModelUnSubscribe": (_U32,),
    "aclprofCreateSubscribeConfig": (_I8, _INT, _ADDRESS),
    "aclprofDestroySubscribeConfig": (_ADDRESS,),
    "aclprofGetOpDescSize": (_to(_SIZE),),
    "aclprofGetOpNum": (_TEXT, _SIZE, _to(_U32)),
    "dssim_workload_open": (_TEXT, _TEXT, _SIZE),
    "dssim_workload_close": (_ADDRESS,),
    "dssim_config_open": (_TEXT,),
    "dssim_config_close": (_ADDRESS,),
    "dssim_ops_per_step": (_ADDRESS,),
    "dssim_file_describe": (_ADDRESS, _ADDRESS, _U64, _U64, _U32, _to(FileForecast), _ADDRESS),
    "dssim_execution_describe": (_ADDRESS, _U64, _U64, _to(ExecutionTruth)),
    "dssim_load": (_ADDRESS,),
    "dssim_start": (_U64,),
    "dssim_run": (_U64,),
    "dssim_read_counters": (_to(_U64),),
}

#: What functions return that return neither an int nor nothing.
_RESULTS: Mapping[str, type] = {
    "acldumpGetPath": _TEXT,
    "aclprofCreateConfig": _ADDRESS,
    "aclprofCreateSubscribeConfig": _ADDRESS,
    "dssim_workload_open": _ADDRESS,
    "dssim_config_open": _ADDRESS,
    "dssim_ops_per_step": _U64,
    "dssim_run": _U64,
}


def simulated_library() -> Path:
    """Return the path of the simulated runtime, a shared library with CANN's ABI."""
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
    for name, arguments in _ARGUMENTS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = _RESULTS.get(name, _INT), arguments
    return library


def check_errno(result: int) -> None:
    """Raise the OSError that a negative *result* stands for."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
