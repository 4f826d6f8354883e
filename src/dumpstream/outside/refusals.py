"""Refusals: which refused processes a collector lists, and how many more there were."""

from dataclasses import dataclass

from dumpstream.outside.process import CapturedProcess

#: The first processes that are refused for a reason are listed, and the others are counted.
_LISTED_PER_REASON = 16
#: Once so many are listed, refusals for further reasons are counted together.
_MOST_LISTED = 128
_FURTHER = "for further reasons"


@dataclass(slots=True)
class _Alike:
    """Processes that were refused for one reason."""

    why: str  #: in words, for those that are counted
    listed: int = 0
    last: CapturedProcess | None = None  #: that is listed
    problem: str | None = None  #: of that one
    counted: int = 0

    def list(self, process: CapturedProcess) -> None:
        self.listed += 1
        self.last, self.problem = process, process.record.problem

    def count(self) -> None:
        """Count one that is not listed: the last one that is listed tells of it."""
        self.counted += 1
        assert self.last is not None
        self.last.record.problem = f"{self.problem}; more were refused {self.why}: {self.counted}"


class Refusals:
    """Refused processes: however many they are, and whatever the reasons are, a few of them are listed."""

    def __init__(self) -> None:
        self.count = 0
        self._listed = 0
        self._alike: dict[str, _Alike] = {}

    def add(self, process: CapturedProcess, reason: str) -> bool:
        """Count *process*, which is refused for *reason*; return whether it is to be listed."""
        self.count += 1
        full = self._listed >= _MOST_LISTED
        key = _FURTHER if full and reason not in self._alike else reason
        why = _FURTHER if key == _FURTHER else "for this reason"
        alike = self._alike.setdefault(key, _Alike(why))
        counted = bool(alike.listed) and (full or alike.listed == _LISTED_PER_REASON)
        process.fail(reason, logged=not counted)
        if counted:
            alike.count()
            return False
        alike.list(process)
        self._listed += 1
        return True
