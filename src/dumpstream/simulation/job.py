"""Job: a training process on the simulated runtime, from aclInit to aclFinalize."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, NoReturn, Self

from dumpstream.acl.library import Acl
from dumpstream.simulation.library import SimulationCounters, load_library, read_counters
from dumpstream.simulation.workload import Workload, opened

_POLL_S = 0.001
_WAKE_S = 0.1


class JobResult(NamedTuple):
    """What a job did."""

    steps: int  #: that it has finished
    seconds: float  #: that the steps took
    counters: SimulationCounters


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOptions:
    """What a job does."""

    workload: Workload
    config: Path | None = None  #: of the dump that it configures, as a framework does; None if a capture does
    crash_at: int | None = None  #: the step in which it dies, counted from 0
    crash_signal: signal.Signals = signal.SIGKILL  #: that kills it

    def of_rank(self, rank: int) -> Self:
        """Return what *rank* of several does: the same on a device of its own, with other bytes."""
        return replace(self, workload=self.workload.of_rank(rank))


class Job:
    """A training process: calls the ACL functions of the simulated runtime in the order of a framework.

    A process has one. It knows nothing of a capture: to one that interposes those functions, it is a program
    like any other.
    """

    def __init__(self, options: JobOptions) -> None:
        self._options = options
        self._library = load_library()
        self._acl = Acl([self._library])
        self._stopped = False

    def run(self) -> JobResult:
        """Run all steps, or those before `stop`, and finalise; signal handlers can run in the meantime.

        Raises:
            AclError: the runtime refused a call, most likely because of the configuration.
        """
        workload, acl = self._options.workload, self._acl
        with ExitStack() as undo, opened(workload) as handle:
            acl.call("aclInit", None)
            undo.callback(acl.call, "aclFinalize")
            device = undo.enter_context(ExitStack())  # reset after the dump is finalised
            if self._options.config is not None:
                acl.init_dump()
                undo.callback(acl.finalize_dump)
                acl.set_dump(
                    self._options.config
                )  # detailed exception dumps need it before the device is set
            acl.call("aclrtSetDevice", workload.device_id)
            device.callback(acl.call, "aclrtResetDevice", workload.device_id)
            undo.callback(acl.call, "aclrtSynchronizeDevice")
            self._library.dssim_load(handle)  # after the configuration, which affects models loaded later
            started = time.monotonic()
            # In a thread of its own: the main thread handles signals, and only between its calls.
            with ThreadPoolExecutor(1) as executor:
                running = executor.submit(self._run_steps)
                # If the system gives a signal to another thread, this one must run by itself to handle it.
                while not wait([running], timeout=_WAKE_S).done:
                    pass
                steps = running.result()
            seconds = time.monotonic() - started
        return JobResult(steps, seconds, read_counters())

    def stop(self) -> None:
        """Make `run` return after the files that are being sent; may be called in a signal handler."""
        self._stopped = True
        self._library.dssim_stop()

    def _run_steps(self) -> int:
        for step in range(self._options.workload.steps):
            if step == self._options.crash_at:
                self._crash()
            if not self._stopped:
                self._library.dssim_run(1)
            if self._stopped:
                return step
        return self._options.workload.steps

    def _crash(self) -> NoReturn:
        """Die in a step, after one of its files was sent."""
        before = read_counters().files
        step = threading.Thread(target=self._library.dssim_run, args=(1,))
        step.start()
        while step.is_alive() and read_counters().files == before:
            time.sleep(_POLL_S)
        os.kill(os.getpid(), self._options.crash_signal)
        raise AssertionError("the signal did not end the process")
