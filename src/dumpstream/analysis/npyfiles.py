"""NPY files: the tensors of small plain dump files, which native code finds and writes many at a time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from typing_extensions import Buffer

from dumpstream._native import new_npy_files
from dumpstream.analysis.tensorfiles import FileFormat, plain_dtype
from dumpstream.format.dtypes import DTYPES, DType
from dumpstream.format.header import IO
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.reading.inputs import Input
from dumpstream.reading.outputs import OutputNameError, Outputs
from dumpstream.system.targets import Target

_MOST_BYTES = 256 << 10
_LONGEST_STEM = 220
_IO = [*IO]


class Written(NamedTuple):
    """What became of a dump file."""

    tensors: int
    bytes: int
    problem: OutputNameError | None


def _lies_ready(dtype: DType) -> bool:
    """Whether numpy reads the elements as they lie in a dump file, and all their values are allowed."""
    as_lying = dtype.table is None and plain_dtype(dtype.numpy) == dtype.numpy != np.bool_
    return as_lying and dtype.bits == 8 * dtype.numpy.itemsize


_TYPES = [
    (dtype.number, dtype.numpy.str, dtype.numpy.itemsize, dtype.kernel is not None)
    for dtype in DTYPES.values()
    if _lies_ready(dtype)
]


def write_npy_files(
    batch: Sequence[tuple[Input, Target]], contents: Sequence[Buffer | None], outputs: Outputs
) -> list[Written | None]:
    """Write every tensor of *batch* to a file under dumpstream's name, as it is; return what became of each.

    *contents* are the bytes of those files that are known. None stands for a dump file of which nothing was
    written: one that is large, damaged or not whole, one with elements that have to be computed, or one whose
    tensors have other names or a directory that is not there yet.

    Raises:
        DestinationError: a file cannot be written, or exists.
    """
    written: list[Written | None] = [None] * len(batch)
    if not outputs.replace:
        by_directory: dict[Target, list[tuple[int, str, str | Buffer]]] = defaultdict(list)
        for number, ((item, target), content) in enumerate(zip(batch, contents, strict=True)):
            source = _source(item, content)
            if source is not None and _has_own_name(item, target):
                by_directory[target[:-1]].append((number, target[-1], source))
        for directory, files in by_directory.items():
            _write(directory, files, outputs, written)
    return written


def _source(item: Input, content: Buffer | None) -> str | Buffer | None:
    """Return the path or the bytes of a file that may be plain."""
    if not item.whole or (item.name.endswith(TEXT_SUFFIX) and not item.named):
        return None
    if item.path is None:
        return content
    return item.path if item.bytes <= _MOST_BYTES else None


def _has_own_name(item: Input, target: Target) -> bool:
    stem = target[-1]
    return stem == item.name.rpartition("/")[2] and len(stem.encode()) <= _LONGEST_STEM


def _write(
    directory: Target,
    files: Iterable[tuple[int, str, str | Buffer]],
    outputs: Outputs,
    written: list[Written | None],
) -> None:
    """Write the tensors of *files*, each with its place in *written*, into a directory if it is there."""
    with outputs.existing(directory) as fd:
        if fd is None:
            return
        numbers, stems, sources = map(list, zip(*files, strict=True))
        done = 0
        while done < len(stems):
            for result in new_npy_files(fd, sources[done:], stems[done:], _TYPES):
                if result is not None:
                    tensors, size, error, io, index = result
                    name = f"{stems[done]}.{_IO[io]}.{index}.{FileFormat.NPY}"
                    problem = outputs.problem((*directory, name), error)
                    written[numbers[done]] = Written(tensors, size, problem)
                done += 1
