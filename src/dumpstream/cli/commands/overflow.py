"""List the operators that overflowed.

Takes a run with dump_debug on: a capture, or a directory that CANN itself wrote. Prints each operator that
overflowed, in the order of time, what the device recorded about it, and its inputs and outputs with their
statistics. Records without tensors, and tensors without a record, are listed, too. Exits with 3 if a file
cannot be read, or not completely.

Examples:
  dumpstream overflow run1
  dumpstream overflow run1 --json | jq -r '.overflows[0].op_name'
"""

import sys
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dumpstream.analysis.measurement import measure
from dumpstream.analysis.modes import need_mode
from dumpstream.analysis.overflow import BadRecord, Overflow, OverflowRecord, match_overflows, read_records
from dumpstream.cli._arguments import add_members_arguments, add_run_argument
from dumpstream.cli._display import (
    attributes,
    count_text,
    operator_text,
    print_json,
    print_text,
    printable,
    say,
    time_text,
)
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.cli.screen.amounts import bytes_to_measure
from dumpstream.cli.screen.progress import Progress
from dumpstream.cli.screen.table import Table
from dumpstream.cli.screen.tensors import tensor_columns
from dumpstream.config import Mode
from dumpstream.reading.inputs import find_inputs
from dumpstream.statistics.table import TensorRow, json_object
from dumpstream.statistics.tensors import TensorRows

_SHOWN = ("io", "index", "dtype", "shape", "count", "nan", "pos_inf", "neg_inf", "finite_max", "finite_min")
_PLACES = ("host", "rank", "model", "model_id", "iteration", "device", "task", "stream")
_ORIGIN = ("op_type", "op_name", *_PLACES, "timestamp")


def add_arguments(parser: ArgumentParser) -> None:
    add_run_argument(parser)
    add_members_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    inputs = list(find_inputs([args.path], args.rank, hosts=args.host))
    need_mode(args.path, inputs, Mode.OVERFLOW)
    problems: list[str] = []
    records: list[OverflowRecord] = []
    for record in read_records(inputs):
        if isinstance(record, BadRecord):
            problems.append(f"{record.file}: {record.problem}")
        else:
            records.append(record)
    overflows = match_overflows(records, _rows(args, problems))
    for problem in dict.fromkeys(problems):
        say(problem)
    if args.json:
        print_json({"overflows": [_as_json(it) for it in overflows], "problems": problems})
    else:
        for number, overflow in enumerate(overflows, 1):
            _print_overflow(number, overflow)
        print(_summary(overflows))
    return NOT_WHOLE if problems else 0


def _rows(args: Namespace, problems: list[str]) -> dict[str, list[TensorRow]]:
    """Return the statistics of the run by process; add why files could not be read to *problems*."""
    rows: dict[str, list[TensorRow]] = defaultdict(list)
    size = 0
    with Progress(
        "measuring", count_all=lambda: (0, bytes_to_measure([args.path], args.rank, args.host))
    ) as progress:
        for files, measured in enumerate(measure([args.path], ranks=args.rank, hosts=args.host), 1):
            size += measured.bytes
            problems += measured.problems
            progress.show(files, size)
            rows[measured.process] += measured.rows
    return rows


def _summary(overflows: Sequence[Overflow]) -> str:
    without_files = sum(not overflow.rows for overflow in overflows)
    without_record = sum(overflow.record is None for overflow in overflows)
    if overflows and without_record == len(overflows):
        dumped = count_text(len(overflows), "operator")
        return f"no record of an overflow; {dumped} overflowed if the run had dump_debug on"
    text = count_text(len(overflows), "overflow") if overflows else "no overflow"
    if without_files:
        text += f"; {count_text(without_files, 'record')} without files"
    if without_record:
        text += f"; {count_text(without_record, 'operator')} without a record"
    return text


def _print_overflow(number: int, overflow: Overflow) -> None:
    origin = _origin(overflow)
    name = origin["op_name"] or "an operator without files"
    title = operator_text(name, origin["op_type"], {key: origin[key] for key in _PLACES})
    print_text(f"{number}. {printable(title)}", indent=3)
    print(f"   dumped {time_text(overflow.timestamp)}")
    if overflow.record is None:
        print("   no record")
    else:
        _print_record(overflow.record)
    if overflow.rows:
        table = Table(tensor_columns(_SHOWN), indent=3)
        table.add(TensorRows(overflow.rows).columns(_SHOWN))
        sys.stdout.writelines(table.lines())


def _print_record(record: OverflowRecord) -> None:
    print_text(f"   record {printable(record.file)}", indent=10)
    for unit, numbers in record.units.items():
        said = ", ".join(f"{name} {value}" for name, value in numbers.items())
        print_text(f"   {unit}: {said}", indent=6)
    if not record.units:
        print("   it names no task")


def _origin(overflow: Overflow) -> dict[str, Any]:
    """Return what is known about which operator overflowed."""
    if overflow.rows:
        return attributes(overflow.rows[0], *_ORIGIN) | {"timestamp": overflow.timestamp}
    record = overflow.record
    assert record is not None
    named = attributes(record.name, "model", "model_id", "iteration", "device", "timestamp")
    return dict.fromkeys(_ORIGIN) | named | attributes(record, "host", "rank", "task", "stream")


def _as_json(overflow: Overflow) -> dict[str, Any]:
    record = overflow.record
    return {
        **_origin(overflow),
        "record": None if record is None else attributes(record, "file", "units", "decoded"),
        "tensors": [json_object(row) for row in overflow.rows],
    }
