"""For your own tests: the simulated runtime, and the tests that every sink and every source must pass."""

from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library
from dumpstream.testing.sinks import HOSTILE_NAMES, check_sink
from dumpstream.testing.sources import check_source

__all__ = [
    "HOSTILE_NAMES",
    "SimulatedRuntime",
    "Workload",
    "check_sink",
    "check_source",
    "dump_config",
    "simulated_library",
]
