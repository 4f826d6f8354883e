"""Conversion: the tensors of dump files, each written to a file of its own."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray
from typing_extensions import Buffer

from dumpstream._errors import DumpFormatError, PartError
from dumpstream.analysis.npyfiles import Written, write_npy_files
from dumpstream.analysis.tensorfiles import FileFormat, array_pieces, element_pieces
from dumpstream.analysis.tensornames import NAMES, RESERVED, Naming, is_raw, suffix_of
from dumpstream.format.dtypes import element_shape
from dumpstream.format.header import IO, Tensor
from dumpstream.format.layouts import PLAIN, to_layout
from dumpstream.format.opname import parse_name
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.reading.content import PlainContent
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.inputs import Input
from dumpstream.reading.outputs import Drafts, OutputNameError, Outputs
from dumpstream.reading.smallfiles import read_small_files
from dumpstream.system.batches import run_batches
from dumpstream.system.publishing import write_all
from dumpstream.system.targets import Target, Targets

_Add: TypeAlias = Callable[[Target, list[tuple[str, Buffer]]], None]

_BLOCK_BITS = 256  #: of the channels of a block
_BATCH_FILES = 128
# The tensors of a file with fewer bytes are kept in memory, so that they are written with those of others,
_SMALL_BYTES = 256 << 10
# and so many of them.
_WAITING_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionOptions:
    """How to write the tensors."""

    format: FileFormat = FileFormat.NPY
    layout: str | None = None  #: the format to rearrange them to; None leaves them as they are
    shape: tuple[int, ...] = ()  #: their shape in that layout, if the header has none or a wrong one
    names: Naming = Naming.DUMPSTREAM  #: whose names the files have
    workers: int | None = None  #: threads; by default as many as are useful

    @property
    def as_stored(self) -> bool:
        """Whether the tensors are written as they lie in the dump files."""
        return (self.format, self.layout, self.names) == (FileFormat.NPY, None, Naming.DUMPSTREAM)


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
        lambda batch: _convert_batch(batch, outputs, options),
        ((item, targets.choose(item.name, _source(item))) for item in inputs),
        bytes_of=lambda chosen: chosen[0].bytes,
        most_items=_BATCH_FILES,
        workers=options.workers,
        is_remote=lambda chosen: chosen[0].remote,
    )


def _convert_batch(
    batch: Sequence[tuple[Input, Target]], outputs: Outputs, options: ConversionOptions
) -> list[Converted]:
    together = _Together(outputs)
    contents = read_small_files([(item.capture, item.file) for item, _ in batch])
    written: list[Written | None] = [None] * len(batch)
    if options.as_stored:
        written = write_npy_files(batch, contents, outputs)
    results = [
        _Conversion(item, target, outputs, options).run(content, partial(together.add, number))
        if done is None
        else _converted(item, done)
        for number, ((item, target), content, done) in enumerate(zip(batch, contents, written, strict=True))
    ]
    together.write()
    for number, problem in together.problems.items():
        item = results[number].input
        results[number] = Converted(item, problem=_with_verdict(item, str(problem)))
    return results


def _converted(item: Input, written: Written) -> Converted:
    if written.problem is not None:
        return Converted(item, problem=str(written.problem))
    return Converted(item, written.tensors, written.bytes)


class _Together:
    """Small files that are written together, which takes a fraction of the time."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._waiting: defaultdict[Target, list[tuple[int, str, Buffer]]] = defaultdict(list)
        self._bytes = 0
        self.problems: dict[int, OutputNameError] = {}  #: the first one of each input, by its number

    def add(self, number: int, directory: Target, files: Iterable[tuple[str, Buffer]]) -> None:
        """Write *files*, names and contents, into a directory, now or later."""
        for name, content in files:
            self._waiting[directory].append((number, name, content))
            self._bytes += memoryview(content).nbytes
        if self._bytes > _WAITING_BYTES:
            self.write()

    def write(self) -> None:
        """Write all that wait."""
        for directory, files in self._waiting.items():
            numbers, names, contents = zip(*files, strict=True)
            for number, problem in zip(numbers, self._outputs.write(directory, names, contents), strict=True):
                if problem is not None:
                    self.problems.setdefault(number, problem)
        self._waiting.clear()
        self._bytes = 0


class _Conversion:
    """The conversion of one input."""

    def __init__(self, item: Input, target: Target, outputs: Outputs, options: ConversionOptions) -> None:
        self._item, self._target, self._outputs, self._options = item, target, outputs, options
        self._base, self._name = item.name.rpartition("/")[2], NAMES[options.names]

    def run(self, content: Buffer | None, add: _Add) -> Converted:
        """Convert it; if it is small, *add* the files to those of others. Its bytes may be known."""
        item = self._item
        if item.name.endswith(TEXT_SUFFIX) and not item.named:
            return Converted(item, skipped=True)
        try:
            with self._open(content) as dump:
                if sum(tensor.size for tensor in dump.tensors) <= _SMALL_BYTES:
                    return self._write_small(dump, add)
                with self._drafts() as drafts:
                    converted = _write(item, dump, partial(_write_draft, drafts), self._options)
                    drafts.publish()
                    return converted
        except DumpFormatError as exc:
            if not item.named and item.whole and parse_name(item.name).scheme is None:
                return Converted(item, skipped=True)
            problem = exc.detail
        except (PartError, OutputNameError) as exc:
            problem = str(exc)
        except OSError as exc:
            problem = f"cannot be read: {exc.strerror}"
        return Converted(item, problem=_with_verdict(item, problem))

    def _open(self, content: Buffer | None) -> DumpFile:
        if content is None or self._item.file is None:
            return self._item.open()
        return DumpFile(PlainContent(memoryview(content)), self._item.file.name)

    def _drafts(self) -> AbstractContextManager[Drafts]:
        return self._outputs.drafts(self._target, self._base, name=self._name)

    def _write_small(self, dump: DumpFile, add: _Add) -> Converted:
        found: list[tuple[str, Buffer]] = []  # suffixes and contents
        converted = _write(self._item, dump, partial(_keep, found), self._options)
        *directory, stem = self._target
        files = [(self._name(stem, self._base, suffix), content) for suffix, content in found]
        if [name for name, _ in files] == [f"{self._base}{suffix}" for suffix, _ in found]:
            add(tuple(directory), files)
        else:  # the original names have to be noted
            with self._drafts() as drafts:
                for suffix, content in found:
                    _write_draft(drafts, suffix, [content])
                drafts.publish()
        return converted


def _write_draft(drafts: Drafts, suffix: str, pieces: Iterable[Buffer]) -> int:
    return drafts.write(suffix, lambda fd: sum(write_all(fd, piece) for piece in pieces))


def _keep(found: list[tuple[str, Buffer]], suffix: str, pieces: Iterable[Buffer]) -> int:
    content = bytearray()
    for piece in pieces:  # each is valid until the next
        content += piece
    found.append((suffix, content))
    return len(content)


def _source(item: Input) -> str:
    return item.label if item.capture is None else str(item.capture.path)


def _write(
    item: Input,
    dump: DumpFile,
    write: Callable[[str, Iterator[Buffer]], int],
    options: ConversionOptions,
) -> Converted:
    """Let *write* make a file of each tensor: its name ends with a suffix, and it has these bytes."""
    tensors = size = 0
    problems = []
    for tensor in dump.tensors:
        if tensor.stored:
            try:
                shape, pieces = _prepared(dump, tensor, options)
                suffix = suffix_of(
                    options.names, tensor, options.format, shape, arranged=options.layout is not None
                )
                size += write(suffix, pieces)
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
    problem = None
    if problems:
        problem = problems[0] if len(problems) == 1 else f"{problems[0]}, and {len(problems) - 1} more"
    return Converted(item, tensors, size, problem=_with_verdict(item, problem))


def _prepared(
    dump: DumpFile, tensor: Tensor, options: ConversionOptions
) -> tuple[tuple[int, ...], Iterator[Buffer]]:
    """Return the shape of the array to write for *tensor*, and the bytes of its file.

    A compressed tensor that is not rearranged does not have to fit into memory.
    """
    if is_raw(options.names, tensor):
        return (tensor.size,), dump.blocks(tensor)
    shape = element_shape(tensor.dtype, tensor.shape, tensor.size)
    name, layout = tensor.format.name, options.layout
    without_axes = name == "ND" or (name in PLAIN and len(name) != len(shape))
    if layout is None or without_axes or tensor.io in {IO.BUFFER, IO.SPACE}:
        if dump.copies:
            blocks = dump.elements(tensor)
            return shape, element_pieces(blocks, tensor.dtype.numpy, shape, options.format)
        return shape, array_pieces(dump.array(tensor), options.format)
    array = _arranged(dump.array(tensor), tensor, layout, options)
    return array.shape, array_pieces(array, options.format)


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
