"""CANN's profiling functions (``aclprof*``): what to collect, and in which order to ask for it."""

from dumpstream.profiling.profile import Profile, open_profile
from dumpstream.profiling.profiler import Profiler, ProfilingWarning
from dumpstream.profiling.settings import AicoreMetric, Collect, ProfileSettings
from dumpstream.profiling.subscriber import Subscriber

__all__ = [
    "AicoreMetric",
    "Collect",
    "Profile",
    "ProfileSettings",
    "Profiler",
    "ProfilingWarning",
    "Subscriber",
    "open_profile",
]
