"""Subscriber: the operators of a model as the runtime runs them; excludes profiling."""

import ctypes
from contextlib import ExitStack
from typing import Final, NamedTuple

from dumpstream._errors import OrderError, ProfilingError
from dumpstream.profiling.profiler import Profiler
from dumpstream.profiling.settings import AicoreMetric

_ORDER: Final = "load models, aclprofModelSubscribe, run, aclprofGet*, aclprofModelUnSubscribe"


class _Subscription(NamedTuple):
    config: int  #: address of the aclprofSubscribeConfig
    descriptor: ctypes.c_int  #: the runtime reads it until the subscription ends


class Subscriber:
    """CANN's functions for subscriptions.

    They raise `OrderError` between `Profiler.init` and `finalize` and for a model in the wrong state, and
    `AclError` if the runtime refuses. They block: call them from a worker thread, one of them or of
    *profiler* at a time.
    """

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler
        self._acl = profiler.acl
        self._subscriptions: dict[int, _Subscription] = {}

    def subscribe(
        self, model: int, descriptor: int, *, metric: AicoreMetric = AicoreMetric.PIPE_UTILIZATION
    ) -> None:
        """Write times and *metric* of every operator of the loaded *model* to the pipe *descriptor*.

        Raises:
            ProfilingError: the runtime cannot make a configuration.
        """
        function = "aclprofModelSubscribe"
        self._refuse(function)
        if model in self._profiler.subscribed:
            raise OrderError(function, f"model {model} is subscribed; unsubscribe it", _ORDER)
        place = ctypes.c_int(descriptor)
        create = self._acl.function("aclprofCreateSubscribeConfig")
        create.restype = ctypes.c_void_p
        config = create(ctypes.c_int8(1), ctypes.c_int(metric), ctypes.byref(place))
        if not config:
            raise ProfilingError("aclprofCreateSubscribeConfig failed; the runtime's log says why")
        with ExitStack() as undo:
            undo.callback(self._acl.call, "aclprofDestroySubscribeConfig", ctypes.c_void_p(config))
            self._acl.call(function, ctypes.c_uint32(model), ctypes.c_void_p(config))
            undo.pop_all()
        self._subscriptions[model] = _Subscription(config, place)
        self._profiler.subscribed.add(model)

    def unsubscribe(self, model: int) -> None:
        """End the subscription of *model*."""
        function = "aclprofModelUnSubscribe"
        self._refuse(function)
        if model not in self._subscriptions:
            raise OrderError(function, f"model {model} is not subscribed", _ORDER)
        self._acl.call(function, ctypes.c_uint32(model))
        self._profiler.subscribed.remove(model)
        config, _ = self._subscriptions.pop(model)
        self._acl.call("aclprofDestroySubscribeConfig", ctypes.c_void_p(config))

    def count_operators(self, data: bytes) -> int:
        """Return how many operators *data* from the pipe of a subscription describes."""
        function = "aclprofGetOpNum"
        self._refuse(function)
        count = ctypes.c_uint32()
        self._acl.call(function, data, ctypes.c_size_t(len(data)), ctypes.byref(count))
        return count.value

    def _refuse(self, function: str) -> None:
        """Refuse *function* while profiling."""
        self._profiler.refuse_command(function, _ORDER)
        if self._profiler.initialized:
            raise OrderError(function, "profiling is initialised; finalise it", _ORDER)
