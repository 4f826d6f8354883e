"""Comparing: some executions of two runs as a task, and what all parts have found put together."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, overload

import zstandard

from dumpstream.comparison.comparison import bytes_of
from dumpstream.comparison.divergence import Finding, Trace
from dumpstream.comparison.examination import Examination
from dumpstream.comparison.execution import Execution
from dumpstream.comparison.sidetensor import Identity, SideTensor
from dumpstream.comparison.summary import Summary, summarise
from dumpstream.comparison.table import Agreement, ComparisonRow, Metrics, Worst
from dumpstream.comparison.worst import WorstRows
from dumpstream.engine.part import Part, PartWriter
from dumpstream.engine.plan import Heading
from dumpstream.statistics.parquet import require_pyarrow
from dumpstream.system.batches import run_batches

#: How much one task reads, of both runs,
_TASK_BYTES = 256 << 20
#: and how many executions it has if they are small.
_TASK_EXECUTIONS = 4096
_BATCH_EXECUTIONS = 256
_GROUP_ROWS = 4096
_CONTENT = "content"
_AGREE = {Agreement.IDENTICAL, Agreement.CLOSE}
_ROW = [it.name for it in fields(ComparisonRow) if it.name not in {"verdict", "metrics", "shape", "role"}]
_METRICS = [it.name for it in fields(Metrics) if it.name != "worst"]


class _Skipped(NamedTuple):
    """Executions of the same rank and step, one after another, of which nothing is shown."""

    rank: int | None
    step: int | None
    executions: int
    verdicts: Mapping[str, int]  #: tensors


class Work(NamedTuple):
    """What one task compares."""

    executions: Sequence[Execution | _Skipped]
    examination: Examination
    agreeing: bool  #: whether also those that agree are wanted
    remote: bool  #: whether reading means to wait for a store


@dataclass(frozen=True)
class Comparing:
    """Compares some executions, which are packed as `Spool` does."""

    label: str
    packed: bytes

    def open(self) -> _OpenComparing:
        require_pyarrow()
        # What is packed was made by this program; the engine would unpickle it all the same.
        return _OpenComparing(pickle.loads(zstandard.decompress(self.packed)))  # noqa: S301


@dataclass(frozen=True)
class _OpenComparing:
    work: Work

    @property
    def digest(self) -> str:
        """Nothing that the plan does not tell: its request has a hash of both runs."""
        return ""

    def write(self, file: IO[bytes], heading: Heading) -> None:
        import pyarrow as pa  # noqa: PLC0415 - slow, and optional

        work = self.work
        examined = run_batches(
            self._contents,
            work.executions,
            bytes_of=lambda it: 0 if isinstance(it, _Skipped) else bytes_of(it),
            most_items=_BATCH_EXECUTIONS,
            is_remote=lambda _: work.remote,
        )
        with closing(examined), PartWriter(file, heading, pa.schema([(_CONTENT, pa.binary())])) as part:
            rows: list[str] = []
            for content in examined:
                rows.append(content)
                if len(rows) >= _GROUP_ROWS:
                    part.write_columns({_CONTENT: rows})
                    rows = []
            part.write_columns({_CONTENT: rows})
            part.close({})

    def _contents(self, executions: Sequence[Execution | _Skipped]) -> list[str]:
        return [json.dumps(self._content(it)) for it in executions]

    def _content(self, item: Execution | _Skipped) -> Any:
        if isinstance(item, _Skipped):
            return [*item]
        found = self.work.examination.findings_of(item)
        verdicts = Counter(str(it.row.verdict) for it in found)
        if not self.work.agreeing and _AGREE.issuperset(it.row.verdict for it in found):
            return [item.rank, item.step, 1, verdicts]
        return {"identical": item.identical, "findings": [_packed_finding(it) for it in found]}


class Spool(Sequence[Comparing]):
    """The tasks of a comparison, on the disk; those that are not *wanted* have only their labels."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._tasks: list[tuple[str, int, int]] = []  # label, place, size

    def close(self) -> None:
        """Remove them."""
        self._file.close()

    def add(self, label: str, work: Work | None) -> None:
        """Append a task; without *work* if it is for others to do."""
        packed = b"" if work is None else zstandard.compress(pickle.dumps(work), 1)
        self._tasks.append((label, self._file.tell(), len(packed)))
        self._file.write(packed)

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Comparing: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Comparing]: ...
    def __getitem__(self, index: int | slice) -> Comparing | Sequence[Comparing]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        label, place, size = self._tasks[index]
        end = self._file.tell()
        self._file.seek(place)
        packed = self._file.read(size)
        self._file.seek(end)
        return Comparing(label, packed)


def cut_executions(
    executions: Iterable[Execution], examination: Examination, *, agreeing: bool, remote: bool
) -> Iterator[tuple[str, Work]]:
    """Yield the tasks that *executions*, in their order, are cut into: their labels, and their work.

    There is at least one, so that a plan has a part that tells of it.
    """
    first, items, size, number = 1, list[Execution | _Skipped](), 0, 0
    for number, execution in enumerate(executions, 1):
        if execution.identical and not agreeing:
            _skip(items, execution)
        else:
            items.append(Execution(**{**_fields_of(execution), "pairs": [*execution.pairs]}))
            size += bytes_of(execution)
        if size >= _TASK_BYTES or len(items) >= _TASK_EXECUTIONS:
            yield f"executions {first} to {number}", Work(items, examination, agreeing, remote)
            first, items, size = number + 1, [], 0
    if items or first == 1:
        yield f"executions {first} to {number}", Work(items, examination, agreeing, remote)


def _fields_of(execution: Execution) -> dict[str, Any]:
    return {it.name: getattr(execution, it.name) for it in fields(Execution)}


def _skip(items: list[Execution | _Skipped], execution: Execution) -> None:
    """Add *execution*, whose tensors are identical, to those that were skipped before it."""
    count = len(execution.pairs)
    last = items[-1] if items else None
    if isinstance(last, _Skipped) and last[:2] == (execution.rank, execution.step):
        verdicts = {Agreement.IDENTICAL.value: last.verdicts[Agreement.IDENTICAL] + count}
        items[-1] = last._replace(executions=last.executions + 1, verdicts=verdicts)
    else:
        items.append(_Skipped(execution.rank, execution.step, 1, {Agreement.IDENTICAL.value: count}))


class Compared:
    """What all parts of a comparison have found; can be iterated over once."""

    def __init__(self, parts: Iterable[Part], notes: Sequence[str], *, agreeing: bool) -> None:
        self.notes = notes
        self._parts, self._agreeing = parts, agreeing
        self._counts: Counter[Agreement] = Counter()
        self._trace = Trace()

    @property
    def summary(self) -> Summary:
        """The answer; complete with the last row."""
        return summarise(self._counts, self._trace.first)

    def findings(self) -> Iterator[Finding]:
        """Yield the rows, with what is needed of the tensors that they are about."""
        for part in self._parts:
            for table in part.tables():
                for content in table.column(_CONTENT).to_pylist():
                    yield from self._follow(json.loads(content))

    def worst(self, most: int, *, tell: Callable[[int, int], None] | None = None) -> list[ComparisonRow]:
        """Return the *most* rows that agree least, the worst first; *tell* is called with their number."""
        worst = WorstRows(most)
        for finding in self.findings():
            worst.add(finding.row)
            if tell is not None:
                tell(self._counts.total(), 0)
        return worst.rows()

    def _follow(self, content: Any) -> Iterator[Finding]:
        if isinstance(content, list):
            rank, step, executions, verdicts = content
            self._counts.update({Agreement(name): count for name, count in verdicts.items()})
            self._trace.skip(rank, step, executions)
            return
        found = [_unpacked_finding(it) for it in content["findings"]]
        self._counts.update(it.row.verdict for it in found)
        if content["identical"]:
            self._trace.skip(found[0].row.rank, found[0].row.step)
            rows = Trace().add(found)
        else:
            rows = self._trace.add(found)
        for finding, row in zip(found, rows, strict=True):
            if self._agreeing or row.verdict not in _AGREE:
                yield finding._replace(row=row)


def _packed_finding(finding: Finding) -> Any:
    row = finding.row
    known = {name: value for name in _ROW if (value := getattr(row, name)) is not None}
    metrics = {name: value for name in _METRICS if (value := getattr(row.metrics, name)) is not None}
    tensors = [None if it is None else _packed_tensor(it) for it in (finding.mine, finding.golden)]
    return [str(row.verdict), known, row.shape, metrics, row.metrics.worst, *tensors, finding.guess]


def _unpacked_finding(packed: Any) -> Finding:
    verdict, known, shape, metrics, worst, mine, golden, guess = packed
    found = None if worst is None else Worst(tuple(worst[0]), worst[1], worst[2])
    row = ComparisonRow(
        **known,
        shape=None if shape is None else tuple(shape),
        verdict=Agreement(verdict),
        metrics=Metrics(**metrics, worst=found),
    )
    return Finding(row, _unpacked_tensor(mine), _unpacked_tensor(golden), guess)


def _packed_tensor(tensor: SideTensor) -> Any:
    return [tensor.file, tensor.address, tensor.identity.op_name]


def _unpacked_tensor(packed: Any) -> SideTensor | None:
    if packed is None:
        return None
    file, address, op_name = packed
    identity = Identity(None, None, None, None, op_name, "", 0, 0)
    return SideTensor(identity=identity, place=0, file=file, address=address)
