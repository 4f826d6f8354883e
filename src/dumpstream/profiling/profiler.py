"""Profiler: CANN's profiling functions, in an order that the runtime accepts."""

import ctypes
import os
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from dumpstream._errors import DumpstreamError, OrderError, ProfilingError
from dumpstream.acl.library import Acl
from dumpstream.acl.lifecycle import Lifecycle, Owner
from dumpstream.profiling.exclusion import take_turn
from dumpstream.profiling.settings import ProfileSettings, check_extra
from dumpstream.system.lock import release_lock

_ORDER: Final = (
    "aclInit, aclprofInit, aclprofSetConfig, load models, aclprofStart, run, aclprofStop, aclprofFinalize"
)
_LONGEST_PATH: Final = 4095


class ProfilingWarning(UserWarning):
    """The profile will not be complete."""


class _Started(NamedTuple):
    settings: ProfileSettings
    config: int  #: address of the aclprofConfig


class Profiler:
    """Profiling in this process.

    A call in the wrong order raises `OrderError` before the runtime is called, and one that the runtime
    refuses raises `AclError` and changes nothing. What else the program did, *lifecycle* knows (``aclInit``
    and its configuration, loaded models), and `ran`. Calls block: make them from a worker thread, one at a
    time.

    Args:
        acl: has the functions; `load_profiling` finds them.
        lifecycle: that of the process; by default another component has initialised ACL and no model is
            loaded.
    """

    def __init__(self, acl: Acl, lifecycle: Lifecycle | None = None) -> None:
        self.acl = acl
        self.lifecycle = lifecycle or Lifecycle(acl, initialized=True)
        self.subscribed: set[int] = set()  #: the models that a `Subscriber` has subscribed
        self._turn: int | None = None  # held from init to finalize
        self._started: list[_Started] = []
        self._ran = False

    @property
    def initialized(self) -> bool:
        """Whether `init` was called, and `finalize` was not."""
        return self._turn is not None

    @property
    def started(self) -> tuple[ProfileSettings, ...]:
        """What is being collected."""
        return tuple(started.settings for started in self._started)

    def ran(self) -> None:
        """Note that a model has run: what is started later does not collect that."""
        self._ran = True

    def init(self, path: Path) -> None:
        """Begin profiling into the directory *path*, which may be another one after `finalize`.

        Raises:
            ProfilingInUseError: another process is profiling.
            ProfilingError: the path is too long, or this process is profiled dynamically.
        """
        function = "aclprofInit"
        if self.lifecycle.acl is Owner.NOBODY:
            raise _refused(function, "aclInit has not been called")
        self.refuse_command(function, _ORDER)
        if self.initialized:
            raise _refused(function, "profiling is initialised; finalise it to change its path")
        if self.subscribed:
            raise _refused(function, "a model is subscribed; unsubscribe every model")
        encoded = os.fsencode(path)
        if len(encoded) > _LONGEST_PATH:
            raise ProfilingError(f"the path of a profile has {len(encoded)} bytes; use up to {_LONGEST_PATH}")
        if os.environ.get("PROFILING_MODE") == "dynamic":
            raise ProfilingError("PROFILING_MODE=dynamic excludes profiling from inside; unset it")
        if self.lifecycle.models:
            _warn("models were loaded before aclprofInit, so the profile lacks what loading them would tell")
        with ExitStack() as undo:
            turn = take_turn()
            undo.callback(release_lock, turn)
            self.acl.call(function, encoded, ctypes.c_size_t(len(encoded)))
            undo.pop_all()
        self._turn, self.lifecycle.profiling = turn, True

    def set_config(self, name: str, value: str) -> None:
        """Give the setting *name* (see `ProfileSettings.extra`) a *value*, for what is started from now on.

        Not every product has every setting.

        Raises:
            ValueError: CANN does not know the setting, or does not accept the value.
        """
        function = "aclprofSetConfig"
        extra = check_extra(name, value)
        self._need_init(function)
        if self._started:
            raise _refused(function, "collecting has started, and takes settings only before")
        encoded = value.encode()
        self.acl.call(function, ctypes.c_int(extra.number), encoded, ctypes.c_size_t(len(encoded)))

    def start(self, settings: ProfileSettings) -> None:
        """Collect what *settings* say, except for their `extra`, which `set_config` sets.

        Raises:
            ProfilingError: the runtime cannot make a configuration of them.
        """
        function = "aclprofStart"
        self._need_init(function)
        self._refuse_repetition(function, settings)
        if self._ran:
            _warn("models ran before aclprofStart, so the profile lacks what they did until then")
        if self._started:
            _warn("CANN's newest versions ignore a second aclprofStart; name all devices in the first")
        started = _Started(settings, self._make_config(settings))
        with ExitStack() as undo:
            undo.callback(self._destroy, started)
            self.acl.call(function, ctypes.c_void_p(started.config))
            undo.pop_all()
        self._started.append(started)

    def stop(self, settings: ProfileSettings) -> None:
        """Stop collecting what was started with the same *settings*."""
        function = "aclprofStop"
        self._need_init(function)
        started = next((one for one in self._started if one.settings.matches(settings)), None)
        if started is None:
            raise _refused(function, "nothing was started with these settings; stop with those of a start")
        self.acl.call(function, ctypes.c_void_p(started.config))
        self._started.remove(started)
        self._destroy(started)

    def finalize(self) -> None:
        """End profiling; everything is written when this returns."""
        function = "aclprofFinalize"
        self._need_init(function)
        if self._started:
            raise _refused(function, "collecting goes on; stop what was started")
        self.acl.call(function)
        self._end_turn()

    def close(self) -> None:
        """Stop everything and finalise; if the runtime refuses a call, make the others and raise then."""
        calls: list[tuple[str, *tuple[ctypes.c_void_p, ...]]] = []
        for started in reversed(self._started):
            config = ctypes.c_void_p(started.config)
            calls += [("aclprofStop", config), ("aclprofDestroyConfig", config)]
        if self.initialized:
            calls.append(("aclprofFinalize",))
        self._started = []
        failures = []
        for call in calls:
            try:
                self.acl.call(*call)
            except DumpstreamError as exc:
                failures.append(exc)
        self._end_turn()
        if failures:
            raise failures[0]

    def refuse_command(self, function: str, order: str) -> None:
        """Refuse *function* if ``aclInit`` was given a configuration that profiles."""
        if self.lifecycle.init_profiles:
            raise OrderError(
                function, "aclInit configured profiling; take the profiler section out of its acl.json", order
            )

    def _need_init(self, function: str) -> None:
        if not self.initialized:
            raise _refused(function, "aclprofInit has not been called")

    def _refuse_repetition(self, function: str, settings: ProfileSettings) -> None:
        for started in self.started:
            twice = sorted(set(started.devices) & set(settings.devices))
            if twice or started.matches(settings):
                what = f"device {twice[0]} is" if twice else "the same is"
                raise _refused(function, f"{what} being collected; stop that")

    def _make_config(self, settings: ProfileSettings) -> int:
        devices = (ctypes.c_uint32 * len(settings.devices))(*settings.devices)
        create = self.acl.function("aclprofCreateConfig")
        create.restype = ctypes.c_void_p
        config: int | None = create(
            devices,
            ctypes.c_uint32(len(devices)),
            ctypes.c_int(settings.metric),
            None,
            ctypes.c_uint64(settings.collect.value),
        )
        if not config:
            numbers = ", ".join(map(str, settings.devices))
            raise ProfilingError(
                f"aclprofCreateConfig refused devices {numbers}; check that all of them exist"
            )
        return config

    def _destroy(self, started: _Started) -> None:
        self.acl.call("aclprofDestroyConfig", ctypes.c_void_p(started.config))

    def _end_turn(self) -> None:
        if self._turn is not None:
            release_lock(self._turn)
            self._turn, self.lifecycle.profiling = None, False


def _refused(function: str, problem: str) -> OrderError:
    return OrderError(function, problem, _ORDER)


def _warn(text: str) -> None:
    warnings.warn(text, ProfilingWarning, stacklevel=3)
