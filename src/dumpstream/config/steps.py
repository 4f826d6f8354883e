"""Steps: which iterations ``dump_step`` dumps."""

import re
from dataclasses import dataclass
from typing import Final

_LONGEST: Final = 19  #: digits of the largest number that CANN can count to
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BadStep:
    """An item of ``dump_step`` that cannot be read."""

    index: int
    text: str
    problem: str


@dataclass(frozen=True, slots=True)
class Steps:
    """The iterations that a ``dump_step`` names; all if it names none."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, step: object) -> bool:
        return not self.ranges or any(
            first <= step <= last for first, last in self.ranges if isinstance(step, int)
        )

    @property
    def count(self) -> int | None:
        """The number of iterations; None for all."""
        if not self.ranges:
            return None
        total, end = 0, -1
        for first, last in sorted(self.ranges):
            total += max(0, last - max(first, end + 1) + 1)
            end = max(end, last)
        return total


def parse_steps(text: str) -> tuple[Steps, tuple[BadStep, ...]]:
    """Read ``0|3-5|10``; return its steps, and every item that cannot be read."""
    if not text:
        return Steps(), ()
    ranges, bad = [], []
    for index, item in enumerate(text.split("|")):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", item)
        if match is None:
            bad.append(BadStep(index, item, "is neither a number nor a range of two numbers"))
            continue
        first = _number(match[1])
        last = first if match[2] is None else _number(match[2])
        if first > last:
            bad.append(BadStep(index, item, "ends before it begins"))
        else:
            ranges.append((first, last))
    return Steps(tuple(ranges)), tuple(bad)


def _number(digits: str) -> int:
    """Return the number, or the largest that CANN can count to."""
    digits = digits.lstrip("0") or "0"
    return _LARGEST if len(digits) > _LONGEST else min(int(digits), _LARGEST)
