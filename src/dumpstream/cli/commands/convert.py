"""Write the tensors of dump files as npy, bin or csv.

Takes captures, dump files (raw or .zst) and directories of them, and writes a file for each tensor, named for
the dump file: NAME.input.0.npy, NAME.output.0.npy, and so for buffers and spaces. bfloat16 and the narrow
floats become float32, int4 int8, uint1 bits, complex32 complex64; bytes behind the shape are left out. A
damaged tensor is left out and the others are written. Exits with 3 if a file is damaged or is not whole.
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from dumpstream.cli._arguments import add_inputs_argument, add_rank_argument
from dumpstream.cli._display import ProgressLine, count_text, printable, size_text
from dumpstream.cli._exit import NOT_WHOLE

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dumpstream.analysis.conversion import Converted

_EPILOG = """\
examples:
  dumpstream convert run1 --out npy                                        a capture
  dumpstream convert s3://bucket/run1 --out npy                            one in an object store
  dumpstream convert MatMulV2.a.1.2.1780159660546556 --out npy             a file
  dumpstream convert dumps --out npy --layout NCHW                         a directory, blocked formats undone
  dumpstream convert x.zst --out npy --layout ND --shape 77,1024           with the shape it had on the host
"""

_FORMATS = ("npy", "bin", "csv")
_LAYOUTS = ("ND", "NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC")


def _shape(text: str) -> tuple[int, ...]:
    dimensions = text.replace("x", ",").split(",")
    if not all(dimension.isdecimal() for dimension in dimensions):
        raise ArgumentTypeError(f"{text!r} is no shape; write for example 1,16,224,224")
    return tuple(int(dimension) for dimension in dimensions)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.epilog = _EPILOG
    add_inputs_argument(parser)
    add_rank_argument(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", required=True, help="where the files go")
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default=_FORMATS[0],
        help="npy; bin: its elements and nothing else; csv: a line for each run of the last axis (npy)",
    )
    parser.add_argument(
        "--layout",
        type=str.upper,
        choices=_LAYOUTS,
        metavar="FORMAT",
        help=f"rearrange the tensors: {', '.join(_LAYOUTS)} (as they lie)",
    )
    parser.add_argument(
        "--shape",
        type=_shape,
        metavar="DIM,...",
        help="with --layout, the shape the tensors had before the device padded them (what the file says)",
    )
    parser.add_argument("--force", action="store_true", help="replace files that are already there")


def run(args: Namespace) -> int:
    """Write the tensors."""
    # --help need not wait for these.
    from dumpstream.analysis.conversion import ConversionOptions, convert  # noqa: PLC0415 - above
    from dumpstream.analysis.tensorfiles import FileFormat  # noqa: PLC0415 - above
    from dumpstream.archive.destination import refuse_inside  # noqa: PLC0415 - above
    from dumpstream.reading.inputs import find_inputs  # noqa: PLC0415 - above
    from dumpstream.reading.outputs import Outputs  # noqa: PLC0415 - above
    from dumpstream.system.location import as_location  # noqa: PLC0415 - above

    if args.shape and not args.layout:
        print("dumpstream: --shape is the shape in a --layout; name one", file=sys.stderr)
        return 2
    inputs = list(find_inputs(map(as_location, args.names), args.rank))
    captures = {it.capture.path.parent if it.prefix else it.capture.path for it in inputs if it.capture}
    refuse_inside(args.out, captures)
    options = ConversionOptions(format=FileFormat(args.format), layout=args.layout, shape=args.shape or ())
    counts: Counter[str] = Counter()
    line = ProgressLine()
    with Outputs(args.out, replace=args.force) as outputs:
        for converted in convert(inputs, outputs, options):
            _count(converted, counts, line)
            line.show(_summary(counts, len(inputs)))
    line.clear()
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
        print(f"dumpstream: {printable(f'{converted.input.label}: {converted.problem}')}", file=sys.stderr)


def _summary(counts: Counter[str], inputs: int) -> str:
    text = f"converted {count_text(counts['tensors'], 'tensor')}, {size_text(counts['bytes'])}, "
    text += f"of {counts['files']} of {count_text(inputs - counts['skipped'], 'file')}"
    if counts["skipped"]:
        text += f"; skipped {counts['skipped']} that are no dump files"
    if counts["problems"]:
        text += f"; {count_text(counts['problems'], 'file')} with problems"
    return text
