"""CANN's profiling functions (``aclprof*``): what to collect, and in which order to ask for it."""

from dumpstream.profiling.profile import Profile as Profile, open_profile as open_profile
from dumpstream.profiling.profiler import Profiler as Profiler, ProfilingWarning as ProfilingWarning
from dumpstream.profiling.settings import (
    AicoreMetric as AicoreMetric,
    Collect as Collect,
    ProfileSettings as ProfileSettings,
)
from dumpstream.profiling.subscriber import Subscriber as Subscriber
