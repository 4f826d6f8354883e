"""The simulated runtime: CANN's dump interface without an NPU, and a forecast of what it dumps."""

from dumpstream.simulation.library import SimulationCounters, simulated_library
from dumpstream.simulation.runtime import SimulatedRuntime, dump_config
from dumpstream.simulation.workload import PRESETS, ExpectedFile, Workload

__all__ = [
    "PRESETS",
    "ExpectedFile",
    "SimulatedRuntime",
    "SimulationCounters",
    "Workload",
    "dump_config",
    "simulated_library",
]
