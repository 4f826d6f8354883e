"""Header: what a dump file says about itself before its tensors begin."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import Buffer

from dumpstream import _native
from dumpstream._errors import DumpFormatError
from dumpstream.format.dtypes import DType, dtype_of
from dumpstream.format.formats import Format, format_of
from dumpstream.format.verdict import WHOLE_HEADER, HeaderReader

if TYPE_CHECKING:
    from dumpstream._native import _Message, _Segment

#: The longest header that is read; CANN's have a few hundred bytes.
MAX_HEADER_BYTES = 64 << 20

#: Before the message comes its length, in so many bytes.
PREFIX_BYTES = 8
_MESSAGE_BYTES = range(1, 1 << 31)

#: A small device writes this and a header of its own instead of the message.
_SMALL_MAGIC: Final = b"\x5a\x5a\x5a\x5a"
_SMALL_VERSION: Final = "nano 0"

# Positions in a segment from the native reader.
_SIZE: Final = 5
_ADDRESS: Final = 6


class IO(StrEnum):
    """What a tensor is to its operator, in the order of a file."""

    INPUT = "input"
    OUTPUT = "output"
    BUFFER = "buffer"
    SPACE = "space"


_ADDRESSED = (IO.INPUT, IO.OUTPUT)


class OriginalOp(NamedTuple):
    """The operator that an output had before the graph was optimised."""

    name: str
    output_index: int
    dtype: int  #: GE's number, which is not a `DType`'s
    format: int  #: likewise


class Tensor(NamedTuple):
    """One segment of a dump file; a field that the header leaves out is 0 or empty."""

    io: IO
    index: int  # type: ignore[assignment]  # hides tuple.index; counts the tensors of the same `io`
    dtype: DType
    format: Format
    shape: tuple[int, ...]
    original_shape: tuple[int, ...]
    sub_format: int  #: groups, of a fractal format
    size: int  #: bytes; more than the shape needs if the tensor is padded
    address: int  #: on the device
    offset: int
    arg_index: int  #: in an exception dump, which argument of the kernel it is
    input_type: int  #: in an exception dump, its kind (`kind_of`)
    type: int  #: of a buffer or a space
    dim_range: tuple[tuple[int, int], ...]
    original_op: OriginalOp | None
    start: int | None  #: where its bytes lie in the file; None if they were not dumped
    stop: int | None
    unknown: bytes  #: protobuf fields that have no name here, as they were written

    @property
    def stored(self) -> bool:
        """Whether the file has its bytes; a tensor without an address may have none."""
        return self.start is not None

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.io} {self.index}"


class DumpHeader(NamedTuple):
    """Everything a dump file says about itself."""

    version: str
    time: int  #: microseconds since the epoch, by the device's clock
    op_name: str
    dfx_message: str
    attributes: tuple[tuple[str, str], ...]
    tensors: tuple[Tensor, ...]  #: in the order of their bytes
    unknown: bytes  #: protobuf fields that have no name here, as they were written
    size: int  #: bytes before the first tensor
    length: int  #: bytes of the whole file
    ambiguous: bool  #: whether it takes the file's length to tell where the tensors lie


def message_bytes(prefix: Buffer) -> int:
    """Return the length of the message that the first bytes of a file announce, or 0 if it is impossible."""
    length = int.from_bytes(memoryview(prefix)[:PREFIX_BYTES], "little")
    return length if length in _MESSAGE_BYTES else 0


def parse_header(data: Buffer, length: int | None = None) -> DumpHeader:
    """Read the header at the start of *data*, which holds all of it.

    CANN leaves out the bytes of a tensor whose address is null. They are expected nevertheless if no tensor
    has an address, if a small device wrote the file, or if the *length* of the file is more than the other
    tensors explain.

    Raises:
        DumpFormatError: *data* has no header, or a damaged one.
    """
    view = memoryview(data)
    size = PREFIX_BYTES + message_bytes(view)
    if size == PREFIX_BYTES:
        raise DumpFormatError("is not a dump file: it does not begin with the length of a header", 0)
    if len(view) < size:
        raise DumpFormatError(f"ends inside its header of {size} bytes; dump it again", len(view))
    message = _parse_message(view[PREFIX_BYTES:size], PREFIX_BYTES)
    is_small = bytes(view[PREFIX_BYTES:size][: len(_SMALL_MAGIC)]) == _SMALL_MAGIC
    if is_small:
        message = (_SMALL_VERSION, *message[1:])
    if not any(message[:-1]):
        raise DumpFormatError("is not a dump file: nothing in its header has a name", PREFIX_BYTES)
    groups = _groups_of(message)
    null_bytes = 0 if is_small else _null_bytes([*groups[IO.INPUT], *groups[IO.OUTPUT]])
    skips_null = null_bytes > 0
    if null_bytes and length is not None:
        everything = size + sum(segment[_SIZE] for group in groups.values() for segment in group)
        skips_null = length <= everything - null_bytes
    tensors: list[Tensor] = []
    position = size
    for io, group in groups.items():
        for index, segment in enumerate(group):
            if skips_null and io in _ADDRESSED and not segment[_ADDRESS]:
                tensors.append(_tensor(io, index, segment, None, None))
            else:
                stop = position + segment[_SIZE]
                tensors.append(_tensor(io, index, segment, position, stop))
                position = stop
    return _header(message, tensors, size, position, ambiguous=null_bytes > 0)


def parse_version_1(data: Buffer) -> DumpHeader:
    """Read a file of version 1, which is one message with the bytes of the tensors inside.

    Raises:
        DumpFormatError: *data* is not such a file, or is damaged.
    """
    message = _parse_message(data, 0)
    tensors: list[Tensor] = []
    for io, group in _groups_of(message).items():
        for index, segment in enumerate(group):
            *_, start, stop, _ = segment
            tensors.append(_tensor(io, index, segment, start, stop)._replace(size=stop - start))
    if not tensors:
        raise DumpFormatError("is not a dump file: it names no tensor", 0)
    return _header(message, tensors, 0, len(memoryview(data)), ambiguous=False)


class HeaderCollector:
    """Reads the header of a dump file whose pieces come in order. Version 1 files have none."""

    __slots__ = ("_position", "_reader", "header")

    def __init__(self, limit: int = MAX_HEADER_BYTES) -> None:
        self.header: DumpHeader | None = None
        self._reader = HeaderReader(limit)
        self._position = 0

    def add(self, piece: Buffer) -> memoryview | None:
        """Take the next piece; once `header` is known, return what lies behind it in that last piece.

        Raises:
            DumpFormatError: the file does not begin with a header, or it is damaged or above the limit.
        """
        view = memoryview(piece)
        before = self._position
        self._position += len(view)
        self._reader.add(before, view)
        if not self._reader.settled:
            return None
        if self._reader.header[0] != WHOLE_HEADER:
            raise DumpFormatError("is not a dump file: it does not begin with a header", 0)
        self.header = parse_header(self._reader.kept or view)
        return view[self.header.size - before :]


def _parse_message(message: Buffer, base: int) -> _Message:
    try:
        return _native.parse_header(message)
    except ValueError as exc:
        problem, position = exc.args
        raise DumpFormatError(f"is damaged or not a dump file: {problem}", base + position) from None


def _groups_of(message: _Message) -> dict[IO, list[_Segment]]:
    *_, inputs, outputs, buffers, spaces, _ = message
    return {IO.INPUT: inputs, IO.OUTPUT: outputs, IO.BUFFER: buffers, IO.SPACE: spaces}


def _null_bytes(tensors: list[_Segment]) -> int:
    """Return the bytes of the tensors whose address is null; 0 if no tensor has an address."""
    null = [segment[_SIZE] for segment in tensors if not segment[_ADDRESS]]
    return sum(null) if len(null) < len(tensors) else 0


def _tensor(io: IO, index: int, segment: _Segment, start: int | None, stop: int | None) -> Tensor:
    dtype, format_ = dtype_of(segment[0]), format_of(segment[1])
    original_op = None if segment[12] is None else OriginalOp(*segment[12])
    # From shape to dim_range the order is the same.
    return Tensor(io, index, dtype, format_, *segment[2:12], original_op, start, stop, segment[-1])


def _header(
    message: _Message, tensors: list[Tensor], size: int, length: int, *, ambiguous: bool
) -> DumpHeader:
    return DumpHeader(
        *message[:4], tuple(message[4]), tuple(tensors), message[-1], size, length, ambiguous=ambiguous
    )
