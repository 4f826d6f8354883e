"""Show what is in a dump file.

Prints the operator, and for each tensor its type, format and shape, its statistics, a histogram of its finite
values, and the first and last values. Of an overflow record, prints what it says; of an exception dump, what
each segment is. Exits with 3 if the file is damaged or is not whole.

Examples:
  dumpstream show MatMulV2.a.1.2.1780159660546556
  dumpstream show run1 '*MatMulV2.a.*'                          a file of a capture, by name or pattern
  dumpstream show run1 '*MatMulV2.a.*' --json | jq '.tensors[] | .statistics.nan'
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dumpstream._errors import DumpstreamError
from dumpstream.analysis.description import describe
from dumpstream.analysis.preview import Histogram
from dumpstream.cli._arguments import add_rank_argument, location
from dumpstream.cli._display import (
    count_text,
    number_text,
    operator_text,
    print_json,
    printable,
    size_text,
    time_text,
)
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.reading.inputs import Input, find_inputs

_SHOWN_MATCHES = 3
_NO_ARGUMENT = 2**32 - 1
_ALWAYS = ("count", "max", "min", "mean", "std", "l2norm")
_IF_ANY = ("nan", "pos_inf", "neg_inf", "zero", "negative", "subnormal", "saturated")


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "path",
        type=location,
        metavar="PATH",
        help="a dump file (raw or .zst), or a capture (directory or URL)",
    )
    add(
        "name",
        nargs="?",
        metavar="NAME",
        help="of a capture: a name as `ls` shows it, or a pattern with * ? [ ] that one name matches",
    )
    add_rank_argument(parser)
    add("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    remote = not isinstance(args.path, Path)
    if args.name is None and (remote or args.path.is_dir()):
        what = "a place in an object store" if remote else "a directory"
        raise WrongUsageError(f"{args.path} is {what}; name a file of a capture behind it")
    if args.name is not None and not (remote or args.path.is_dir()):
        raise WrongUsageError(f"{args.path} is not a capture; leave the name out")
    described = describe(_select(find_inputs([args.path], args.rank, args.name), args.name))
    if args.json:
        print_json(described)
    else:
        _print_file(described)
    problems = [described["problem"], *(tensor["problem"] for tensor in described["tensors"])]
    return NOT_WHOLE if any(problems) else 0


def _select(inputs: Iterable[Input], name: str | None) -> Input:
    """Return the one of *inputs* that is called *name*, or the only one."""
    some: list[Input] = []
    count = 0
    for count, item in enumerate(inputs, 1):
        if item.name == name:
            return item
        if count <= _SHOWN_MATCHES:
            some.append(item)
    if count == 1:
        return some[0]
    if not some:
        raise DumpstreamError(f"no file matches {name!r}; `dumpstream ls` shows the names")
    such = ", ".join(item.name for item in some)
    raise DumpstreamError(f"{count} files match {name!r}, such as {such}; write more of the name")


def _print_file(described: dict[str, Any]) -> None:
    print(printable(described["file"]))
    for title, text in _about(described):
        print(f"  {title:<10} {printable(text)}")
    for tensor in described["tensors"]:
        print()
        _print_tensor(tensor)


def _about(described: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines about the file, each with a title."""
    origin = {
        name: described[name] for name in ("model", "model_id", "iteration", "device", "task", "stream")
    }
    operator = operator_text(described["op_name"] or "unknown", described["op_type"], origin)
    lines = [("operator", operator)]
    if described["time"]:
        lines.append(("dumped", time_text(described["time"])))
    contents = f"{size_text(described['bytes'])}, {count_text(len(described['tensors']), 'tensor')}"
    lines.append(("contents", f"{contents}, version {described['version'] or 'unknown'}"))
    if described["verdict"]:
        lines.append(("verdict", described["verdict"]))
    if "exception" in described:
        lines.append(("exception", _exception_text(described["exception"])))
    lines += [("attribute", f"{it['name']}: {it['value']}") for it in described["attributes"]]
    lines += [("message", line) for line in described["dfx_message"].splitlines()]
    if described["problem"]:
        lines.append(("problem", described["problem"]))
    records = (described.get("overflow") or {}).items()
    return lines + [("overflow", f"{name}: {_record_text(record)}") for name, record in records]


def _exception_text(exception: dict[str, Any]) -> str:
    parts = [f"{exception['scene']} dump" if exception["scene"] else "dump"]
    if exception["core_id"] is not None:
        parts.append(f"core type {exception['core_type']}, core {exception['core_id']}")
    segments = [f"{count} {kind}" for kind, count in exception["segments"].items()]
    return f"{', '.join(parts)}: {', '.join(segments)}"


def _record_text(record: Any) -> str:
    if isinstance(record, dict):
        return ", ".join(f"{key} {value}" for key, value in record.items())
    return str(record)


def _print_tensor(tensor: dict[str, Any]) -> None:
    title = f"{tensor['io']} {tensor['index']}: {tensor['dtype']} {list(tensor['shape'])}, {tensor['format']}"
    if tensor["original_shape"] and tensor["original_shape"] != tensor["shape"]:
        title += f", originally {list(tensor['original_shape'])}"
    if tensor["kind"]:
        title += f", {tensor['kind']}"
        title += "" if tensor["arg_index"] == _NO_ARGUMENT else f", argument {tensor['arg_index']}"
    print(f"{title}, {size_text(tensor['size'])}" + ("" if tensor["start"] is not None else ", not dumped"))
    if tensor["problem"]:
        print(f"  problem: {printable(tensor['problem'])}")
    statistics = tensor["statistics"] or {}
    for names in (_ALWAYS, [name for name in _IF_ANY if statistics.get(name)]):
        cells = [
            f"{name} {number_text(statistics[name])}" for name in names if statistics.get(name) is not None
        ]
        if cells:
            print(f"  {'  '.join(cells)}")
    if tensor["histogram"]:
        _print_histogram(tensor["histogram"])
    if tensor["first"]:
        values = [number_text(value) for value in tensor["first"]]
        values += ["...", *map(number_text, tensor["last"])] if tensor["last"] else []
        print(f"  {' '.join(values)}")


def _print_histogram(found: dict[str, Any]) -> None:
    histogram = Histogram(**found)
    bars = histogram.bars()
    try:
        bars.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        bars = histogram.bars(ascii_only=True)
    print(f"  {number_text(histogram.low)} |{bars}| {number_text(histogram.high)}")
