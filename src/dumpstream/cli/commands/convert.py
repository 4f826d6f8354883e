"""Write the tensors of dump files as npy, bin or csv.

Takes captures, dump files (raw or compressed) and directories of them. Writes a file for each tensor, named
for the dump file: NAME.input.0.npy, NAME.output.0.npy, and so for buffers and spaces. bfloat16 and the
narrow floats become float32, int4 becomes int8, uint1 becomes bits and complex32 complex64. Bytes behind the
shape are left out. A damaged tensor is left out and the others are written. Exits with 3 if a file is damaged
or not whole, or if a capture may have further files, which its journal cannot tell.

Examples:
  dumpstream convert run1 --out npy                                        a capture
  dumpstream convert s3://bucket/run1 --out npy                            one in an object store
  dumpstream convert MatMulV2.a.1.2.1780159660546556 --out npy             a file
  dumpstream convert dumps --out npy --layout NCHW                         a directory, blocked formats undone
  dumpstream convert x.dsz --out npy --layout ND --shape 77,1024           with the shape it had on the host
  dumpstream convert run1 --out npy --names cann                           for scripts that expect msaccucmp's
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter

from dumpstream.analysis.conversion import ConversionOptions, Converted, convert
from dumpstream.analysis.tensorfiles import FileFormat
from dumpstream.analysis.tensornames import Naming
from dumpstream.archive.destination import refuse_inside
from dumpstream.cli._arguments import add_inputs_argument, add_members_arguments, local_path, locations
from dumpstream.cli._display import count_text, not_stored_text, say, size_text, summarise
from dumpstream.cli._exit import NOT_WHOLE, WrongUsageError
from dumpstream.cli.screen.progress import Progress
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.outputs import Outputs
from dumpstream.reading.problem import Problem

_FORMATS = ("npy", "bin", "csv")
_NAMES = ("dumpstream", "cann")
_LAYOUTS = ("ND", "NCHW", "NHWC", "HWCN", "CHWN", "NCDHW", "NDHWC", "DHWCN", "DHWNC")


def _shape(text: str) -> tuple[int, ...]:
    dimensions = text.replace("x", ",").split(",")
    if not all(dimension.isdecimal() for dimension in dimensions):
        raise ArgumentTypeError(f"{text!r} is not a shape; write for example 1,16,224,224")
    return tuple(int(dimension) for dimension in dimensions)


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_inputs_argument(parser)
    add_members_arguments(parser)
    add("--out", type=local_path, metavar="DIR", required=True, help="where the files go")
    add(
        "--format",
        choices=_FORMATS,
        default=_FORMATS[0],
        help="npy; bin: only the elements; csv: a line for each run of the last axis (default: npy)",
    )
    add(
        "--layout",
        type=str.upper,
        choices=_LAYOUTS,
        metavar="FORMAT",
        help=f"rearrange the tensors: {', '.join(_LAYOUTS)} (default: leave them as they are)",
    )
    add(
        "--shape",
        type=_shape,
        metavar="DIM,...",
        help="with --layout, the shape without padding (default: what the file says)",
    )
    add(
        "--names",
        dest="naming",
        choices=_NAMES,
        default=_NAMES[0],
        help="cann: as CANN's own tool, msaccucmp, names the files (default: dumpstream)",
    )
    add("--force", action="store_true", help="replace files that are already there")


def run(args: Namespace) -> int:
    if args.shape and not args.layout:
        raise WrongUsageError("--shape is the shape in a --layout; name one")
    lacking: list[Problem] = []
    found = list(find_inputs(locations(args.names), args.rank, hosts=args.host, lacking=lacking.append))
    inputs = [it for it in found if it.not_stored is None]
    captures = {it.capture.path.parent if it.prefix else it.capture.path for it in inputs if it.capture}
    refuse_inside(args.out, captures)
    options = ConversionOptions(
        format=FileFormat(args.format),
        layout=args.layout,
        shape=args.shape or (),
        names=Naming(args.naming),
    )
    counts: Counter[str] = Counter()
    with Outputs(args.out, replace=args.force) as outputs, Progress("converting") as progress:
        progress.expect(len(inputs), sum(it.bytes for it in inputs))
        for number, converted in enumerate(convert(inputs, outputs, options), 1):
            _count(converted, counts)
            progress.show(number, counts["read"])
    for problem in lacking:
        say(problem.text)
    counts["not_stored"] = len(found) - len(inputs)
    good = not counts["problems"] and not lacking
    summarise(_summary(counts, len(inputs)), good=good)
    return 0 if good else NOT_WHOLE


def _count(converted: Converted, counts: Counter[str]) -> None:
    counts["files"] += not converted.skipped
    counts["skipped"] += converted.skipped
    counts["tensors"] += converted.tensors
    counts["bytes"] += converted.bytes
    counts["read"] += converted.input.bytes
    if converted.problem is not None:
        counts["problems"] += 1
        say(f"{converted.input.label}: {converted.problem}")


def _summary(counts: Counter[str], inputs: int) -> str:
    text = f"converted {count_text(counts['tensors'], 'tensor')}, {size_text(counts['bytes'])}, "
    text += f"of {counts['files']} of {count_text(inputs - counts['skipped'], 'file')}"
    if counts["skipped"]:
        text += f"; skipped {counts['skipped']} that are not dump files"
    if counts["not_stored"]:
        text += f"; {not_stored_text(counts['not_stored'])}"
    if counts["problems"]:
        text += f"; {count_text(counts['problems'], 'file')} with problems"
    return text
