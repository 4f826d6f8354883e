"""SimulatedRuntime: a training program on a simulated NPU."""

import ctypes
import os
import threading
from pathlib import Path
from typing import Self

from dumpstream._errors import AclError
from dumpstream.codes import AclCode
from dumpstream.simulation.library import SimulationCounters, check_errno, load_library, read_counters
from dumpstream.simulation.workload import Workload, opened


def dump_config(dump_path: str | os.PathLike[str]) -> str:
    """Return the text of an acl.json that dumps every operator, for `aclmdlSetDump` or `aclInit`.

    *dump_path* must be a writable directory, although a registered callback takes everything.
    """
    return Workload().config(dump_path)


class SimulatedRuntime:
    """The simulated runtime, initialised, with a workload to run; a context manager.

    As with CANN, a process has one at a time. It plays the training program: it initialises ACL, sets the
    device of the entering thread, runs steps, and leaves the dump functions to the capture. Calls that wait
    release the GIL. Enter and finalise on one thread; run and stop on any.
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
            RuntimeError: another simulated runtime is in use.
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

    def __exit__(self, *_: object) -> None:
        self.finalize()

    def load_models(self) -> None:
        """Load the models now: they dump by the configuration that is in force now, and by no later one.

        After the dump is finalised, they dump nothing. Without this call, every run loads the models itself.
        """
        self.library.dssim_load_models()

    def unload_models(self) -> None:
        """Wait for the device, then undo `load_models`."""
        self.library.dssim_unload_models()

    def run(self, steps: int | None = None) -> int:
        """Run *steps* further steps, by default as many as the workload has, and wait for the device.

        Returns the number of files sent: 0 unless a dump is configured.
        """
        return int(self.library.dssim_run(self._steps(steps)))

    def start(self, steps: int | None = None) -> None:
        """Begin *steps* further steps, by default as many as the workload has, and return at once."""
        check_errno(self.library.dssim_start(self._steps(steps)))

    def synchronize(self) -> None:
        """Set the device of this thread, and wait for it.

        Chunks may still be queued in the runtime: `aclmdlFinalizeDump` delivers them.
        """
        self._call("aclrtSetDevice", self.workload.device_id)
        self._call("aclrtSynchronizeDevice")

    def stop(self) -> None:
        """Make `run` on any thread, now or later, return after the files that are being sent."""
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
        """Where exception dumps go, or last went."""
        path = ctypes.create_string_buffer(os.pathconf("/", "PC_PATH_MAX"))
        self._call("acldumpGetExceptionInfoPath", path, len(path))
        return Path(os.fsdecode(path.value))

    @property
    def counters(self) -> SimulationCounters:
        """What happened to the chunks so far."""
        return read_counters()

    def _steps(self, steps: int | None) -> int:
        wanted = self.workload.steps if steps is None else steps
        if wanted < 0:
            raise ValueError(f"steps={wanted}: must be 0 or more")
        return wanted

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self.library, function)(*arguments)
        if code and code != AclCode.REPEAT_INITIALIZE:
            raise AclError(function, code)
