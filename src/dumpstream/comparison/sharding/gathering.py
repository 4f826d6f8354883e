"""Gathering: one side of a comparison with the tensors of all its ranks put together."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dumpstream._errors import DumpstreamError
from dumpstream.comparison.elements import Elements
from dumpstream.comparison.metrics import compare_elements
from dumpstream.comparison.sharding.mesh import Mesh
from dumpstream.comparison.sharding.rules import ShardRule, ShardRules
from dumpstream.comparison.sharding.shards import Concatenated, ShardError, Summed, joined_shape
from dumpstream.comparison.sides.descriptor import Descriptor, unpack
from dumpstream.comparison.sides.entry import Entry, Packed
from dumpstream.comparison.sides.side import Known, Side
from dumpstream.comparison.sidetensor import Identity
from dumpstream.reading.collection import Member
from dumpstream.reading.stored import StoredCapture

_REPLICA_TOLERANCE = 1e-6
_PLAIN = "ND"
_WHOLE = Mesh({})


class _NothingKnown:
    """Says that nothing is known of any file."""

    def find_contents(self, contents: Sequence[str]) -> Mapping[str, Packed]:  # noqa: ARG002 - see above
        return {}

    def has_file(self, file: str) -> bool:  # noqa: ARG002 - see above
        return False


class _Part(NamedTuple):
    """What one rank holds of a tensor."""

    rank: int
    source: int
    reference: str | None
    tensor: Descriptor


class GatheredElements:
    """The elements of a whole tensor, and what is wrong with the parts that it was put together of."""

    def __init__(self, whole: Elements, remarks: Sequence[str]) -> None:
        self._whole = whole
        self.remarks = tuple(remarks)  #: one line each
        self.dtype, self.shape, self.packed = whole.dtype, whole.shape, whole.packed

    def blocks(self) -> Iterator[memoryview]:
        """Yield their bytes; a block is valid until the next."""
        return self._whole.blocks()


class GatheredSide(Side):
    """The side *side*, whose ranks are arranged in *mesh*; it has no ranks any more.

    Takes memory for what is known of each file, about a kilobyte, and for a block of every part of the tensor
    that is compared.
    """

    def __init__(self, side: Side, mesh: Mesh | None, rules: ShardRules) -> None:
        super().__init__(side.location, side.name)
        self.notes = side.notes
        self._side, self._mesh, self._rules = side, mesh or _WHOLE, rules

    @property
    def directory(self) -> Path | None:
        """None, as its files are not its tensors."""
        return None

    def mirror(self, other: Side) -> bool:  # noqa: ARG002 - wholes are put together anew
        """Return that it does not take over what *other* has."""
        return False

    def count_copied(self, other: Side, tell: Callable[[int], None]) -> int | None:  # noqa: ARG002 - likewise
        """Return that it is not known."""
        return None

    def entries(
        self,
        known: Known,  # noqa: ARG002 - wholes are put together anew
        ranks: Iterable[int] = (),
    ) -> Iterator[Sequence[Entry]]:
        """Yield everything at once, with an entry for the files of several ranks that belong together.

        Raises:
            DumpstreamError: the side cannot be read, or has a rank that is not in the mesh.
        """
        self.sources = [_GatheredSource(self._side, self._mesh, self._rules)]
        everything = [it for some in self._side.entries(_NothingKnown(), ranks) for it in some]
        number_of = _device_of if _has_only_devices(everything) else _rank_of
        found: dict[int, dict[Any, list[Entry]]] = defaultdict(lambda: defaultdict(list))
        for entry in everything:
            found[self._checked(number_of(entry))][_operator_of(entry)].append(entry)
        together: dict[Any, list[tuple[int, Entry]]] = defaultdict(list)
        for rank in sorted(found):
            for operator, entries in found.pop(rank).items():
                for number, entry in enumerate(sorted(entries, key=_order)):
                    together[(operator, number)].append((rank, entry))
        yield [self._gathered(of) for of in together.values()]

    def _checked(self, rank: int) -> int:
        try:
            self._mesh.coordinates(rank)
        except ValueError as exc:
            flag = "--mesh" if self.name == "mine" else "--golden-mesh"
            raise DumpstreamError(f"{self.name}: {exc}; give {flag} the groups of the run") from None
        return rank

    def _gathered(self, of: Sequence[tuple[int, Entry]]) -> Entry:
        (_, first), *others = of
        more = "1 more rank" if len(others) == 1 else f"{len(others)} more ranks"
        file = f"{first.file} and those of {more}" if others else first.file
        parts: dict[tuple[str, int], list[_Part]] = defaultdict(list)
        for rank, entry in of:
            for tensor in unpack(entry.packed.tensors):
                parts[tensor.io, tensor.index].append(_Part(rank, entry.source, entry.reference, tensor))
        tensors = [self._whole(first, found) for found in parts.values()]
        problem = next((entry.problem for _, entry in of if entry.problem is not None), None)
        known = all(entry.reference is not None for _, entry in of)
        origin = first.origin._replace(rank=None, device=None)
        where = [(rank, it.source, it.reference or it.file) for rank, it in of]
        reference = json.dumps([origin.op_type, origin.op_name, *where]) if known else None
        entry = Entry(origin, file, 0, reference, problem=None if tensors else problem)
        return entry.describe(tensors)

    def _whole(self, entry: Entry, parts: Sequence[_Part]) -> Descriptor:
        tensor = parts[0].tensor
        origin = entry.origin
        rule = self._rules.rule_for(_identity(origin.op_type, origin.op_name, tensor.io, tensor.index))
        problems = [f"rank {it.rank}: {it.tensor.problem}" for it in parts if it.tensor.problem is not None]
        shape = None
        if not problems:
            try:
                shape = _combined(
                    self._mesh,
                    rule,
                    {it.rank: it.tensor.original_shape or it.tensor.shape for it in parts},
                    join=_joined_shape,
                    add=itemgetter(0),
                    pick=itemgetter(0),
                )
            except ShardError as exc:
                problems.append(str(exc))
        same = len({it.tensor.hash for it in parts}) == 1 and not rule.split and not rule.sum
        return tensor._replace(
            format=_PLAIN,
            shape=shape,
            original_shape=shape,
            count=None,
            size=sum(it.tensor.size or 0 for it in parts),
            hash=tensor.hash if same else None,
            statistics=tensor.statistics if same else None,
            problem=problems[0] if problems else None,
        )


@dataclass(frozen=True, slots=True)
class _GatheredSource:
    """Opens wholes; a reference has the operator, and the ranks with their own sources and references."""

    _side: Side
    _mesh: Mesh
    _rules: ShardRules

    def like(self, captures: Mapping[StoredCapture, Member]) -> _GatheredSource:  # noqa: ARG002 - never copied
        """Return itself: wholes are put together anew."""
        return self

    @contextmanager
    def open(
        self,
        reference: str,
        io: str,
        index: int,
        *,
        order: str | None = None,  # noqa: ARG002 - rules name axes by their numbers
    ) -> Iterator[Elements]:
        """Enter the elements of one tensor as they lie; raises `DumpstreamError` or `OSError`."""
        op_type, op_name, *parts = json.loads(reference)
        rule = self._rules.rule_for(_identity(op_type, op_name, io, index))
        remarks: list[str] = []
        with ExitStack() as stack:
            opened = {}
            for rank, source, of in parts:
                elements = stack.enter_context(self._side.sources[source].open(of, io, index))
                opened[rank] = _Replica(f"rank {rank}", elements)
            try:
                whole = _combined(
                    self._mesh,
                    rule,
                    opened,
                    join=_joined,
                    add=_added,
                    pick=lambda these: _picked(these, remarks),
                )
            except ShardError as exc:
                raise DumpstreamError(str(exc)) from exc
            yield GatheredElements(whole.elements, remarks)


def _rank_of(entry: Entry) -> int:
    return entry.origin.rank or 0


def _device_of(entry: Entry) -> int:
    return entry.origin.device or 0


def _has_only_devices(entries: Iterable[Entry]) -> bool:
    """Whether devices are taken for ranks: there are several, and no ranks."""
    if any(it.origin.rank is not None for it in entries):
        return False
    return len({it.origin.device for it in entries} - {None}) > 1


def _joined_shape(shapes: Sequence[tuple[int, ...] | None], axis: int) -> tuple[int, ...] | None:
    known = [it for it in shapes if it is not None]
    return joined_shape(known, axis) if len(known) == len(shapes) else None


class _Replica(NamedTuple):
    """Elements that one rank has, or that several have together."""

    label: str
    elements: Elements


def _joined(parts: Sequence[_Replica], axis: int) -> _Replica:
    return _Replica(_label(parts), Concatenated([it.elements for it in parts], axis))


def _added(parts: Sequence[_Replica]) -> _Replica:
    return _Replica(_label(parts), Summed([it.elements for it in parts]))


def _label(parts: Sequence[_Replica]) -> str:
    return f"{parts[0].label} to {parts[-1].label}"


def _picked(replicas: Sequence[_Replica], remarks: list[str]) -> _Replica:
    """Return the first of *replicas*; say in *remarks* if another one does not hold the same."""
    first, *others = replicas
    disagreements = [(it.label, _disagreement(it.elements, first.elements)) for it in others]
    remarks += [f"{label} should hold what {first.label} does, and {it}" for label, it in disagreements if it]
    return first


def _disagreement(replica: Elements, first: Elements) -> str | None:
    if (replica.shape, replica.dtype) != (first.shape, first.dtype):
        return "has another shape or type"
    metrics = compare_elements(replica, first)
    if metrics.nan_mine or metrics.nan_golden or metrics.inf_differs:
        return "has other NaNs or infinities"
    if metrics.max_abs is None:
        return "has other bytes" if metrics.bit_equal != metrics.count and not metrics.nan_both else None
    if metrics.max_abs <= _REPLICA_TOLERANCE or (metrics.max_rel or 0.0) <= _REPLICA_TOLERANCE:
        return None
    return f"differs by max_abs {metrics.max_abs:.3g}"


_Value = TypeVar("_Value")


def _combined(
    mesh: Mesh,
    rule: ShardRule,
    parts: Mapping[int, _Value],
    *,
    join: Callable[[Sequence[_Value], int], _Value],
    add: Callable[[Sequence[_Value]], _Value],
    pick: Callable[[Sequence[_Value]], _Value],
) -> _Value:
    """Return what *parts*, by rank, make together, one group of the mesh after the other.

    Raises:
        ShardError: a rank that should have a part does not have it.
    """
    left = {tuple(mesh.coordinates(rank).values()): value for rank, value in parts.items()}
    for name, size in mesh.sizes.items():
        groups: dict[tuple[int, ...], list[_Value]] = defaultdict(list)
        for (_, *rest), value in sorted(left.items(), key=itemgetter(0)):
            groups[tuple(rest)].append(value)
        is_shared = name in rule.split or name in rule.sum
        if is_shared and any(len(values) != size for values in groups.values()):
            fewest = min(map(len, groups.values()))
            raise ShardError(f"{size} ranks of {name} should have a part of it, and {fewest} have")
        if name in rule.split:
            left = {rest: join(values, rule.split[name]) for rest, values in groups.items()}
        else:
            left = {rest: (add if name in rule.sum else pick)(values) for rest, values in groups.items()}
    (whole,) = left.values()
    return whole


def _operator_of(entry: Entry) -> tuple[object, ...]:
    """Return what files of several ranks that belong together have in common."""
    origin = entry.origin
    return origin.model, origin.step, origin.op_type, origin.op_name, origin.part, entry.packed.ios


def _order(entry: Entry) -> tuple[int, int, int]:
    origin = entry.origin
    return origin.started, origin.sequence or 0, origin.time or 0


def _identity(op_type: str | None, op_name: str | None, io: str, index: int) -> Identity:
    return Identity(None, None, None, op_type, op_name, io, index, 0)
