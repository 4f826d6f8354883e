"""Tensors written as files, with progress and a line for each file that has a problem."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dumpstream.analysis.conversion import ConversionOptions, convert
from dumpstream.analysis.tensorfiles import FileFormat
from dumpstream.archive.destination import refuse_inside
from dumpstream.cli._display import ProgressLine, count_text, say, size_text
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.outputs import Outputs
from dumpstream.system.location import as_location

if TYPE_CHECKING:
    from argparse import Namespace

    from dumpstream.analysis.conversion import Converted


def run(args: Namespace) -> int:
    if args.shape and not args.layout:
        raise WrongUsageError("--shape is the shape in a --layout; name one")
    inputs = list(find_inputs(map(as_location, args.names), args.rank))
    captures = {it.capture.path.parent if it.prefix else it.capture.path for it in inputs if it.capture}
    refuse_inside(args.out, captures)
    options = ConversionOptions(format=FileFormat(args.format), layout=args.layout, shape=args.shape or ())
    counts: Counter[str] = Counter()
    with Outputs(args.out, replace=args.force) as outputs, ProgressLine() as line:
        for converted in convert(inputs, outputs, options):
            _count(converted, counts, line)
            line.show(_summary(counts, len(inputs)))
    print(_summary(counts, len(inputs)))
    return NOT_WHOLE if counts["problems"] else 0


def _count(converted: Converted, counts: Counter[str], line: ProgressLine) -> None:
    counts["files"] += not converted.skipped
    counts["skipped"] += converted.skipped
    counts["tensors"] += converted.tensors
    counts["bytes"] += converted.bytes
    if converted.problem is not None:
        counts["problems"] += 1
        line.clear()
        say(f"{converted.input.label}: {converted.problem}")


def _summary(counts: Counter[str], inputs: int) -> str:
    text = f"converted {count_text(counts['tensors'], 'tensor')}, {size_text(counts['bytes'])}, "
    text += f"of {counts['files']} of {count_text(inputs - counts['skipped'], 'file')}"
    if counts["skipped"]:
        text += f"; skipped {counts['skipped']} that are not dump files"
    if counts["problems"]:
        text += f"; {count_text(counts['problems'], 'file')} with problems"
    return text
