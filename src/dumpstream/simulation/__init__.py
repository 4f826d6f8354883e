"""The simulated runtime: CANN's dump interface without an NPU, and a forecast of what it dumps."""

from dumpstream.simulation.library import SimulationCounters, simulated_library
from dumpstream.simulation.presets import PRESETS
from dumpstream.simulation.runtime import SimulatedRuntime, dump_config
from dumpstream.simulation.truth import Execution, Operand, Source, executions
from dumpstream.simulation.workload import ExpectedFile, Workload

__all__ = [
    "PRESETS",
    "Execution",
    "ExpectedFile",
    "Operand",
    "SimulatedRuntime",
    "SimulationCounters",
    "Source",
    "Workload",
    "dump_config",
    "executions",
    "simulated_library",
]
