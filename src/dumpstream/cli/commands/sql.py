"""Ask the tables of a run in SQL.

The tables are tensors (a row of statistics for each tensor), problems (files that could not be read), files,
processes, losses, alerts (what --alert told), and edges (which tensor an operator read from which). Without a
query, lists them with their columns. The table of tensors is made when a query first needs it, and kept in
the cache. DuckDB answers; it can read nothing but these tables.

Examples:
  dumpstream sql run1                                              the tables and their columns
  dumpstream sql run1 "select op_type, sum(nan) from tensors group by all order by 2 desc"
  dumpstream sql run1 "select verdict, count(*), sum(bytes) from files group by all"
  dumpstream sql run1 run2 "select capture, rank, max(l2norm) from tensors group by all"
  dumpstream sql s3://bucket/run1 "from tensors where nan > 0" --format parquet --out bad.parquet
"""

from __future__ import annotations

import csv
import io
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, TextIO

from dumpstream.cli._arguments import add_members_arguments, local_path
from dumpstream.cli._display import count_text, escaping, in_words, number_text, printable, summarise
from dumpstream.cli._exit import WrongUsageError
from dumpstream.cli.screen.layout import Column
from dumpstream.cli.screen.progress import Progress
from dumpstream.cli.screen.table import Table
from dumpstream.reading.inputs import refuse_missing
from dumpstream.reading.outputs import open_output
from dumpstream.statistics.table import json_value
from dumpstream.system.location import Prefix, as_location, is_meant_as_url
from dumpstream.tables.database import Answer, QueryError, columns_of_tables, open_database

_NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal")
_LEAST_TEXT = 12  #: columns of a text that may be shortened


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "names",
        nargs="+",
        metavar="RUN",
        help="captures (directories or URLs), dump files, or directories of them; the last word is the query",
    )
    add_members_arguments(parser)
    add("--format", choices=["table", "csv", "json", "parquet"], default="table")
    add("--out", type=local_path, metavar="FILE", help="write there instead of printing")
    add("--force", action="store_true", help="replace --out if it is there")


def run(args: Namespace) -> int:
    if args.format == "parquet" and args.out is None:
        raise WrongUsageError("parquet is not for a terminal; name a file with --out")
    *words, query = args.names
    if not words:
        return _list(as_location(query))
    if not query.split()[1:] and (is_meant_as_url(query) or "/" in query):
        raise WrongUsageError(f"the last word is the query, and {query} is not one; write it in quotes")
    runs = [as_location(word) for word in words]
    with ExitStack() as stack:
        with Progress("reading tensors", "tensor") as progress:
            opening = open_database(runs, args.rank, args.host, query=query, told=progress.show)
            database = stack.enter_context(opening)
        try:
            _write(args, database.ask(query))
        except QueryError as exc:
            raise WrongUsageError.of(exc) from exc
    return 0


def _list(run: Path | Prefix) -> int:
    """Print the tables with their columns, which every *run* has; return the exit code."""
    refuse_missing(run)
    for name, columns in columns_of_tables().items():
        print(in_words(f"{name:<10} {' '.join(columns)}", sys.stdout, indent=" " * 11))
    return 0


def _write(args: Namespace, answer: Answer) -> None:
    if args.out is None:
        _WRITERS[args.format](answer, sys.stdout)
        return
    with open_output(args.out, replace=args.force) as binary:
        if args.format == "parquet":
            _write_parquet(answer, binary)
        else:
            with io.TextIOWrapper(binary, "utf-8", "backslashreplace", "") as text:
                _WRITERS[args.format](answer, text)


def _blocks(answer: Answer) -> Iterator[tuple[int, Sequence[Sequence[Any]]]]:
    """Yield the columns of the rows, some rows at a time, and how many rows they are."""
    for batch in answer:
        yield batch.num_rows, [column.to_pylist() for column in batch.columns]


def _write_table(answer: Answer, file: TextIO) -> None:
    columns = [
        Column(
            name=name,
            text=_cell_text,
            numeric=str(field.type).startswith(_NUMBERS),
            importance=-place,
            least=None if str(field.type).startswith(_NUMBERS) else _LEAST_TEXT,
        )
        for place, (name, field) in enumerate(zip(_titles(answer.schema.names), answer.schema, strict=True))
    ]
    table = Table(columns, file=file)
    for rows, cells in _blocks(answer):
        if rows:
            table.add({column.name: values for column, values in zip(columns, cells, strict=True)})
            file.writelines(table.lines())
    summary = count_text(table.rows, "row")
    if table.left_out:
        summary += f"; too wide for the terminal: {', '.join(table.left_out)}"
    summarise(summary, good=True, file=file)


def _titles(names: Sequence[str]) -> list[str]:
    """Return *names* so that no two are the same, as those of two columns may be."""
    return [printable(name) + "'" * names[:place].count(name) for place, name in enumerate(names)]


def _cell_text(value: Any) -> str:
    if isinstance(value, str):
        return printable(value)
    return "-" if value is None else number_text(value) if isinstance(value, float) else printable(str(value))


def _write_csv(answer: Answer, file: TextIO) -> None:
    writer = csv.writer(escaping(file), lineterminator="\n")
    writer.writerow(answer.schema.names)
    for _, cells in _blocks(answer):
        writer.writerows(zip(*cells, strict=True))


def _write_json(answer: Answer, file: TextIO) -> None:
    names, start = _titles(answer.schema.names), "["
    for _, cells in _blocks(answer):
        for row in zip(*cells, strict=True):
            values = dict(zip(names, map(_json_cell, row), strict=True))
            file.write(f"{start}\n{json.dumps(values, default=str, allow_nan=False)}")
            start = ","
    file.write("[]\n" if start == "[" else "\n]\n")


def _json_cell(value: Any) -> Any:
    """Return a value as JSON can hold it, also inside lists and structures."""
    if isinstance(value, list | tuple):
        return [_json_cell(it) for it in value]
    if isinstance(value, dict):
        return {str(name): _json_cell(it) for name, it in value.items()}
    return json_value(value)


def _write_parquet(answer: Answer, file: IO[bytes]) -> None:
    import pyarrow.parquet  # noqa: PLC0415 - slow, and optional

    with pyarrow.parquet.ParquetWriter(file, answer.schema, compression="zstd") as writer:
        for batch in answer:
            writer.write_batch(batch)


_WRITERS = {"table": _write_table, "csv": _write_csv, "json": _write_json}
