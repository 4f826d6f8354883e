"""Rates: how fast the processes of a run are captured, from two looks at it."""

from __future__ import annotations

from time import monotonic
from typing import Any


class Rates:
    """Bytes per second of each process, over the last looks."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, int]] = {}

    def note(self, status: dict[str, Any]) -> None:
        """Add to each running process of *status* the ``rate`` since the last status that was noted."""
        now = monotonic()
        seen = {}
        for member in status["members"]:
            if member["state"] != "running":
                continue
            size = member.get("received", member["bytes"])
            seen[member["name"]] = (now, size)
            if (before := self._before.get(member["name"])) is not None and now > before[0]:
                member["rate"] = round(max(size - before[1], 0) / (now - before[0]))
        self._before = seen
