"""A program that calls the runtime through ctypes, in as many processes as its second argument says, started
as its third says; the fourth may be a dump configuration to drive the dump with.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import sys
from typing import Any


def job(library: str, config: str) -> None:
    """Run two steps."""
    acl = ctypes.CDLL(library)
    acl.dssim_workload_open.restype = ctypes.c_void_p
    acl.dssim_run.restype = ctypes.c_uint64
    assert acl.aclInit(None) == 0
    assert acl.aclrtSetDevice(0) == 0
    if config:
        assert acl.aclmdlInitDump() == 0
        assert acl.aclmdlSetDump(config.encode()) == 0
    error = ctypes.create_string_buffer(200)
    workload = acl.dssim_workload_open(b"models=2\nops=4\n", error, len(error))
    acl.dssim_load(ctypes.c_void_p(workload))
    assert acl.dssim_run(2) == 16
    if config:
        assert acl.aclrtSynchronizeDevice() == 0
        assert acl.aclmdlFinalizeDump() == 0
    assert acl.aclFinalize() == 0


def main(library: str, count: int, method: str, config: str) -> None:
    """Run the job in *count* processes, or in this one if *method* is "none"."""
    if method == "none":
        job(library, config)
        return
    context: Any = multiprocessing.get_context(method)
    processes = [context.Process(target=job, args=(library, config)) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else "")
