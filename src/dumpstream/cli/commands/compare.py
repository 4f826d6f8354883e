"""Compare two runs: where they first differ, and which operator added the error.

Each side is a capture (directory or URL), a directory that CANN wrote, a dump file, a directory of npy files,
or a table of statistics. Tensors are paired by rank, model, step, operator, input or output, index, and how
often the operator ran in the step. Prints the answer, and then a table of the tensors that differ or could
not be compared. Exits with 3 if there is one.

Examples:
  dumpstream compare today yesterday                              where do they first differ?
  dumpstream compare today yesterday --all --order run            every tensor, as the operators ran
  dumpstream compare run1 gpu_npy --map names.txt --step 5:0     a run on a GPU, with other names and steps
  dumpstream compare run1 run2 --rtol 1e-2 --limit cosine=0.999   other limits
  dumpstream compare tp2 single --mesh tp=2 --shards shards.json  a run on two ranks with one on a single rank
  dumpstream compare run1 run2 --json | jq -r .summary.sentence   for programs
  dumpstream compare run1 run2 --as msaccucmp --out results       the csv that CANN's tool writes
"""

import io
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from dumpstream._errors import DumpstreamError
from dumpstream.cli._arguments import local_path, location
from dumpstream.cli._display import count_text, escaping, in_words, printable, say
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.cli.engine.arguments import add_engine_arguments, is_planned, refuse_relative
from dumpstream.cli.engine.running import run_planned
from dumpstream.cli.screen.colour import Style, styled
from dumpstream.cli.screen.comparison import block_of, comparison_columns, ordered_blocks, rank_column
from dumpstream.cli.screen.options import is_quiet
from dumpstream.cli.screen.progress import Progress
from dumpstream.cli.screen.table import Table
from dumpstream.comparison.comparison import Comparison, compare
from dumpstream.comparison.divergence import Finding
from dumpstream.comparison.limits import parse_limit
from dumpstream.comparison.output.msaccucmp import csv_name
from dumpstream.comparison.output.writing import write_csv, write_json, write_msaccucmp, write_parquet
from dumpstream.comparison.summary import Summary
from dumpstream.comparison.table import Agreement
from dumpstream.engine.comparing import Compared, Spool, cut_executions
from dumpstream.engine.computing import Failure
from dumpstream.engine.parts import Parts
from dumpstream.engine.plan import Plan
from dumpstream.engine.portion import digest_at
from dumpstream.reading.outputs import Outputs, open_output
from dumpstream.system.location import Prefix

_SHOWN_ROWS = 30
_NOT_PRINTED = "parquet is not for a terminal; name a file with --out"
#: The options that are files, and those of the output that parts keep.
_FILES = ("names", "fusion", "limits", "shards")
_OUTPUT = ("format", "style", "all", "rows", "order")
_MOST_KEPT = 200  #: rows that are kept in memory until the worst are known
#: Verdicts that are shown only if asked for.
_AGREE = {Agreement.IDENTICAL, Agreement.CLOSE}


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    side = "a capture (directory or URL), a directory of dump or npy files, a file, or a table of statistics"
    add("mine", type=location, metavar="MINE", help=f"the run in question: {side}")
    add("golden", type=location, metavar="GOLDEN", help="the run that it should agree with, likewise")
    add("--workers", type=int, metavar="N", help="threads that compare (default: the cores, at most 8)")
    _add_pairing_arguments(parser)
    _add_limit_arguments(parser)
    add = parser.add_argument_group("output").add_argument
    add("--order", choices=["worst", "run"], default="worst", help="the worst first (default), or as it ran")
    add("--all", action="store_true", help="show also the tensors that are identical or close")
    add("--rows", type=int, default=_SHOWN_ROWS, metavar="N", help="show at most N (default: 30; 0: all)")
    add("--format", choices=["table", "csv", "json", "parquet"], default="table")
    add("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    add(
        "--as",
        dest="style",
        choices=["msaccucmp"],
        help="write CANN's csv into the directory --out",
    )
    add("--out", type=local_path, metavar="FILE", help="write there instead of printing")
    add("--force", action="store_true", help="replace --out if it is there")
    add_engine_arguments(parser)


def _add_pairing_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("what belongs together").add_argument
    for name in ("rank", "model", "step"):
        mapped = f"only this {name}; MINE:GOLDEN if the golden has another one; may be repeated"
        add(f"--{name}", action="append", default=[], metavar=f"{name.upper()}", help=mapped)
    add("--map", dest="names", type=local_path, metavar="FILE", help="lines MINE -> GOLDEN, names with *")
    add("--fusion", type=local_path, metavar="FILE", help="GE's JSON: what operators were made of")
    add(
        "--mesh",
        metavar="GROUP=N,...",
        help="how the ranks of mine are arranged: tp=2,dp=4 has tp neighbours",
    )
    add("--golden-mesh", metavar="GROUP=N,...", help="the same for the golden (default: it has one rank)")
    add(
        "--shards",
        type=local_path,
        metavar="FILE",
        help="rules of what is split or a partial sum (JSON)",
    )


def _add_limit_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("limits").add_argument
    add(
        "--rtol",
        type=float,
        metavar="X",
        help="the relative tolerance (default: by the coarser type)",
    )
    add("--atol", type=float, metavar="X", help="the absolute tolerance (default: likewise)")
    add(
        "--limit",
        action="append",
        default=[],
        type=_limit,
        metavar="METRIC=VALUE",
        help="what a metric must not be worse than, such as cosine=0.999; may be repeated",
    )
    add("--limits", type=local_path, metavar="FILE", help="limits by the names of operators (JSON)")
    add("--metrics", action="append", default=[], choices=["kl"], help="also compute it, in a second pass")


def _limit(text: str) -> tuple[str, float]:
    try:
        return parse_limit(text)
    except ValueError as exc:
        raise ArgumentTypeError(str(exc)) from None


def run(args: Namespace) -> int:
    _check(args)
    planned = is_planned(args, without=["mesh", "golden_mesh"])
    try:
        comparison = compare(args.mine, args.golden, **_options(args))
    except ValueError as exc:
        raise WrongUsageError.of(exc) from exc
    if planned:
        refuse_relative(args.engine, [args.mine, args.golden])
        with closing(comparison), closing(Spool()) as spool:
            plan = _plan(args, comparison, spool)
            return run_planned(args, plan, partial(merge, args, plan.request))
    with closing(comparison), closing(_compared(comparison, args)) as findings:
        return _finish(args, comparison, findings)


def merge(args: Namespace, request: Mapping[str, Any], parts: Parts, failures: Sequence[Failure]) -> int:
    """Write what `run` writes, from *parts*."""
    for failure in failures:
        say(str(failure))
    if failures:
        raise DumpstreamError("without all executions it is not known where the runs first differ")
    output = Namespace(**request["output"], out=args.out, force=args.force)
    compared = Compared(parts, request["notes"], agreeing=_shows_agreeing(output))
    return _finish(output, compared, compared.findings())


def _plan(args: Namespace, comparison: Comparison, spool: Spool) -> Plan:
    remote = isinstance(args.mine, Prefix) or isinstance(args.golden, Prefix)
    cut = cut_executions(
        comparison.pairing, comparison.examination, agreeing=_shows_agreeing(args), remote=remote
    )
    for number, (label, work) in enumerate(cut):
        mine = args.shard is None or number % args.shard.count == args.shard.number - 1
        spool.add(label, work if mine else None)
    options = _options(args)
    files = [it for name in _FILES if (it := options.pop(name)) is not None]
    request = {
        "command": "compare",
        "sides": [[str(it), digest_at(it)] for it in (args.mine, args.golden)],
        "options": {**options, "metrics": sorted(options["metrics"]), "workers": None},
        "files": [[str(it), digest_at(it)] for it in files],
        "output": {name: getattr(args, name) for name in _OUTPUT},
        "notes": comparison.notes,
    }
    return Plan(request, spool)


def _finish(args: Namespace, comparison: Comparison | Compared, findings: Iterator[Finding]) -> int:
    """Write *findings* and the answer, and return the exit code."""
    if args.format == "parquet" and args.out is None:
        raise WrongUsageError(_NOT_PRINTED)
    if args.style is not None and args.out is None:
        raise WrongUsageError("--as msaccucmp writes into a directory; name it with --out")
    if args.style is not None:
        _write_msaccucmp(args, findings)
    elif args.format == "parquet":
        with open_output(args.out, replace=args.force) as binary:
            write_parquet(findings, binary)
    else:
        with _text_output(args) as file:
            _write_text(args, comparison, findings, file)
    summary = comparison.summary
    for note in comparison.notes:
        say(note)
    _tell(summary, args)
    return 0 if summary.agrees else NOT_WHOLE


def _check(args: Namespace) -> None:
    if args.rows < 0:
        raise WrongUsageError("--rows must not be negative; 0 shows all")
    if args.workers is not None and args.workers < 1:
        raise WrongUsageError("--workers must be at least 1")
    if args.style is not None and ((args.out is None and args.shard is None) or args.format != "table"):
        raise WrongUsageError("--as msaccucmp writes into a directory; name it with --out, without --format")
    if args.format == "parquet" and args.out is None and args.shard is None:
        raise WrongUsageError(_NOT_PRINTED)


def _shows_agreeing(args: Namespace) -> bool:
    return bool(args.all or args.style is not None or args.format != "table")


def _options(args: Namespace) -> dict[str, Any]:
    """Return the options of the comparison, as `compare` takes them."""
    names = (
        *("rank", "model", "step", "names", "fusion", "mesh", "golden_mesh", "shards"),
        *("rtol", "atol", "limits", "workers"),
    )
    metrics = {*args.metrics, *(["kl"] if args.style is not None else [])}
    return {**{name: getattr(args, name) for name in names}, "limit": dict(args.limit), "metrics": metrics}


def _compared(comparison: Comparison, args: Namespace) -> Generator[Finding, None, None]:
    """Yield what is found, and show the progress meanwhile."""
    with Progress("comparing", "tensor") as progress:
        yield from comparison.findings(agreeing=_shows_agreeing(args), tell=progress.show)


@contextmanager
def _text_output(args: Namespace) -> Iterator[TextIO]:
    if args.out is None:
        yield sys.stdout
        return
    with (
        open_output(args.out, replace=args.force) as binary,
        io.TextIOWrapper(binary, "utf-8", "backslashreplace", "") as text,
    ):
        yield text


def _tell(summary: Summary, args: Namespace) -> None:
    """Print the answer where it is not among what was written."""
    if summary.agrees and is_quiet():
        return
    if args.out is not None:
        print(in_words(printable(summary.sentence), sys.stdout))
    elif args.format == "csv":
        say(summary.sentence)


def _write_text(
    args: Namespace, comparison: Comparison | Compared, findings: Iterator[Finding], file: TextIO
) -> None:
    if args.format == "json":
        write_json(findings, lambda: comparison.summary, file)
    elif args.format == "csv":
        write_csv(findings, escaping(file))
    else:
        _write_table(args, comparison, findings, file)


def _write_table(
    args: Namespace, comparison: Comparison | Compared, findings: Iterator[Finding], file: TextIO
) -> None:
    blocks = _worst(args, comparison) if _shows_worst(args) else _ordered(args, findings)
    first = next(blocks, None)  # behind it, everything has been compared
    summary = comparison.summary
    if first is None and summary.agrees and is_quiet():
        return
    _print_answer(summary, file)
    if first is None:
        return
    most = args.rows or sys.maxsize
    shown = {name: values[:most] for name, values in first.items()}
    table = Table(comparison_columns(shown), leads=[rank_column()], file=file)
    for block in chain([first], blocks):
        table.add({name: values[: most - table.rows] for name, values in block.items()})
        if table.rows == most:
            break
    print(file=file)
    file.writelines(table.lines())
    print(f"\n{in_words(_counts_text(args, summary, table), file)}", file=file)


def _shows_worst(args: Namespace) -> bool:
    """Whether only a few rows are shown, and those are the worst."""
    return args.order == "worst" and not args.all and 0 < args.rows <= _MOST_KEPT


def _worst(args: Namespace, comparison: Comparison | Compared) -> Iterator[dict[str, list[Any]]]:
    with Progress("comparing", "tensor") as progress:
        rows = comparison.worst(args.rows, tell=progress.show)
    yield from [it for it in [block_of(rows)] if it is not None]


def _ordered(args: Namespace, findings: Iterator[Finding]) -> Iterator[dict[str, list[Any]]]:
    rows = ((number, finding.row) for number, finding in enumerate(findings))
    return ordered_blocks(rows, worst_first=args.order == "worst")


def _print_answer(summary: Summary, file: TextIO) -> None:
    answer, *rest = map(printable, summary.sentences)
    style = Style.GOOD if summary.agrees else Style.STRONG
    print("\n".join(styled(line, style, file) for line in in_words(answer, file).split("\n")), file=file)
    for sentence in rest:
        print(in_words(sentence, file), file=file)


def _counts_text(args: Namespace, summary: Summary, table: Table) -> str:
    counts = [f"{count} {verdict}" for verdict, count in summary.counts.items() if count]
    text = f"{count_text(sum(summary.counts.values()), 'tensor')}: {', '.join(counts)}"
    agreeing = 0 if args.all else sum(summary.counts[it] for it in _AGREE)
    hidden = sum(summary.counts.values()) - agreeing - table.rows
    if agreeing:
        text += "; --all shows those that agree"
    if hidden:
        text += f"; {hidden} more are not shown (--rows 0 shows all)"
    if table.left_out:
        text += f"; too wide for the terminal: {', '.join(table.left_out)}"
    return text


def _write_msaccucmp(args: Namespace, findings: Iterator[Finding]) -> None:
    out: Path = args.out
    path = out / csv_name(datetime.now())  # noqa: DTZ005 - local time, as CANN's tool has it
    with (
        Outputs(out, replace=args.force),
        open_output(path, replace=args.force) as binary,
        io.TextIOWrapper(binary, "utf-8", "backslashreplace", "") as text,
    ):
        write_msaccucmp(findings, text)
