"""SimulatedRuntime: stands for a training program on an NPU."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from dumpstream._errors import AclError
from dumpstream.codes import AclCode
from dumpstream.simulation.library import Counters, check_errno, load_library
from dumpstream.simulation.workload import Workload, opened

if TYPE_CHECKING:
    from types import TracebackType

_SUCCESS = 0


def dump_config(dump_path: str | os.PathLike[str]) -> str:
    """Return the text of an acl.json that dumps every operator, for `aclmdlSetDump` or `aclInit`.

    *dump_path* must exist and be writable, although nothing is written there while a callback is registered.
    """
    return Workload().config(dump_path)


class SimulationCounters(NamedTuple):
    """What became of the chunks since the library was loaded."""

    files: int  #: sent to their end by the device
    delivered: int  #: chunks the callback took
    refused: int  #: chunks it answered with nonzero; they are gone
    disk: int  #: chunks written to disk, as nothing was registered
    lost: int  #: chunks in flight when the dump was finalised, or that the disk did not take
    ignored: int  #: registrations while another was in place
    exceptions: int  #: exception dumps, which go to disk and never to the callback


class SimulatedRuntime:
    """The simulated runtime, initialised and with a workload to run; a context manager.

    As with CANN there is one in a process, but one may follow another. It stands for the training program:
    it initialises ACL, sets the device of the entering thread, runs steps, and leaves the dump functions to
    the capture. Calls that wait release the GIL. Enter and finalise on one thread; run and stop on any.
    """

    _in_use = threading.Lock()

    def __init__(
        self, workload: Workload | None = None, *, config: str | os.PathLike[str] | None = None
    ) -> None:
        self.workload = workload or Workload()
        self._config = config
        self._entered = False
        #: The library itself, with the prototypes of all its functions set.
        self.library = load_library()

    def __enter__(self) -> Self:
        """Call `aclInit` and `aclrtSetDevice`, and load the workload.

        Raises:
            RuntimeError: another one is in use.
            ValueError: a field of the workload is out of range.
            AclError: the configuration is refused.
        """
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError("a simulated runtime is in use in this process; leave its block first")
        try:
            with opened(self.workload) as handle:
                self._call("aclInit", None if self._config is None else os.fsencode(self._config))
                self._call("aclrtSetDevice", self.workload.device_id)
                self.library.dssim_load(handle)
        except BaseException:
            self._in_use.release()
            raise
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finalize()

    def load_models(self) -> None:
        """Load the models now: they dump what the configuration in force now says, and no later one.

        Nothing comes of them after the dump is finalised. Without this, every run loads them for itself.
        """
        self.library.dssim_load_models()

    def unload_models(self) -> None:
        """Wait for the device, then undo `load_models`."""
        self.library.dssim_unload_models()

    def run(self, steps: int | None = None) -> int:
        """Run *steps* further steps, or the workload's own number, and wait for the device.

        Returns the number of files sent: none unless a dump is configured.
        """
        return int(self.library.dssim_run(self._steps(steps)))

    def start(self, steps: int | None = None) -> None:
        """Begin *steps* further steps, or the workload's own number, and return at once."""
        check_errno(self.library.dssim_start(self._steps(steps)))

    def synchronize(self) -> None:
        """Wait for the device, on which this thread is set.

        Chunks may still be queued in the runtime: `aclmdlFinalizeDump` delivers those.
        """
        self._call("aclrtSetDevice", self.workload.device_id)
        self._call("aclrtSynchronizeDevice")

    def stop(self) -> None:
        """Make `run`, now or later and on any thread, return after the files the device is in."""
        self.library.dssim_stop()

    def finalize(self) -> None:
        """Stop, wait for the device, and undo what entering did. Further calls have no effect."""
        if not self._entered:
            return
        self._entered = False
        self.stop()
        self.synchronize()
        self._call("aclrtResetDevice", self.workload.device_id)
        self._call("aclFinalizeReference", None)
        self._in_use.release()

    @property
    def exception_directory(self) -> Path:
        """Where exception dumps go, or went last."""
        path = ctypes.create_string_buffer(os.pathconf("/", "PC_PATH_MAX"))
        self._call("acldumpGetExceptionInfoPath", path, len(path))
        return Path(os.fsdecode(path.value))

    @property
    def counters(self) -> SimulationCounters:
        """What became of the chunks so far."""
        counters = Counters()
        self.library.dssim_read_counters(ctypes.byref(counters))
        return SimulationCounters(*(getattr(counters, name) for name in SimulationCounters._fields))

    def _steps(self, steps: int | None) -> int:
        wanted = self.workload.steps if steps is None else steps
        if wanted < 0:
            raise ValueError(f"steps={wanted}: must be 0 or more")
        return wanted

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self.library, function)(*arguments)
        if code not in (_SUCCESS, AclCode.REPEAT_INITIALIZE):
            raise AclError(function, code)
