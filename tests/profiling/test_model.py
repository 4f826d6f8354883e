"""Profiler and simulated runtime in random orders of calls: what the profiler allows the runtime accepts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from dumpstream import Collect, Lifecycle, OrderError, Profiler, ProfileSettings, Subscriber
from dumpstream.acl.library import load_profiling
from dumpstream.simulation import SimulatedRuntime, Workload, simulated_library
from dumpstream.simulation.workload import opened

if TYPE_CHECKING:
    from collections.abc import Callable

_MODELS = 3
_SETTINGS = [
    ProfileSettings(devices=devices, collect=collect)
    for devices in ([0], [1], [0, 1], [2])
    for collect in (Collect.TASK_TIME, Collect.TASK_TIME | Collect.AICPU)
]


class Profiling(RuleBasedStateMachine):
    """Knows by simple sets what must be allowed; an AclError is a call that should have been refused."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="profiling-"))
        tempfile.tempdir, self.tempdir_before = str(self.directory), tempfile.tempdir
        self.library = SimulatedRuntime().library
        self.library.dssim_reset()
        self.initialized = False
        self.running: list[ProfileSettings] = []
        self.subscribed: set[int] = set()

    @initialize(cann=st.sampled_from(["8.5", "master"]), command=st.sampled_from([False, False, False, True]))
    def begin(self, cann: str, command: bool) -> None:  # noqa: FBT001 - hypothesis names it
        self.command = command
        self.config = self.directory / "acl.json"
        self.config.write_text('{"profiler": {"switch": "on"}}' if command else "{}")
        with opened(Workload(cann=cann, models=_MODELS)) as handle:
            self.library.dssim_load(handle)
        acl = load_profiling(simulated_library())
        self.lifecycle = Lifecycle(acl)
        self.lifecycle.init(self.config)
        self.profiler = Profiler(acl, self.lifecycle)
        self.subscriber = Subscriber(self.profiler)

    def expect(self, call: Callable[[], object], *, allowed: bool) -> bool:
        if allowed:
            call()
        else:
            with pytest.raises(OrderError):
                call()
        return allowed

    @rule(name=st.sampled_from(["first", "second"]))
    def init(self, name: str) -> None:
        allowed = not (self.command or self.initialized or self.subscribed)
        self.expect(lambda: self.profiler.init(self.directory / name), allowed=allowed)
        self.initialized |= allowed

    @rule(value=st.sampled_from(["1", "100"]))
    def set_config(self, value: str) -> None:
        allowed = self.initialized and not self.running
        self.expect(lambda: self.profiler.set_config("dvpp_freq", value), allowed=allowed)

    @rule(wanted=st.sampled_from(_SETTINGS))
    def start(self, wanted: ProfileSettings) -> None:
        busy = {device for one in self.running for device in one.devices}
        allowed = self.initialized and busy.isdisjoint(wanted.devices)
        if self.running and allowed:
            with pytest.warns(UserWarning, match="second aclprofStart"):
                self.profiler.start(wanted)
        else:
            self.expect(lambda: self.profiler.start(wanted), allowed=allowed)
        self.running += [wanted] * allowed

    @rule(wanted=st.sampled_from(_SETTINGS))
    def stop(self, wanted: ProfileSettings) -> None:
        allowed = wanted in self.running
        if self.expect(lambda: self.profiler.stop(wanted), allowed=allowed):
            self.running.remove(wanted)

    @rule()
    def finalize(self) -> None:
        allowed = self.initialized and not self.running
        self.expect(self.profiler.finalize, allowed=allowed)
        self.initialized &= not allowed

    @rule()
    def close(self) -> None:
        self.profiler.close()
        self.initialized, self.running = False, []

    @rule()
    def reinitialize(self) -> None:
        if self.expect(self.lifecycle.finalize, allowed=not self.initialized):
            self.lifecycle.init(self.config)

    @rule(model=st.integers(0, _MODELS - 1))
    def subscribe(self, model: int) -> None:
        allowed = not (self.command or self.initialized or model in self.subscribed)
        self.expect(lambda: self.subscriber.subscribe(model, 1), allowed=allowed)
        self.subscribed |= {model} if allowed else set()

    @rule(model=st.integers(0, _MODELS - 1))
    def unsubscribe(self, model: int) -> None:
        allowed = not self.command and not self.initialized and model in self.subscribed
        self.expect(lambda: self.subscriber.unsubscribe(model), allowed=allowed)
        self.subscribed -= {model} if allowed else set()

    @rule()
    def count(self) -> None:
        allowed = not (self.command or self.initialized)
        self.expect(lambda: self.subscriber.count_operators(bytes(128)), allowed=allowed)

    def teardown(self) -> None:
        self.profiler.close()
        self.library.dssim_reset()
        tempfile.tempdir = self.tempdir_before
        shutil.rmtree(self.directory)


def test_what_the_profiler_allows_the_runtime_accepts() -> None:
    run_state_machine_as_test(
        Profiling,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
