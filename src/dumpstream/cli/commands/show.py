"""Show what is in a dump file.

Prints the operator, and for each tensor its type, format and shape, its statistics, a histogram of its finite
values, and the first and last values. Of an overflow record, prints what it says; of an exception dump, what
each segment is. Exits with 3 if the file is damaged or is not whole. If several files match the names, lists
them instead.

Examples:
  dumpstream show MatMulV2.a.1.2.1780159660546556
  dumpstream show run1 '*MatMulV2.a.*'                          a file of a capture, by name or pattern
  dumpstream show run1 '*MatMulV2*'                             which files match, if several do
  dumpstream show run1 '*MatMulV2.a.*' --json | jq '.tensors[] | .statistics.nan'
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

from dumpstream._errors import DumpstreamError
from dumpstream.analysis.description import describe
from dumpstream.analysis.preview import Histogram
from dumpstream.cli._arguments import add_members_arguments, add_names_argument, location
from dumpstream.cli._display import (
    count_text,
    in_words,
    number_text,
    operator_text,
    print_json,
    print_json_with_list,
    printable,
    size_text,
    summarise,
    time_text,
)
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.cli.screen.colour import style_of
from dumpstream.cli.screen.layout import Column
from dumpstream.cli.screen.table import Table
from dumpstream.reading.inputs import Input, find_inputs, refuse_missing
from dumpstream.reading.storedfile import not_stored_text

_NO_ARGUMENT = 2**32 - 1
_BLOCK = 1000
_MATCHES = (
    Column(name="verdict", least=8, at_least=8, importance=1, style=style_of),
    Column(name="bytes", text=size_text, numeric=True, at_least=8),
    Column(name="name", text=printable, least=44, ample=1000, folds=True, importance=2),
)
_ALWAYS = ("count", "max", "min", "mean", "std", "l2norm")
_IF_ANY = ("nan", "pos_inf", "neg_inf", "zero", "negative", "subnormal", "saturated")


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "path",
        type=location,
        metavar="PATH",
        help="a dump file (raw or compressed), or a capture (directory or URL)",
    )
    add_names_argument(parser)
    add_members_arguments(parser)
    add("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    refuse_missing(args.path)
    remote = not isinstance(args.path, Path)
    if not args.names and (remote or args.path.is_dir()):
        what = "a place in an object store" if remote else "a directory"
        raise WrongUsageError(f"{args.path} is {what}; name a file of a capture behind it")
    if args.names and not (remote or args.path.is_dir()):
        raise WrongUsageError(f"{args.path} is not a capture; leave the name out")
    inputs = find_inputs([args.path], args.rank, args.names, hosts=args.host)
    first = next(inputs)  # find_inputs refuses a name that no file has
    second = next(inputs, None)
    if second is not None and args.names != [first.name]:  # a name may be a pattern that others match, too
        _list(chain([first, second], inputs), as_json=args.json)
        return 0
    if first.not_stored is not None:
        raise DumpstreamError(f"{first.name} {not_stored_text(first.not_stored)}; see dumpstream stats")
    described = describe(first)
    if args.json:
        print_json(described)
    else:
        _print_file(described)
    problems = [described["problem"], *(tensor["problem"] for tensor in described["tensors"])]
    return NOT_WHOLE if any(problems) else 0


def _list(matches: Iterable[Input], *, as_json: bool) -> None:
    """Print which files match."""
    if as_json:
        rows = ({"name": it.name, "bytes": it.bytes, "verdict": it.verdict} for it in matches)
        print_json_with_list({"matches": []}, "matches", rows)
        return
    table, matches = Table(_MATCHES, grows=True), iter(matches)
    while block := [*islice(matches, _BLOCK)]:
        table.add(
            {
                "verdict": [it.verdict or "" for it in block],
                "bytes": [it.bytes for it in block],
                "name": [it.name for it in block],
            }
        )
        sys.stdout.writelines(table.lines())
    summarise(f"{count_text(table.rows, 'file')} match; name one of them to see it", good=True)


def _print_file(described: dict[str, Any]) -> None:
    print(in_words(printable(described["file"]), sys.stdout))
    for title, text in _about(described):
        print(in_words(f"  {title:<10} {printable(text)}", sys.stdout, indent=" " * 13))
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
    title += f", {size_text(tensor['size'])}" + ("" if tensor["start"] is not None else ", not dumped")
    print(in_words(title, sys.stdout, indent="  "))
    if tensor["problem"]:
        _print_indented(f"problem: {printable(tensor['problem'])}")
    statistics = tensor["statistics"] or {}
    for names in (_ALWAYS, [name for name in _IF_ANY if statistics.get(name)]):
        cells = [
            f"{name} {number_text(statistics[name])}" for name in names if statistics.get(name) is not None
        ]
        if cells:
            _print_indented("  ".join(cells))
    if tensor["histogram"]:
        _print_histogram(tensor["histogram"])
    if tensor["first"]:
        values = [number_text(value) for value in tensor["first"]]
        values += ["...", *map(number_text, tensor["last"])] if tensor["last"] else []
        _print_indented(" ".join(values))


def _print_indented(text: str) -> None:
    print(in_words(f"  {text}", sys.stdout, indent="  "))


def _print_histogram(found: dict[str, Any]) -> None:
    histogram = Histogram(**found)
    others = sum(histogram.counts)
    if histogram.zeros:
        share = 100 * histogram.zeros // (histogram.zeros + others)
        shown = "the others:" if others else "nothing else"
        print(f"  {count_text(histogram.zeros, 'zero')} ({share} %), {shown}")
        if not others:
            return
    bars = histogram.bars()
    try:
        bars.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        bars = histogram.bars(ascii_only=True)
    print(f"  {number_text(histogram.low)} |{bars}| {number_text(histogram.high)}")
