"""Pulse: how a capture is getting on at this moment, beside its lock, where another process can see it.

The journal says what is finished. How full the ring is, and what was lost, is known to the capturing process
alone until it ends. So it writes a line into its lock file about once a second, which is gone with the lock.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from time import time
from typing import Any

_MOST_CAUSES = 8
_LONGEST_CAUSE = 60
_MOST_NUMBER = 1 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulse:
    """What a capture has received and lost so far, and how full its ring is."""

    time: float  #: of its writer's clock, in seconds since 1970
    ring_bytes: int = 0
    ring_fill: int = 0
    chunks: int = 0
    bytes: int = 0
    files: int = 0
    open_files: int = 0
    waiting: int = 0  #: lines of the journal that are not in the object store yet
    losses: dict[str, tuple[int, int]] = field(default_factory=dict)  #: by cause, the chunks and bytes

    def is_fresh(self, seconds: float) -> bool:
        """Whether it was written within the last *seconds*, by the clock of this machine."""
        return abs(time() - self.time) < seconds


def pulse_text(pulse: Pulse) -> bytes:
    """Return *pulse* as one line; of many causes of losses, only some are in it."""
    losses = {cause[:_LONGEST_CAUSE]: lost for cause, lost in [*pulse.losses.items()][:_MOST_CAUSES]}
    return json.dumps(asdict(pulse) | {"losses": losses}, separators=(",", ":")).encode()


def parse_pulse(line: bytes) -> Pulse | None:
    """Return the pulse of which `pulse_text` made *line*; None if it is something else, or torn."""
    try:
        read = json.loads(line)
        losses = {str(cause): _pair(lost) for cause, lost in read["losses"].items()}
        numbers = {it.name: _count(read[it.name]) for it in fields(Pulse) if it.type == "int"}
        return Pulse(time=float(read["time"]), losses=losses, **numbers)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _count(value: Any) -> int:
    number = int(value)
    if not 0 <= number < _MOST_NUMBER:
        raise ValueError(f"{number} is not a count")
    return number


def _pair(value: Any) -> tuple[int, int]:
    chunks, size = value
    return _count(chunks), _count(size)
