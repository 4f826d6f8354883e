"""Conversion: the tensors of dump files, each written to a file of its own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from dumpstream._errors import DumpFormatError, PartError
from dumpstream.analysis.tensorfiles import FileFormat, write_array, write_elements
from dumpstream.analysis.tensornames import NAMES, RESERVED, Naming, is_raw, suffix_of
from dumpstream.format.dtypes import element_shape
from dumpstream.format.header import IO, Tensor
from dumpstream.format.layouts import PLAIN, to_layout
from dumpstream.format.opname import parse_name
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.inputs import Input
from dumpstream.reading.outputs import Drafts, OutputNameError, Outputs
from dumpstream.system.batches import run_batches
from dumpstream.system.publishing import write_all
from dumpstream.system.targets import Target, Targets

_BLOCK_BITS = 256  #: of the channels of a block


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionOptions:
    """How to write the tensors."""

    format: FileFormat = FileFormat.NPY
    layout: str | None = None  #: the format to rearrange them to; None leaves them as they are
    shape: tuple[int, ...] = ()  #: their shape in that layout, if the header has none or a wrong one
    names: Naming = Naming.DUMPSTREAM  #: whose names the files have
    workers: int | None = None  #: threads; by default as many as are useful


class Converted(NamedTuple):
    """The result for an input."""

    input: Input
    tensors: int = 0  #: how many were written
    bytes: int = 0  #: how many bytes that took
    skipped: bool = False  #: whether it is not a dump file, and was not named as one
    problem: str | None = None  #: why not all of it was written, or cannot be trusted


def convert(inputs: Sequence[Input], outputs: Outputs, options: ConversionOptions) -> Iterator[Converted]:
    """Write the tensors of *inputs* to *outputs*, several files at once; yield a result for each, in order.

    The files of an input appear after all of it was read. A tensor that is damaged or cannot be rearranged is
    left out. A tensor that has no axes to rearrange is written as it is.

    Raises:
        DestinationError: a file cannot be written, or exists and may not be replaced.
        StoreError: an object store refuses, or does not answer.
    """
    targets = Targets(lambda: (item.name for item in inputs), reserved=RESERVED[options.names])
    return run_batches(
        lambda batch: [_convert(item, target, outputs, options) for item, target in batch],
        ((item, targets.choose(item.name, _source(item))) for item in inputs),
        bytes_of=lambda chosen: chosen[0].bytes,
        workers=options.workers,
        is_remote=lambda chosen: chosen[0].remote,
    )


def _convert(item: Input, target: Target, outputs: Outputs, options: ConversionOptions) -> Converted:
    if item.name.endswith(TEXT_SUFFIX) and not item.named:
        return Converted(item, skipped=True)
    try:
        base, name = item.name.rpartition("/")[2], NAMES[options.names]
        with item.open() as dump, outputs.drafts(target, base, name=name) as drafts:
            return _write(item, dump, drafts, options)
    except DumpFormatError as exc:
        if not item.named and item.whole and parse_name(item.name).scheme is None:
            return Converted(item, skipped=True)
        problem = exc.detail
    except (PartError, OutputNameError) as exc:
        problem = str(exc)
    except OSError as exc:
        problem = f"cannot be read: {exc.strerror}"
    return Converted(item, problem=_with_verdict(item, problem))


def _source(item: Input) -> str:
    return item.label if item.capture is None else str(item.capture.path)


def _write(item: Input, dump: DumpFile, drafts: Drafts, options: ConversionOptions) -> Converted:
    tensors = size = 0
    problems = []
    for tensor in dump.tensors:
        if tensor.stored:
            try:
                shape, writer = _prepared(dump, tensor, options)
                suffix = suffix_of(
                    options.names, tensor, options.format, shape, arranged=options.layout is not None
                )
                size += drafts.write(suffix, writer)
            except DumpFormatError as exc:
                problems.append(exc.detail)
            except ValueError as exc:
                problems.append(f"{tensor.label}: {exc}")
            else:
                tensors += 1
    try:
        dump.read_to_end()
    except DumpFormatError as exc:
        problems.append(exc.detail)
    drafts.publish()
    problem = None
    if problems:
        problem = problems[0] if len(problems) == 1 else f"{problems[0]}, and {len(problems) - 1} more"
    return Converted(item, tensors, size, problem=_with_verdict(item, problem))


def _prepared(
    dump: DumpFile, tensor: Tensor, options: ConversionOptions
) -> tuple[tuple[int, ...], Callable[[int], int]]:
    """Return the shape of the array to write for *tensor*, and what writes it to a descriptor.

    A compressed tensor that is not rearranged does not have to fit into memory.
    """
    if is_raw(options.names, tensor):
        return (tensor.size,), lambda fd: sum(write_all(fd, block) for block in dump.blocks(tensor))
    shape = element_shape(tensor.dtype, tensor.shape, tensor.size)
    name, layout = tensor.format.name, options.layout
    without_axes = name == "ND" or (name in PLAIN and len(name) != len(shape))
    if layout is None or without_axes or tensor.io in {IO.BUFFER, IO.SPACE}:
        if dump.copies:
            return shape, lambda fd: write_elements(
                fd, dump.elements(tensor), tensor.dtype.numpy, shape, options.format
            )
        return shape, lambda fd: write_array(fd, dump.array(tensor), options.format)
    array = _arranged(dump.array(tensor), tensor, layout, options)
    return array.shape, lambda fd: write_array(fd, array, options.format)


def _arranged(array: NDArray[Any], tensor: Tensor, layout: str, options: ConversionOptions) -> NDArray[Any]:
    return to_layout(
        array,
        tensor.format.name,
        layout,
        options.shape or tensor.original_shape,
        original_format=layout if options.shape else None,
        groups=max(1, tensor.sub_format),
        c0=_BLOCK_BITS // tensor.dtype.bits,
    )


def _with_verdict(item: Input, problem: str | None) -> str | None:
    if item.whole:
        return problem
    return f"is not whole ({item.verdict})" + (f"; {problem}" if problem else "")
