"""Settings: what a profile collects, checked before the runtime is called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, IntEnum
from typing import Any, Final, NamedTuple

_MOST_DEVICES: Final = 64
_LONGEST_VALUE: Final = 256


class Collect(Flag):
    """Kinds of data, with the names of ``ACL_PROF_*``; not every product has all."""

    ACL_API = 0x0001
    TASK_TIME = 0x0002
    AICORE_METRICS = 0x0004
    AICPU = 0x0008
    L2CACHE = 0x0010
    HCCL_TRACE = 0x0020
    TRAINING_TRACE = 0x0040
    MSPROFTX = 0x0080
    RUNTIME_API = 0x0100
    GE_API_L0 = 0x0200
    TASK_TIME_L0 = 0x0800
    TASK_MEMORY = 0x1000
    TASK_TIME_L2 = 0x2000
    OP_ATTR = 0x4000
    TASK_TIME_L3 = 0x8000
    GE_API_L1 = 0x0100_0000
    API_STATS = 0x4_0000_0000


class AicoreMetric(IntEnum):
    """Which counters of the AI Core are read, with the names of ``ACL_AICORE_*``."""

    ARITHMETIC_UTILIZATION = 0
    PIPE_UTILIZATION = 1
    MEMORY_BANDWIDTH = 2
    L0B_AND_WIDTH = 3
    RESOURCE_CONFLICT_RATIO = 4
    MEMORY_UB = 5
    L2_CACHE = 6
    PIPE_EXECUTE_UTILIZATION = 7
    MEMORY_ACCESS = 8
    NONE = 0xFF


class Extra(NamedTuple):
    """A setting of ``aclprofSetConfig``: its number, and the values that CANN accepts."""

    number: int
    rule: str  #: in words
    pattern: str = r".+"
    least: int = 0  #: bounds of the number in the first group of the pattern
    most: int = 0

    def accepts(self, value: str) -> bool:
        """Whether CANN accepts *value*."""
        match = re.fullmatch(self.pattern, value, re.DOTALL)
        return match is not None and (not self.most or self.least <= int(match[1]) <= self.most)


def _frequency(number: int, most: int) -> Extra:
    return Extra(number, f"a number of Hz from 1 to {most}", r"([0-9]{1,19})", 1, most)


_HOST: Final = ("cpu, mem, or both with a comma", r"(?:cpu|mem)(?:,(?:cpu|mem))*")

#: By the names that follow ``ACL_PROF_``, in lower case.
EXTRAS: Final[Mapping[str, Extra]] = {
    "storage_limit": Extra(
        1, "MB, such as 500MB, from 200MB to 4294967295MB", r"([0-9]{1,19})MB", 200, 2**32 - 1
    ),
    "sys_hardware_mem_freq": _frequency(3, 10000),
    "llc_mode": Extra(4, "read, write, capacity or bandwidth", r"read|write|capacity|bandwidth"),
    "sys_io_freq": _frequency(5, 100),
    "sys_interconnection_freq": _frequency(6, 50),
    "dvpp_freq": _frequency(7, 100),
    "host_sys": Extra(8, *_HOST),
    "host_sys_usage": Extra(9, *_HOST),
    "host_sys_usage_freq": _frequency(10, 50),
    "low_power_freq": _frequency(11, 100),
    "sys_mem_serviceflow": Extra(12, "the names of service flows"),
    "sys_cpu_freq": _frequency(13, 50),
    "optype": Extra(14, "types of operators"),
    "nts_metrics": Extra(15, "names of metrics"),
}


def check_extra(name: str, value: str) -> Extra:
    """Return the setting *name* if CANN accepts *value* for it.

    Raises:
        ValueError: CANN does not know the setting, or does not accept the value.
    """
    extra = EXTRAS.get(name)
    if extra is None:
        raise ValueError(f"profiling has no setting {name!r}; it has {', '.join(EXTRAS)}")
    if not extra.accepts(value) or "\0" in value or len(value.encode()) > _LONGEST_VALUE:
        raise ValueError(f"{name}={value}: must be {extra.rule}, in at most {_LONGEST_VALUE} bytes")
    return extra


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileSettings:
    """What is collected, and from which devices.

    Raises:
        ValueError: CANN would not accept it.
    """

    devices: Sequence[int] = (0,)  #: each once; may be empty only with `Collect.MSPROFTX`
    collect: Collect = Collect.ACL_API | Collect.TASK_TIME | Collect.AICORE_METRICS
    metric: AicoreMetric = AicoreMetric.PIPE_UTILIZATION  #: counts only with `Collect.AICORE_METRICS`
    #: Values for ``aclprofSetConfig``, by what follows ``ACL_PROF_`` in its name, such as ``storage_limit``.
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        wrong = [device for device in self.devices if not 0 <= device < _MOST_DEVICES]
        if wrong:
            raise ValueError(f"devices={wrong[0]}: must be from 0 to {_MOST_DEVICES - 1}")
        if len(set(self.devices)) < len(self.devices):
            raise ValueError("devices: name each only once")
        if not self.collect:
            raise ValueError("collect: name at least one kind, such as Collect.TASK_TIME")
        if not self.devices and Collect.MSPROFTX not in self.collect:
            raise ValueError("devices: name at least one; only Collect.MSPROFTX does without")
        for name, value in self.extra.items():
            check_extra(name, value)
        if "llc_mode" in self.extra and "sys_hardware_mem_freq" not in self.extra:
            raise ValueError("llc_mode needs sys_hardware_mem_freq; set both")

    def matches(self, other: ProfileSettings) -> bool:
        """Whether both start, and therefore stop, the same collection."""
        return (self.devices, self.collect, self.metric) == (other.devices, other.collect, other.metric)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "devices": list(self.devices),
            "collect": [kind.name.lower() for kind in Collect if kind in self.collect and kind.name],
            "metric": self.metric.name.lower(),
            "extra": dict(self.extra),
        }
