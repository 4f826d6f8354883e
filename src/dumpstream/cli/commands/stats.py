"""Print the statistics of every tensor in captures, dump files and directories of them.

A capture with the statistics sink has them already; for everything else they are computed. Prints a line for
each file that cannot be read, or not completely, and then exits with 3.

Examples:
  dumpstream stats run1                                          a table of all tensors
  dumpstream stats run1 --where 'nan > 0' --sort timestamp       those with NaNs, the earliest first
  dumpstream stats dumps --format csv --select Max,Min,L2norm    as CANN writes it
  dumpstream stats run1 --format parquet --out run1.parquet      for pandas, polars or DuckDB
  dumpstream stats run1.parquet --sort l2norm:desc               from a table written before
"""

from __future__ import annotations

import io
import json
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from dumpstream.analysis.measurement import measure_batches
from dumpstream.analysis.sources import Wanted
from dumpstream.cli._arguments import add_inputs_argument, add_rank_argument
from dumpstream.cli._display import ProgressLine, count_text, say, size_text
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.cli._table import Table
from dumpstream.reading.outputs import open_output
from dumpstream.statistics.canncsv import DEFAULT_SELECTION, SELECTABLE, CannCsv
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.sorting import sort_blocks
from dumpstream.statistics.table import COLUMNS, Condition, SortKey, find_column, json_value
from dumpstream.system.location import as_location

_Columns = Mapping[str, list[Any]]

_TABLE_COLUMNS = (
    *("model", "iteration", "op_type", "op_name", "io", "index", "dtype", "shape"),
    *("count", "max", "min", "mean", "nan", "pos_inf", "neg_inf"),
)
_GROUP_ROWS = 8192
#: A table that has more rows is not held until all widths are known.
_WAITING_ROWS = 50_000


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_inputs_argument(parser)
    add_rank_argument(parser)
    add(
        "--select",
        metavar="NAME,...",
        help="these columns; for csv, these of CANN's statistics (Max, Min, Avg, Nan, Negative Inf, "
        "Positive Inf, L2norm), and columns to put in front",
    )
    add(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="only rows of which COLUMN OP NUMBER is true, such as 'nan > 0'; may be repeated: all must be",
    )
    add("--sort", metavar="COLUMN,...", help="by these columns; COLUMN:desc has the largest first")
    add("--format", choices=["table", "csv", "json", "parquet"], default="table")
    add("--out", type=Path, metavar="FILE", help="write there instead of printing")
    add("--force", action="store_true", help="replace --out if it is there")
    add("--histogram", action="store_true", help="count the exponents of floats, too")
    add(
        "--workers",
        type=int,
        metavar="N",
        help="threads that compute (default: the cores, at most 8; 16 for an object store)",
    )


class _Request(NamedTuple):
    """What the flags ask for."""

    columns: Sequence[str]  #: to write; for csv, those in front
    csv: CannCsv | None
    conditions: Sequence[Condition]
    sort: Sequence[SortKey]
    streams: bool  #: whether rows are shown as soon as they are known

    @property
    def needed(self) -> list[str]:
        """The columns that are written or sorted by."""
        written = [*self.columns, "rank"] if self.csv is None else self.csv.columns
        return [*dict.fromkeys([*written, *(key.column for key in self.sort)])]

    @classmethod
    def of(cls, args: Namespace) -> _Request:
        """Return what *args* ask for.

        Raises:
            ValueError: they cannot be understood, or do not go together.
        """
        names = _split(args.select)
        statistics: list[str] = []
        if args.format == "csv":
            statistics = [name for name in names if name in SELECTABLE]
            names = [name for name in names if name not in SELECTABLE]
        elif not names:
            names = [*_TABLE_COLUMNS] if args.format == "table" else [*COLUMNS]
            if args.format == "table" and args.histogram:
                names.append("histogram")
        if args.format == "parquet" and args.out is None:
            raise ValueError("parquet is not for a terminal; name a file with --out")
        if args.workers is not None and args.workers < 1:
            raise ValueError("--workers must be at least 1")
        columns = [find_column(name) for name in names]
        return cls(
            columns,
            CannCsv(statistics or DEFAULT_SELECTION, columns) if args.format == "csv" else None,
            [Condition.parse(text) for text in args.where],
            [SortKey.parse(text) for text in _split(args.sort)],
            streams=args.out is None and not args.sort and sys.stdout.isatty(),
        )


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def run(args: Namespace) -> int:
    try:
        request = _Request.of(args)
    except ValueError as exc:
        raise WrongUsageError(str(exc)) from exc
    counts: Counter[str] = Counter()
    blocks: Iterable[_Columns] = _measured(args, request, counts)
    if request.sort:
        blocks = sort_blocks(blocks, request.sort)
    if args.out is None:
        _WRITERS[args.format](blocks, request, sys.stdout)
    else:
        with open_output(args.out, replace=args.force) as binary:
            if args.format == "parquet":
                _write_parquet(blocks, request, binary)
            else:
                with io.TextIOWrapper(binary, "utf-8", "backslashreplace", "") as text:
                    _WRITERS[args.format](blocks, request, text)
    if counts["skipped"]:
        say(f"{count_text(counts['skipped'], 'file')} without a dump header skipped")
    return NOT_WHOLE if counts["problems"] else 0


def _measured(args: Namespace, request: _Request, counts: Counter[str]) -> Iterator[_Columns]:
    """Yield the columns that are needed, block by block; print problems and progress meanwhile."""
    needed = request.needed
    wanted = Wanted(request.conditions, needed, args.histogram)
    locations = map(as_location, args.names)
    # A line that is rewritten does not go with rows that are printed meanwhile.
    with ProgressLine(wanted=not request.streams) as line:
        for batch in measure_batches(locations, wanted, ranks=args.rank, workers=args.workers):
            problems = [problem for file in batch.files for problem in file.problems]
            if problems:
                line.clear()
            for problem in problems:
                say(problem)
            counts.update(files=len(batch.files), problems=len(problems))
            counts["bytes"] += sum(file.bytes for file in batch.files)
            counts["skipped"] += sum(file.skipped for file in batch.files)
            line.show(f"read {count_text(counts['files'], 'file')}, {size_text(counts['bytes'])}")
            yield batch.tensors.columns(needed)


def _rows(blocks: Iterable[_Columns], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return chain.from_iterable(zip(*(block[name] for name in names), strict=True) for block in blocks)


def _write_table(blocks: Iterable[_Columns], request: _Request, file: IO[str]) -> None:
    unselected = request.columns[: len(_TABLE_COLUMNS)] == [*_TABLE_COLUMNS]
    table = Table(request.columns, lead="rank" if unselected else None)
    for block in blocks:
        table.add(block)
        if request.streams or table.waiting > _WAITING_ROWS:
            file.writelines(table.lines())
    file.writelines(table.lines())
    print(count_text(table.rows, "tensor"), file=file)


def _write_csv(blocks: Iterable[_Columns], request: _Request, file: IO[str]) -> None:
    assert request.csv is not None
    file.write(request.csv.header)
    for block in blocks:
        file.write(request.csv.lines(block))


def _write_json(blocks: Iterable[_Columns], request: _Request, file: IO[str]) -> None:
    start = "["
    for row in _rows(blocks, request.columns):
        values = dict(zip(request.columns, map(json_value, row), strict=True))
        file.write(f"{start}\n{json.dumps(values)}")
        start = ","
    file.write("[]\n" if start == "[" else "\n]\n")


def _write_parquet(blocks: Iterable[_Columns], request: _Request, file: IO[bytes]) -> None:
    writer = ParquetWriter(file, request.columns)
    rows = _rows(blocks, request.columns)
    try:
        while group := list(islice(rows, _GROUP_ROWS)):
            writer.write(dict(zip(request.columns, zip(*group, strict=True), strict=True)))
        writer.close()
    except BaseException:
        writer.discard()
        raise


_WRITERS = {"table": _write_table, "csv": _write_csv, "json": _write_json}
