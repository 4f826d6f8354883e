"""Measuring: the statistics of one portion as a task, and those of all parts put together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from typing import IO, Any, NamedTuple

from dumpstream.analysis.measurement import measure_selected
from dumpstream.analysis.sources import Batch, Wanted, measures_files
from dumpstream.engine.part import Part, PartWriter, decoded
from dumpstream.engine.plan import Heading
from dumpstream.engine.portion import Portion, digest_of, inputs_of, slice_result
from dumpstream.reading.collection import Member
from dumpstream.reading.problem import Problem
from dumpstream.statistics.columns import FileColumns, join_columns
from dumpstream.statistics.parquet import require_pyarrow
from dumpstream.statistics.table import COLUMNS, Kind
from dumpstream.statistics.tensors import TensorRows, Tensors

#: Columns of a part beside those of statistics: a row whose values Arrow cannot hold, as JSON, and a problem.
_EXACTLY, _PROBLEM = "exactly", "told_problem"
#: Columns from which others are made again exactly.
_MADE_OF = {"finite_max": "max", "finite_min": "min"}
_LARGEST = 1 << 63
#: Rows that are written at one go.
_GROUP_ROWS = 8192


@dataclass(frozen=True)
class Measuring:
    """Measures one portion."""

    portion: Portion
    wanted: Wanted
    workers: int | None = None  #: threads

    @property
    def label(self) -> str:
        return str(self.portion)

    def open(self) -> _OpenMeasuring:
        require_pyarrow()
        return _OpenMeasuring(self, self.portion.read())


@dataclass(frozen=True)
class _OpenMeasuring:
    task: Measuring
    member: Member | None

    @cached_property
    def digest(self) -> str:
        return digest_of(self.task.portion, self.member)

    def write(self, file: IO[bytes], heading: Heading) -> None:
        task = self.task
        unmatched = {*task.wanted.patterns}
        columns = task.wanted.columns
        stored = tuple(dict.fromkeys([*columns, *(_MADE_OF[it] for it in columns if it in _MADE_OF)]))
        with PartWriter(file, heading, _schema(stored)) as part:
            writer = _Writer(part, stored)
            if (portion := self._measured_here()) is not None:
                lacking: list[Problem] = []
                find = partial(inputs_of, portion, self.member, unmatched, lacking.append)
                with closing(measure_selected(find, task.wanted, lacking, workers=task.workers)) as batches:
                    for batch in batches:
                        writer.add(batch)
            writer.close(sorted(unmatched), slice_result(task.portion, self.digest))

    def _measured_here(self) -> Portion | None:
        """Return what this task measures, if anything.

        A table of the statistics sink may have rows of files of all slices: the first has it all then.
        """
        portion = self.task.portion
        capture = None if self.member is None else self.member.capture
        if portion.within is None or capture is None or not measures_files(capture):
            return portion
        return portion.whole if portion.is_first else None


def _schema(columns: tuple[str, ...]) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - slow, and optional

    from dumpstream.statistics.arrow import schema_of  # noqa: PLC0415 - likewise

    more = [pa.field(name, pa.binary()) for name in (_EXACTLY, _PROBLEM)]
    return pa.schema([*schema_of(columns), *more])


class _Writer:
    """Writes what batches have found to *part*, with these *columns* of the tensors."""

    def __init__(self, part: PartWriter, columns: tuple[str, ...]) -> None:
        from dumpstream.statistics.arrow import schema_of  # noqa: PLC0415 - needs pyarrow

        self._part, self._columns = part, columns
        self._own = schema_of(columns)
        self._held: list[Any] = []  # columns or rows, which take less time together
        self._waiting: list[Any] = []
        self._problems: list[bytes] = []
        self._rows = 0
        self._counts = dict.fromkeys(("files", "tensors", "bytes", "skipped", "not_stored"), 0)

    def add(self, batch: Batch) -> None:
        """Append the tensors of *batch*, and behind them its problems."""
        self._hold(batch.tensors)
        problems = [problem for file in batch.files for problem in file.problems]
        self._problems += [it.encode("utf-8", "surrogatepass") for it in problems]
        self._counts["files"] += len(batch.files)
        for name in ("bytes", "skipped", "not_stored"):
            self._counts[name] += sum(getattr(file, name) for file in batch.files)
        if self._rows + len(self._problems) >= _GROUP_ROWS:
            self._flush()

    def close(self, unmatched: list[str], more: Mapping[str, Any]) -> None:
        """Write what is left, and what *more* there is to say; no file matched a pattern in *unmatched*."""
        self._flush()
        self._part.close({**self._counts, "unmatched": unmatched, **more})

    def _hold(self, tensors: Tensors) -> None:
        """Keep *tensors* until there are more like them."""
        if not (self._held and _may_join(self._held[-1], tensors)):
            self._let_go()
        if isinstance(tensors, FileColumns | TensorRows):
            self._held.append(tensors)
            self._rows += tensors.rows if isinstance(tensors, FileColumns) else len(tensors)
        else:
            self._add(tensors)
            self._rows += self._waiting[-1].num_rows

    def _let_go(self) -> None:
        """Turn what is held into a table."""
        held, self._held = self._held, []
        if held:
            self._add(_joined(held))

    def _add(self, tensors: Tensors) -> None:
        from dumpstream.statistics.arrow import table_of_tensors  # noqa: PLC0415 - needs pyarrow

        table = table_of_tensors(tensors, self._own)
        exactly = None
        if not _suits_arrow(tensors):
            rows = zip(*tensors.columns(self._columns).values(), strict=True)
            exactly = [json.dumps(row).encode() for row in rows]
        self._waiting.append(self._table(table, table.num_rows, exactly, None))
        self._counts["tensors"] += table.num_rows

    def _table(self, table: Any, rows: int, exactly: list[bytes] | None, problems: list[bytes] | None) -> Any:
        import pyarrow as pa  # noqa: PLC0415 - slow, and optional

        arrays = {
            field.name: pa.nulls(rows, field.type) if table is None else table.column(field.name)
            for field in self._own
        }
        for name, values in ((_EXACTLY, exactly), (_PROBLEM, problems)):
            arrays[name] = pa.nulls(rows, pa.binary()) if values is None else pa.array(values, pa.binary())
        return pa.table(arrays, schema=self._part.schema)

    def _flush(self) -> None:
        import pyarrow as pa  # noqa: PLC0415 - slow, and optional

        self._let_go()
        if self._problems:
            self._waiting.append(self._table(None, len(self._problems), None, self._problems))
        if self._waiting:
            self._part.write(pa.concat_tables(self._waiting))
        self._waiting, self._problems, self._rows = [], [], 0


def _may_join(one: Tensors, other: Tensors) -> bool:
    """Whether both are of the same kind, and if they are columns, of the same process."""
    if isinstance(one, FileColumns) and isinstance(other, FileColumns):
        return one.provenance == other.provenance
    return isinstance(one, TensorRows) and isinstance(other, TensorRows)


def _joined(held: Sequence[Any]) -> Tensors:
    """Return all that is *held*, which is of one kind."""
    if isinstance(held[0], FileColumns):
        return join_columns(held)
    return TensorRows(row for rows in held for row in rows)


def _suits_arrow(tensors: Tensors) -> bool:
    """Whether Arrow holds all values exactly: texts are UTF-8, and no number has more than 63 bits."""
    if isinstance(tensors, FileColumns):
        said = (value for values in (tensors.names, *tensors.said.values()) for value in values)
        numbers = [tensors.numbers(name) for name in ("size", "bytes", "count")]
        wide = any((values[known] >= _LARGEST).any() for values, known in filter(None, numbers))
        return not wide and all(map(_suits, said))
    if isinstance(tensors, TensorRows):
        return all(_suits(value) for values in tensors.columns(COLUMNS).values() for value in values)
    return True  # it came from Arrow


def _suits(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() or _is_utf8(value)
    return not isinstance(value, int) or abs(value) < _LARGEST


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class MeasuredBlock(NamedTuple):
    """Some rows of a part, and what is to be said about them."""

    columns: Mapping[str, list[Any]]
    problems: Sequence[str]


def measured_blocks(part: Part, names: Sequence[str]) -> Iterator[MeasuredBlock]:
    """Yield the columns *names* of the rows of *part*, as the table of statistics has them."""
    from dumpstream.statistics.arrow import ArrowTensors  # noqa: PLC0415 - needs pyarrow

    stored: tuple[str, ...] = ()
    for table in part.tables():
        stored = stored or tuple(name for name in table.schema.names if name in COLUMNS)
        told = table.column(_PROBLEM)
        problems = [decoded(it) or "" for it in told.to_pylist() if it is not None] if _has(told) else []
        if problems:
            table = table.filter(told.is_null())  # noqa: PLW2901 - the rows of tensors
        columns = ArrowTensors(table).columns(names)
        if _has(exactly := table.column(_EXACTLY)):
            for row, text in enumerate(exactly.to_pylist()):
                if text is not None:
                    _restore(columns, row, dict(zip(stored, json.loads(text), strict=True)))
        yield MeasuredBlock(columns, problems)


def _has(column: Any) -> bool:
    return bool(column.null_count < len(column))


def _restore(columns: Mapping[str, list[Any]], row: int, values: Mapping[str, Any]) -> None:
    for name, of in columns.items():
        value = values[name]
        of[row] = tuple(value) if COLUMNS[name] is Kind.LIST and value is not None else value
