"""Print the statistics of every tensor in captures, dump files and directories of them.

A capture with the statistics sink has them already; for everything else they are computed. Prints a line for
each file, journal or capture that cannot be read, or not completely, and then exits with 3.

Examples:
  dumpstream stats run1                                          a table of all tensors
  dumpstream stats run1 '*MatMul*'                               those of files whose names match
  dumpstream stats run1 --where 'nan > 0' --sort timestamp       those with NaNs, the earliest first
  dumpstream stats run1 --where '3 <= iteration <= 7 and (op_name ~ "layer_5*" or max > 1e4)' --limit 20
  dumpstream stats run1 run2 --sort op_name,capture              two runs, tensor beside tensor
  dumpstream stats dumps --format csv --select Max,Min,L2norm    as CANN writes it
  dumpstream stats run1 --format parquet --out run1.parquet      for pandas, polars or DuckDB
  dumpstream stats run1.parquet --sort l2norm:desc               from a table written before
  dumpstream stats s3://bucket/job --engine dask=tcp://head:8786
                                                                 on the workers of a cluster
  dumpstream stats job --shard 3/16 --parts parts                a sixteenth of it, for `dumpstream merge`
"""

from __future__ import annotations

import io
import json
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

from dumpstream.analysis.measurement import measure_batches
from dumpstream.analysis.sources import Wanted
from dumpstream.cli._arguments import add_inputs_argument, add_members_arguments, local_path, split_inputs
from dumpstream.cli._display import count_text, escaping, not_stored_text, say, summarise
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.cli.engine.arguments import add_engine_arguments, is_planned, refuse_relative
from dumpstream.cli.engine.running import run_planned
from dumpstream.cli.screen.amounts import bytes_to_measure
from dumpstream.cli.screen.colour import Style, styled
from dumpstream.cli.screen.live import above
from dumpstream.cli.screen.progress import Progress
from dumpstream.cli.screen.table import Table
from dumpstream.cli.screen.tensors import tensor_column, tensor_columns
from dumpstream.engine.computing import Failure
from dumpstream.engine.measuring import Measuring, measured_blocks
from dumpstream.engine.parts import Parts
from dumpstream.engine.plan import Plan
from dumpstream.engine.portion import find_portions, sliced
from dumpstream.reading.outputs import open_output
from dumpstream.reading.selection import refuse_unmatched
from dumpstream.statistics.canncsv import DEFAULT_SELECTION, SELECTABLE, CannCsv
from dumpstream.statistics.conditionparser import parse_condition
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.sorting import sort_blocks
from dumpstream.statistics.table import COLUMNS, SortKey, find_column, json_value, parse_order
from dumpstream.system.location import Prefix

_Columns = Mapping[str, list[Any]]

_TABLE_COLUMNS = (
    *("model", "iteration", "op_type", "op_name", "io", "index", "dtype", "shape"),
    *("count", "max", "min", "mean", "nan", "pos_inf", "neg_inf"),
)
_GROUP_ROWS = 8192
#: A table that has more rows is not held until all widths are known.
_WAITING_ROWS = 20_000


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_inputs_argument(parser, patterns=True)
    add_members_arguments(parser)
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
        help='only rows of which it is true: comparisons such as nan > 0, op_name == "layer_5", '
        'op_name ~ "*MatMul*" (a pattern with * ? [ ]), 3 <= iteration <= 7, problem is not null, '
        "joined by and, or, not and brackets; may be repeated: all must be true",
    )
    add(
        "--sort",
        metavar="COLUMN,...",
        help="by these columns; COLUMN:desc has the largest first; timestamp sorts rank by rank",
    )
    add("--limit", type=int, metavar="N", help="at most N rows; without --sort, reads no further than needed")
    add("--format", choices=["table", "csv", "json", "parquet"], default="table")
    add("--out", type=local_path, metavar="FILE", help="write there instead of printing")
    add("--force", action="store_true", help="replace --out if it is there")
    add("--histogram", action="store_true", help="count the exponents of floats, too")
    add(
        "--workers",
        type=int,
        metavar="N",
        help="threads that compute (default: the cores, at most 8; 16 for an object store)",
    )
    add_engine_arguments(parser)


class _Output(NamedTuple):
    """How rows are written; a JSON object can hold it."""

    format: str
    columns: Sequence[str]  #: to write; for csv, those in front
    statistics: Sequence[str]  #: of csv
    order: str  #: what to sort by
    limit: int | None
    unselected: bool  #: whether the columns are the usual ones

    @property
    def csv(self) -> CannCsv | None:
        """What writes csv, if that is wanted."""
        if self.format != "csv":
            return None
        return CannCsv(self.statistics or DEFAULT_SELECTION, self.columns)

    @property
    def sort(self) -> list[SortKey]:
        """What to sort by."""
        return parse_order(self.order)

    @property
    def needed(self) -> list[str]:
        """The columns that are written or sorted by."""
        csv = self.csv
        written = [*self.columns, "host", "rank"] if csv is None else csv.columns
        return [*dict.fromkeys([*written, *(key.column for key in self.sort)])]


class _Request(NamedTuple):
    """What the flags ask for."""

    paths: Sequence[Path | Prefix]
    wanted: Wanted
    output: _Output

    @classmethod
    def of(cls, args: Namespace) -> _Request:
        """Return what *args* ask for.

        Raises:
            ValueError: they cannot be understood, or do not go together.
        """
        paths, patterns = split_inputs(args.names)
        names = _split(args.select)
        statistics: list[str] = []
        if args.format == "csv":
            statistics = [name for name in names if name in SELECTABLE]
            names = [name for name in names if name not in SELECTABLE]
        elif not names:
            names = _usual_columns(args, paths) if args.format == "table" else [*COLUMNS]
        if args.format == "parquet" and args.out is None and args.shard is None:
            raise ValueError("parquet is not for a terminal; name a file with --out")
        if args.workers is not None and args.workers < 1:
            raise ValueError("--workers must be at least 1")
        if args.limit is not None and args.limit < 1:
            raise ValueError("--limit must be at least 1")
        output = _Output(
            args.format,
            [find_column(name) for name in names],
            statistics,
            args.sort or "",
            args.limit,
            unselected=not args.select,
        )
        conditions = [parse_condition(text) for text in args.where]
        return cls(paths, Wanted(conditions, output.needed, args.histogram, patterns), output)

    def plan(self, args: Namespace) -> Plan:
        """Return the same work as a plan."""
        request = {
            "command": "stats",
            "paths": [*map(str, self.paths)],
            "patterns": self.wanted.patterns,
            "rank": args.rank,
            "host": args.host,
            "where": args.where,
            "histogram": args.histogram,
            "output": self.output._asdict(),
        }
        portions = find_portions(self.paths, args.rank, args.host)
        if not self.wanted.patterns:  # which select few files
            portions = sliced(portions)
        return Plan(request, [Measuring(it, self.wanted, args.workers) for it in portions])


def _usual_columns(args: Namespace, paths: Sequence[Path | Prefix]) -> list[str]:
    """Return the columns of a table that was not asked for others."""
    places = [it for it in paths if isinstance(it, Prefix) or it.is_dir() or it.suffix == ".parquet"]
    return [
        *(["capture"] if places and len(paths) > 1 else []),
        *_TABLE_COLUMNS,
        *(["histogram"] if args.histogram else []),
    ]


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def run(args: Namespace) -> int:
    try:
        request = _Request.of(args)
    except ValueError as exc:
        raise WrongUsageError.of(exc) from exc
    if is_planned(args):
        refuse_relative(args.engine, request.paths)
        plan = request.plan(args)
        return run_planned(args, plan, partial(merge, args, plan.request))
    counts: Counter[str] = Counter()
    streams = args.out is None and not args.sort and sys.stdout.isatty()
    with closing(_measured(args, request, counts)) as measured:
        _write(args, request.output, measured, streams=streams)
    return _conclude(counts)


def merge(args: Namespace, request: Mapping[str, Any], parts: Parts, failures: Sequence[Failure]) -> int:
    """Write what `run` writes, from *parts*."""
    output = _Output(**request["output"])
    if output.format == "parquet" and args.out is None:
        raise WrongUsageError("parquet is not for a terminal; name a file with --out")
    counts: Counter[str] = Counter()
    unmatched = {*request["patterns"]}
    with closing(_merged(parts, output.needed, counts, unmatched)) as measured:
        _write(args, output, measured)
    for failure in failures:
        say(str(failure))
    counts["problems"] += len(failures)
    return _conclude(counts)


def _merged(
    parts: Parts, needed: Sequence[str], counts: Counter[str], unmatched: set[str]
) -> Generator[_Columns, None, None]:
    """Yield the columns that are needed of all *parts*; print the problems meanwhile."""
    for part in parts:
        for name in ("skipped", "not_stored"):
            counts[name] += int(part.result[name])
        unmatched &= {*part.result["unmatched"]}
        for columns, problems in measured_blocks(part, needed):
            for problem in problems:
                say(problem)
            counts["problems"] += len(problems)
            yield columns
    refuse_unmatched(unmatched)


def _conclude(counts: Counter[str]) -> int:
    """Say what the rows do not, and return the exit code."""
    if counts["skipped"]:
        say(f"{count_text(counts['skipped'], 'file')} without a dump header skipped")
    if counts["not_stored"]:
        say(f"{not_stored_text(counts['not_stored'])}; with --sink stats: they would have rows all the same")
    return NOT_WHOLE if counts["problems"] else 0


def _write(args: Namespace, output: _Output, blocks: Iterable[_Columns], *, streams: bool = False) -> None:
    if output.sort:
        blocks = sort_blocks(blocks, output.sort)
    if output.limit is not None:
        blocks = _first(blocks, output.limit)
    if args.out is None:
        _WRITERS[output.format](blocks, output, sys.stdout, streams)
    else:
        with open_output(args.out, replace=args.force) as binary:
            if output.format == "parquet":
                _write_parquet(blocks, output, binary)
            else:
                with io.TextIOWrapper(binary, "utf-8", "backslashreplace", "") as text:
                    _WRITERS[output.format](blocks, output, text, False)


def _first(blocks: Iterable[_Columns], limit: int) -> Iterator[_Columns]:
    """Yield the first *limit* rows; asks for no block behind them."""
    left = limit
    for block in blocks:
        kept = {name: values[:left] for name, values in block.items()}
        left -= max(map(len, kept.values()), default=0)
        yield kept
        if not left:
            return


def _measured(args: Namespace, request: _Request, counts: Counter[str]) -> Generator[_Columns, None, None]:
    """Yield the columns that are needed, block by block; print problems and progress meanwhile."""
    wanted = request.wanted
    needed = wanted.columns
    with Progress("measuring", "tensor", count_all=partial(_amount, args, request)) as progress:
        for batch in measure_batches(
            request.paths, wanted, ranks=args.rank, hosts=args.host, workers=args.workers
        ):
            problems = [problem for file in batch.files for problem in file.problems]
            for problem in problems:
                say(problem)
            counts.update(files=len(batch.files), problems=len(problems))
            counts["bytes"] += sum(file.bytes for file in batch.files)
            counts["skipped"] += sum(file.skipped for file in batch.files)
            counts["not_stored"] += sum(file.not_stored for file in batch.files)
            block = batch.tensors.columns(needed)
            counts["tensors"] += len(block[needed[0]])
            progress.show(counts["tensors"], counts["bytes"])
            with above(sys.stdout):
                yield block


def _amount(args: Namespace, request: _Request) -> tuple[int, int]:
    """Return how much is to be read, which is not known if names select some of it."""
    return 0, 0 if request.wanted.patterns else bytes_to_measure(request.paths, args.rank, args.host)


def _rows(blocks: Iterable[_Columns], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return chain.from_iterable(zip(*(block[name] for name in names), strict=True) for block in blocks)


def _write_table(blocks: Iterable[_Columns], output: _Output, file: TextIO, streams: bool) -> None:  # noqa: FBT001 - not for callers
    leads = [*map(tensor_column, ("host", "rank"))] if output.unselected else []
    table = Table(tensor_columns(output.columns), leads=leads, file=file, grows=streams)
    for block in blocks:
        table.add(block)
        if streams or table.waiting > _WAITING_ROWS:
            file.writelines(table.lines())
    file.writelines(table.lines())
    summary = count_text(table.rows, "tensor") + (", the limit" if table.rows == output.limit else "")
    if table.left_out:
        aside = f"; too wide for the terminal: {', '.join(table.left_out)} (--select chooses)"
        summary += styled(aside, Style.FAINT, file)
    summarise(summary, good=True, file=file)


def _write_csv(blocks: Iterable[_Columns], output: _Output, file: TextIO, _: bool) -> None:  # noqa: FBT001
    csv = output.csv
    assert csv is not None
    shown = escaping(file)
    shown.write(csv.header)
    shown.writelines(csv.lines(block) for block in blocks)


def _write_json(blocks: Iterable[_Columns], output: _Output, file: TextIO, _: bool) -> None:  # noqa: FBT001
    start = "["
    for row in _rows(blocks, output.columns):
        values = dict(zip(output.columns, map(json_value, row), strict=True))
        file.write(f"{start}\n{json.dumps(values)}")
        start = ","
    file.write("[]\n" if start == "[" else "\n]\n")


def _write_parquet(blocks: Iterable[_Columns], output: _Output, file: IO[bytes]) -> None:
    writer = ParquetWriter(file, output.columns)
    rows = _rows(blocks, output.columns)
    try:
        while group := list(islice(rows, _GROUP_ROWS)):
            writer.write(dict(zip(output.columns, zip(*group, strict=True), strict=True)))
        writer.close()
    except BaseException:
        writer.discard()
        raise


_WRITERS = {"table": _write_table, "csv": _write_csv, "json": _write_json}
