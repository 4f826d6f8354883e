"""Parts: all that the tasks of one plan have left, in order; refused unless each is there once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dumpstream._errors import DumpstreamError
from dumpstream.engine.part import SLICED, Part, PartName
from dumpstream.engine.partsplace import PartsPlace
from dumpstream.engine.plan import Plan

_LISTED = 8  #: in a message


class KeptPart(NamedTuple):
    """A part, and where it is."""

    place: PartsPlace
    name: PartName

    def __str__(self) -> str:
        return f"{self.place.location}/{self.name}"


class Parts:
    """The parts of one plan, which are opened one after another."""

    def __init__(self, kept: Sequence[KeptPart]) -> None:
        self._kept = kept

    def __iter__(self) -> Iterator[Part]:
        """Read them.

        Raises:
            DumpstreamError: one is damaged, or slices of one capture were made of different journals.
        """
        whole: Any = None
        for kept in self._kept:
            for part in self._read(kept):
                before, whole = whole, part.result.get(SLICED)
                if before and whole and before[0] == whole[0] and before != whole:
                    raise DumpstreamError(
                        f"{whole[0]} has changed while its slices were computed; compute all of them again"
                    )
                yield part

    @property
    def request(self) -> Mapping[str, Any]:
        """What was asked."""
        return next(iter(self)).heading.request

    def _read(self, kept: KeptPart) -> Iterator[Part]:
        with kept.place.open(str(kept.name)) as file:
            part = Part(file, str(kept))
            if part.heading[:3] != kept.name[:3]:
                raise DumpstreamError(f"{kept} was renamed; delete it and compute its shard again")
            yield part


def find_parts(
    places: Sequence[PartsPlace],
    absent: Collection[int] = (),
    plan: Plan | None = None,
    names: Collection[str] | None = None,
) -> Parts:
    """Return the parts that are kept at *places*.

    Args:
        places: where they are; other files may be beside them.
        absent: the numbers of tasks, counted from 1, that are known to have none.
        plan: whose parts are meant; by default all that are there.
        names: which of them are meant; by default all.

    Raises:
        DumpstreamError: they are of different plans, or not all of a plan are there, or one is there twice.
    """
    found: dict[int, list[KeptPart]] = defaultdict(list)
    for place in places:
        there = (it for it in sorted(place.names()) if names is None or it in names)
        for name in map(PartName.parse, there):
            if name is not None and (plan is None or name.plan == plan.key):
                found[name.task].append(KeptPart(place, name))
    kept = [part for number in sorted(found) for part in found[number]]
    if not kept and not absent and (plan is None or plan.tasks):
        raise DumpstreamError(
            f"{_listed([str(it.location) for it in places])} holds no parts; name where --parts left them"
        )
    _refuse_mixed(kept)
    _refuse_doubled(found)
    tasks = kept[0].name.tasks if kept else 0
    if missing := _gaps({*found, *absent}, tasks):
        one = len(missing) == 1 and len(missing[0]) == 1
        raise DumpstreamError(
            f"of {tasks} parts, {_ranges(missing)} {'is' if one else 'are'} missing; "
            "run their shards again, or the command with --shard 1/1, which computes only what is missing"
        )
    return Parts(kept)


def _refuse_mixed(kept: Sequence[KeptPart]) -> None:
    plans: dict[tuple[str, int], KeptPart] = {}
    for part in kept:
        plans.setdefault((part.name.plan, part.name.tasks), part)
    if len(plans) > 1:
        one, other, *_ = plans.values()
        raise DumpstreamError(
            f"{one} and {other} are of different plans: the command, its captures or its version differ; "
            "give each plan a place of its own"
        )


def _refuse_doubled(found: dict[int, list[KeptPart]]) -> None:
    for parts in found.values():
        if len({part.name for part in parts}) > 1:
            raise DumpstreamError(
                f"{parts[0]} and {parts[1]} are of the same task, whose capture has changed in between; "
                "delete the older one"
            )
        if len(parts) > 1:
            raise DumpstreamError(f"{parts[0]} and {parts[1]} are the same part; name each place once")


def _gaps(there: Collection[int], last: int) -> list[range]:
    """Return what is missing from 1 to *last*; a name can say that there are very many."""
    gaps, first = [], 1
    for number in sorted({it for it in there if it <= last} | {last + 1}):
        if number > first:
            gaps.append(range(first, number))
        first = number + 1
    return gaps


def _ranges(runs: Sequence[range]) -> str:
    """Return ``3, 5-7``."""
    return _listed([str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs])


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _LISTED
    return ", ".join(texts[:_LISTED]) + (f" and {more} more" if more > 0 else "")
