"""Rows of statistics, filtered, sorted and written in four formats."""

from __future__ import annotations

import io
import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from dumpstream.analysis.measurement import measure
from dumpstream.cli._display import ProgressLine, count_text, printable, size_text, table_lines
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.reading.outputs import open_output
from dumpstream.statistics.canncsv import DEFAULT_SELECTION, SELECTABLE, CannCsv
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.table import COLUMNS, Condition, SortKey, find_column, json_object, sort_tensors
from dumpstream.system.location import as_location

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Sequence
    from typing import IO

    from dumpstream.statistics.table import TensorRow

_TABLE_COLUMNS = (
    *("model", "iteration", "op_type", "op_name", "io", "index", "dtype", "shape"),
    *("count", "max", "min", "mean", "nan", "pos_inf", "neg_inf"),
)
_GROUP_ROWS = 8192


class _Request(NamedTuple):
    """What the flags ask for."""

    columns: Sequence[str]  #: to write; of csv, those in front
    statistics: Sequence[str] | None  #: of CANN's, for csv; None for its default
    conditions: Sequence[Condition]
    sort: Sequence[SortKey]

    @classmethod
    def of(cls, args: Namespace) -> _Request:
        """Return what *args* ask for.

        Raises:
            ValueError: they cannot be understood, or do not go together.
        """
        names = _split(args.select)
        statistics: list[str] | None = None
        if args.format == "csv":
            statistics = [name for name in names if name in SELECTABLE] or None
            names = [name for name in names if name not in SELECTABLE]
        elif not names:
            names = [*_TABLE_COLUMNS] if args.format == "table" else [*COLUMNS]
            if args.format == "table" and args.histogram:
                names.append("histogram")
        if args.format == "parquet" and args.out is None:
            raise ValueError("parquet is not for a terminal; name a file with --out")
        if args.workers is not None and args.workers < 1:
            raise ValueError("--workers must be at least 1")
        return cls(
            [find_column(name) for name in names],
            statistics,
            [Condition.parse(text) for text in args.where],
            [SortKey.parse(text) for text in _split(args.sort)],
        )


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def run(args: Namespace) -> int:
    """Print the statistics."""
    try:
        request = _Request.of(args)
    except ValueError as exc:
        raise WrongUsageError(str(exc)) from exc
    found = _Found(args)
    rows: Iterable[TensorRow] = (row for row in found if all(it.holds(row) for it in request.conditions))
    if request.sort:
        rows = sort_tensors(rows, request.sort)
    if args.out is None:
        _WRITERS[args.format](rows, request, sys.stdout)
    else:
        with open_output(args.out, replace=args.force) as binary:
            if args.format == "parquet":
                _write_parquet(rows, request, binary)
            else:
                with io.TextIOWrapper(binary, "utf-8", "backslashreplace", "") as text:
                    _WRITERS[args.format](rows, request, text)
    found.tell_skipped()
    return NOT_WHOLE if found.problems else 0


class _Found:
    """All rows; tells of problems and of progress while they are iterated over."""

    def __init__(self, args: Namespace) -> None:
        self._args = args
        # A line that is rewritten does not go with rows that are printed meanwhile.
        streams = args.format in {"csv", "json"} and not args.sort and args.out is None
        self._line = None if streams and sys.stdout.isatty() else ProgressLine()
        self._skipped = 0
        self.problems = 0

    def __iter__(self) -> Iterator[TensorRow]:
        args = self._args
        files = size = 0
        try:
            for measured in measure(
                map(as_location, args.names), ranks=args.rank, histogram=args.histogram, workers=args.workers
            ):
                files += 1
                size += measured.bytes
                self._skipped += measured.skipped
                self._tell(measured.problems)
                if self._line is not None:
                    self._line.show(f"read {count_text(files, 'file')}, {size_text(size)}")
                yield from measured.rows
        finally:
            if self._line is not None:
                self._line.clear()

    def tell_skipped(self) -> None:
        """Say how many files were none."""
        if self._skipped:
            print(
                f"dumpstream: {count_text(self._skipped, 'file')} without a dump header skipped",
                file=sys.stderr,
            )

    def _tell(self, problems: Sequence[str]) -> None:
        self.problems += len(problems)
        if problems and self._line is not None:
            self._line.clear()
        for problem in problems:
            print(f"dumpstream: {printable(problem)}", file=sys.stderr)


def _write_table(rows: Iterable[TensorRow], request: _Request, file: IO[str]) -> None:
    rows, columns = list(rows), [*request.columns]
    unselected = columns[: len(_TABLE_COLUMNS)] == [*_TABLE_COLUMNS]
    if unselected and any(row.rank is not None for row in rows):
        columns.insert(0, "rank")
    table = [[getattr(row, name) for name in columns] for row in rows]
    numeric = [COLUMNS[name].numeric for name in columns]
    for line in table_lines(columns, table, numeric) if table else []:
        print(line, file=file)
    print(count_text(len(table), "tensor"), file=file)


def _write_csv(rows: Iterable[TensorRow], request: _Request, file: IO[str]) -> None:
    text = CannCsv(request.statistics or DEFAULT_SELECTION, request.columns)
    file.write(text.header)
    for row in rows:
        file.write(text.lines([row]))


def _write_json(rows: Iterable[TensorRow], request: _Request, file: IO[str]) -> None:
    start = "["
    for row in rows:
        file.write(f"{start}\n{json.dumps(json_object(row, request.columns))}")
        start = ","
    file.write("[]\n" if start == "[" else "\n]\n")


def _write_parquet(rows: Iterable[TensorRow], request: _Request, file: IO[bytes]) -> None:
    writer = ParquetWriter(file, request.columns)
    pending = iter(rows)
    while group := list(islice(pending, _GROUP_ROWS)):
        writer.write(group)
    writer.close()


_WRITERS = {"table": _write_table, "csv": _write_csv, "json": _write_json}
