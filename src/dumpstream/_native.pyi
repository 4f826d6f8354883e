"""The typed face of the native core."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

from typing_extensions import Buffer

CAUSES: tuple[str, ...]
#: So many bytes stay in the processor's cache while they are hashed and then measured.
CACHED_BYTES: int

#: Chunks, the losses (name, cause, bytes, ended) that come before them, the hold on both, and the step that
#: was marked before the chunks and behind the losses.
_Leased: TypeAlias = tuple[list[Chunk], list[tuple[str, str, int, bool]], Lease, int | None]
#: Size, fill, callbacks, wake-ups, unnamed losses, and (chunks, bytes) lost by cause.
_Counters: TypeAlias = tuple[int, int, int, int, int, dict[str, tuple[int, int]]]

@final
class Chunk:
    """The bytes that one call of the dump callback brought for the file *name*.

    Exports its bytes through the buffer protocol, read-only and without a copy. A chunk that you make has a
    copy of *data*. The bytes of a chunk from a ring lie in the ring, and stay valid while the `Lease` is
    unreleased or a view of them exists; such a chunk may be one record of a callback that was larger than a
    record may be.

    Args:
        name: of the file; bytes that are not UTF-8 become surrogate escapes.
        data: the bytes.
        offset: where they go in the file; -1 appends them.
        is_last: whether no further chunk of the file follows. A file without a last chunk ends when nothing
            more comes, and is complete only if its header confirms the length.
        flag: what the runtime said besides.
        sequence: the number of the callback.
        more: whether further records of the same callback follow.
    """

    def __new__(
        cls,
        name: str | bytes,
        data: Buffer,
        offset: int = -1,
        is_last: bool = False,
        *,
        flag: int = 0,
        sequence: int = 0,
        more: bool = False,
    ) -> Chunk: ...
    #: The name the runtime gave, undecodable bytes as surrogate escapes (`os.fsencode` gives them back).
    name: Final[str]
    #: Where the bytes go in the file; -1 appends.
    offset: Final[int]
    is_last: Final[bool]
    flag: Final[int]
    #: The number of the callback, counting refused ones too; the records of one callback share it.
    sequence: Final[int]
    #: Whether further records of the same callback follow.
    more: Final[bool]
    data: Final[memoryview]
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Lease:
    """A hold on consecutive records of the ring, released as one."""

    #: Ring bytes under the lease.
    size: Final[int]
    def release(self) -> None:
        """Give the bytes back to the producers as soon as no view of them is left."""

@final
class Ring:
    """The byte ring between the callback and its reader; `docs/ring.md` explains it.

    Raises `OSError` if the memory or the file cannot be made.
    """

    def __new__(cls, size: int, *, path: str | None = None) -> Ring: ...
    @staticmethod
    def borrow(fd: int, size: int, event_fd: int, reader_fd: int, /) -> Ring:
        """Map, only to fill it, the `SharedRing` of *size* bytes that another process lends by *fd*.

        The eventfd *event_fd* wakes that process, and *reader_fd* is its pidfd: once it has ended, the
        callback does not wait for space. The ring closes both. Raises `OSError` with EBADMSG if *fd* does not
        hold such a ring.
        """
    def attach(self, block: bool, block_limit_ns: int, max_file_bytes: int, /) -> None:
        """Let the callback fill this ring; raises `OSError` with EBUSY if it fills another."""
    def detach(self, limit_ns: int, /) -> bool:
        """Refuse all further calls and wait until none is inside; False if one still is after the limit."""
    def discard(self) -> None:
        """Refuse all further chunks at once, and count them."""
    def lease(self, max_records: int, max_bytes: int, /) -> _Leased | None:
        """Take the records that are there."""
    def arm(self, distance: int, /) -> bool:
        """Ask for a wake-up *distance* bytes ahead; True if a record is there already."""
    def disarm(self) -> None: ...
    def fileno(self) -> int: ...
    def refused(self) -> list[tuple[str, int]]:
        """Return the files still refused after `detach`, with the bytes refused since their first loss."""
    def note_refused(self) -> None:
        """After `detach`, let the process that reads a borrowed ring know what `refused` returns."""
    def statistics(self) -> _Counters:
        """Return the counters of the ring."""
    def close(self) -> None: ...

@final
class SharedRing:
    """The collector's side of a ring that another process fills.

    Nothing in the ring is trusted. Chunks are private copies: the producer cannot change them, and they
    outlive the ring. The release of a lease frees its ring space at once, even if views exist.

    Lies in sealed memory, or in a new file (*path*), which is read and written only by system calls.
    Raises `OSError` if the memory or the file cannot be made.
    """

    def __new__(cls, size: int, *, path: str | None = None) -> SharedRing: ...
    @staticmethod
    def recover(path: str, /) -> SharedRing:
        """Continue with the ring in a file, from where its dead collector had freed it.

        Raises `OSError` with EBADMSG if the file does not hold a ring.
        """
    def fileno(self) -> int:
        """Return the descriptor to hand over."""
    def lease(self, max_records: int, max_bytes: int, /) -> _Leased | None:
        """Take the records that are there.

        A record that a dead producer did not finish is a loss without a name, of cause `unfinished`. Copies
        *max_bytes* and at most one record more. Raises `OSError` with EBADMSG if only damage is left.
        """
    def arm(self, distance: int, /) -> bool:
        """Ask the producer for a message *distance* bytes ahead; True if a record is there already."""
    def disarm(self) -> None: ...
    def discard(self) -> None:
        """Make the producer refuse all further chunks at once, and count them."""
    def producer_died(self) -> None:
        """Skip unfinished records: no process that writes to the ring is left."""
    def statistics(self) -> _Counters:
        """Return the counters of the ring; all but the first two come from the producer."""
    def close(self) -> None: ...

@final
class Summary:
    """The statistics of a tensor.

    None is what needs an element and has none. A zero has no sign.
    """

    count: Final[int]
    nan: Final[int]
    pos_inf: Final[int]
    neg_inf: Final[int]
    #: 0.0 and -0.0.
    zero: Final[int]
    #: Less than zero: with -Inf, without -0.0 and NaN.
    negative: Final[int]
    #: By the kind's own format.
    subnormal: Final[int]
    #: At the largest finite magnitude of the table; None for kinds without one.
    saturated: Final[int | None]
    #: As in IEEE and numpy, like the next five: a NaN or an infinity shows. An exact int for integers.
    max: Final[float | None]
    min: Final[float | None]
    #: An exact int for integers; 0 without elements.
    sum: Final[float]
    mean: Final[float | None]
    #: 0.0 without elements.
    l2norm: Final[float]
    #: Of the population; NaN if there is a NaN or an infinity.
    std: Final[float | None]
    #: Of the elements that are neither NaN nor infinite, like the next two.
    finite_max: Final[float | None]
    finite_min: Final[float | None]
    finite_mean: Final[float | None]
    #: 256 counts by magnitude, for floats and tables if asked for. Bin b in 1 to 254 has what is at least
    #: 2**(b - 127) and less than twice that (254 also what is more), bin 0 zero, what is subnormal and what
    #: is below 2**-126, bin 255 infinities and NaN.
    histogram: Final[list[int] | None]

@final
class Statistics:
    """The statistics of one tensor, from its bytes in any split.

    The same bytes give the same answer for every split. Sums of floats are at least as exact as numpy's
    pairwise sum in double; integers are exact, but for `std` and `l2norm`. A complex tensor is given as its
    components.

    Args:
        kind: The encoding of an element, little-endian: ``f8 f4 f2 bf16 i8 i4 i2 i1 u8 u4 u2 u1 bool``, by
            type and bytes; ``byte`` for codes of one byte, and ``bits6 bits4 bits2 bits1`` for packed ones,
            low bits first, both with a table.
        table: A buffer of doubles, the value of every code. For ``byte`` it may be shorter, a power of two:
            the upper bits of a code are then ignored.
        min_normal: Values of the table below it in magnitude are subnormal.
        elements: Only so many count; what follows is padding.
        histogram: Count magnitudes as well.
    """

    def __new__(
        cls,
        kind: str,
        *,
        table: Buffer | None = None,
        min_normal: float = 0.0,
        elements: int | None = None,
        histogram: bool = False,
    ) -> Statistics: ...
    def update(self, data: Buffer, /) -> None:
        """Add *data*, of any length; an element may go on in the next call.

        Releases the GIL for a large *data*. Raises `RuntimeError` if another thread is in here.
        """
    def result(self) -> Summary:
        """Return the statistics so far, without an element that is not whole. Updates may follow."""

#: Kind and table as for `Statistics`; whether the elements are integers; of floats, the binary digits behind
#: the point, and the exponent of the smallest normal number.
_Side: TypeAlias = tuple[str, Buffer | None, bool, int, int]

@final
class ComparisonSummary:
    """How two tensors differ; but for the counts up to `bit_equal`, over pairs of finite elements."""

    count: Final[int]
    finite: Final[int]
    nan_both: Final[int]
    nan_mine: Final[int]
    nan_golden: Final[int]
    inf_differs: Final[int]
    #: Elements with the same bits; of different types, with equal values (not NaN) and signs.
    bit_equal: Final[int]
    #: Errors above 1/1000 and 5/1000 of the golden element, or of 2.2e-16 if that is larger.
    beyond_1: Final[int]
    beyond_5: Final[int]
    #: The sums of squares of mine and of the golden, and of products.
    xx: Final[float]
    yy: Final[float]
    xy: Final[float]
    #: The sums of absolute, squared and relative errors. The squared ones, and those above, are all divided
    #: by the same number if they are beyond doubles.
    errors: Final[float]
    squares: Final[float]
    rmse: Final[float]
    relative: Final[float]
    max_relative: Final[float]
    mean: Final[float]
    golden_mean: Final[float]
    std: Final[float]
    golden_std: Final[float]
    #: Exact if both are integers.
    max_error: Final[int | float]
    #: None if both are integers.
    max_ulp: Final[float | None]
    #: The first pair with the largest error; if no finite pair differs, the first in which a NaN or an
    #: infinity has no equal.
    worst: Final[int | None]
    worst_mine: Final[int | float | None]
    worst_golden: Final[int | float | None]
    #: None before a second pass.
    kl: Final[float | None]

@final
class Comparison:
    """How two tensors differ, in one pass over the bytes of both, in any split.

    The same bytes give the same answer for every split and with every set of kernels. Sums are doubles; the
    largest error of two integers is exact. A complex tensor is given as its components.

    Args:
        mine: How its elements are read.
        golden: Likewise; the types may differ.
        kl: A second pass will follow, for the Kullback-Leibler divergence.
    """

    def __new__(cls, mine: _Side, golden: _Side, *, kl: bool = False) -> Comparison: ...
    def update(self, mine: Buffer, golden: Buffer, count: int, /) -> None:
        """Add the first *count* elements of both.

        Elements of fewer than 8 bits begin with a byte. Releases the GIL for large buffers. Raises
        `RuntimeError` if another thread is in here, and `ValueError` if a buffer has fewer elements.
        """
    def again(self) -> None:
        """Begin the second pass, in which all elements are given once more."""
    def result(self) -> ComparisonSummary:
        """Return what is known so far. Updates may follow."""

#: How `compare_files` lays out a record, for numpy.
PAIR_ROW: dict[str, Any]
#: How `list_operators` lays out a record, for numpy.
OPERATOR_NAME: dict[str, Any]

def compare_files(
    mine: list[str] | list[Buffer],
    golden: list[str] | list[Buffer],
    types: Sequence[tuple[int, int, _Side]],
    arranged: list[int],
    kl: bool,
    /,
) -> tuple[bytes, bytes, bytes, bytes]:
    """Compare pairs of small dump files, each a path or its bytes; releases the GIL.

    Returns a byte for each pair, 1 if it was compared; the records of the tensors of those; and all
    dimensions of their shapes and original shapes, one tensor after the other.

    Args:
        mine: The files of one side.
        golden: Those that they are compared with.
        types: Number, components and side of the data types that are compared.
        arranged: The numbers of formats that must be rearranged if the original shape is known.
        kl: Compute the Kullback-Leibler divergence.
    """

def count_segments(files: list[str] | list[Buffer], /) -> bytes:
    """Return how many inputs, outputs, buffers and spaces each file has, 4 bytes each.

    All are 0 for a file that is not small, whole and readable. Releases the GIL.
    """

def list_operators(path: str, key: bytes, /) -> tuple[list[str], list[str], bytes | None]:
    """Return the files of a directory, the directories in it, and a record for each file; releases the GIL.

    All are in order, without those that begin with a dot, and without links. There are no records if the
    name of a file is not of the usual form. The *key* of 16 bytes keeps the writer of names from choosing
    some with equal hashes. Raises `OSError`.
    """

def file_sizes(path: str, names: list[str], /) -> list[int]:
    """Return the size of each file of a directory, 0 for one that is gone; releases the GIL.

    Raises `OSError` if the directory cannot be opened.
    """

def callback_address() -> int:
    """Return the address to give to ``acldumpRegCallback``."""

def mark_step(step: int, /) -> bool:
    """Mark the beginning of *step*; False if no ring is attached.

    Raises `OSError` with EINVAL or `OverflowError` if it is negative or has more than 18 digits.
    """

def late_calls() -> int:
    """Return how many callbacks came while no ring was attached."""

def push(name: bytes, address: int, length: int, is_last: bool, offset: int, flag: int, /) -> int:
    """Do what the callback does for a chunk whose bytes lie at *address*; nonzero if it was refused."""

def read_header(data: Buffer, /) -> tuple[int, int, int]:
    """Return ``(state, total, present)`` for the start of a dump file.

    *state* is 0 if *data* holds a whole dump header, 1 if only its beginning, and 2 if it begins otherwise.
    For state 0, *total* is the length of the file with the bytes of every segment, and *present* the
    length without the tensors whose address is null (equal to *total* if no tensor has an address).
    For state 1, *total* is the number of bytes after which the header can be read (0 if not known yet).
    """

#: data type, format, shape, original shape, sub-format, size, address, offset, argument index, input type,
#: type of a buffer or space, dimension ranges, original operator (name, output index, data type, format),
#: start and stop of the data inside the message, and the unknown fields as they were written.
_Segment: TypeAlias = tuple[
    int,
    int,
    tuple[int, ...],
    tuple[int, ...],
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    tuple[tuple[int, int], ...],
    tuple[str, int, int, int] | None,
    int,
    int,
    bytes,
]

_Group: TypeAlias = list[_Segment]

#: version, time, operator name, DFX message, attributes, inputs, outputs, buffers, spaces, and the unknown
#: fields as they were written.
_Message: TypeAlias = tuple[str, int, str, str, list[tuple[str, str]], _Group, _Group, _Group, _Group, bytes]

def parse_header(message: Buffer, /) -> _Message:
    """Read the DumpData *message* in full.

    A shape may have 32 dimensions, and the message 65536 segments and attributes.

    Raises:
        ValueError: with what is wrong and the position in *message* where it is.
    """

#: The records of `measure_files`, as ``numpy.dtype`` takes them.
TENSOR_ROW: dict[str, Any]

def measure_files(files: list[Buffer], readings: list[tuple[int, str, int]], /) -> tuple[bytes, bytes, bytes]:
    """Return a record (`TENSOR_ROW`) for each tensor of whole dump *files*, and their dimensions.

    Behind the records come the dimensions of all shapes, one row after the other, and of all original shapes.
    *readings* are the data types that can be read, each with its kind as `Statistics` has them, one without
    a table, and the numbers in an element. A file has no records unless it is exactly what its header
    promises, all its types can be read and all shapes fit. Releases the GIL while it reads.
    """

def count_tensors(files: list[Buffer], /) -> list[int]:
    """Return how many tensors each of the whole dump *files* has.

    0 if it is not exactly what its header promises, or does not have the bytes of all.
    """

def scan_journal(block: Buffer, key: bytes, verdicts: tuple[str, ...], needle: bytes, /) -> bytes:
    """Return a record for each line of a journal that *block* begins, in the layout of `JournalLine`.

    With a *needle*, only for the lines that contain it. *verdicts* are the words that a verdict may be, in
    the order of their numbers. Releases the GIL while it reads.
    """

def summarise_journal(
    block: Buffer, verdicts: tuple[str, ...], /
) -> tuple[list[tuple[str, str, int, int, int, int, str | None, int | None]], list[tuple[int, int, int]]]:
    """Return name, verdict, bytes, stored bytes, chunks, parts and more for each common line of *block*.

    What follows the parts is why the bytes were not stored, and the step that was marked, each None if not.

    Behind them come the other lines: how many common ones are before it, where it starts, and its length.
    *verdicts* are as in `scan_journal`.
    """

def hash_name(name: bytes, key: bytes, /) -> int:
    """Return the hash that `scan_journal` has for a file of that *name*; *key* has 16 bytes."""

def new_files(dir_fd: int, names: list[str], contents: list[Buffer], /) -> tuple[int, int]:
    """Make files in a directory, each whole or not at all, and none in the place of another.

    Returns how many were made before the first that could not, and the errno of that one, or 0: ``EEXIST`` if
    it exists, ``EOPNOTSUPP`` if the file system cannot do it. Releases the GIL while it writes.
    """

def new_npy_files(
    dir_fd: int, files: list[str | Buffer], stems: list[str], types: list[tuple[int, str, int, bool]], /
) -> list[tuple[int, int, int, int, int] | None]:
    """Make an NPY file for each tensor of small plain dump *files*, paths or bytes, as `new_files` does.

    Their names begin with *stems*, of at most 220 bytes. *types* are the data types that numpy reads as they
    lie: number, numpy's name, bytes of an element, and whether the array has the tensor's shape. Returns for
    each file how many NPY files were made, how large they are, and the errno, the kind and the index of the
    first that could not be made, or 0; None if the file is not plain, and nothing was made. Stops behind a
    file with an errno. Releases the GIL while it writes.
    """

def rename_noreplace(src_dir_fd: int, src: str, dst_dir_fd: int, dst: str, /) -> None:
    """Rename *src* to *dst*, each relative to its directory.

    Raises:
        FileExistsError: *dst* exists; it stays, and so does *src*.
        OSError: any other failure.
    """

def sync_filesystem(fd: int, /) -> None:
    """Force everything written to the file system that holds *fd* to the disk."""

#: No block has more original bytes.
BLOCK_MOST: int
BLOCK_HEADER: int

@final
class Encoder:
    """Makes blocks of the bytes of dump files; for one thread at a time.

    Args:
        codec: ``float``, ``float-small``, ``auto``, or ``none``, which compresses nothing.
        level: of libzstd, for what are not floats.
    """

    def __new__(cls, codec: str, level: int = 1) -> Encoder: ...
    def encode(self, data: Buffer, position: int, layout: Buffer, out: Buffer, /) -> int:
        """Write the blocks of *data* to *out*, and return how many bytes they are.

        *data* begins at *position* of a file that has this *layout*, or an empty one if it is not known.
        *out* must have room for `encoded_bound`. No data become one block.
        """

@final
class Decoder:
    """Makes the original bytes of blocks; for one thread at a time."""

    def decode(self, data: Buffer, out: Buffer, /) -> tuple[int, int, int, str | None]:
        """Decode blocks from *data* to *out*, as long as they are whole and their bytes fit.

        Returns how many bytes of *data* were taken and how many were made; the length of the next block, 0 if
        its bytes do not fit; and what is wrong with it, if anything.
        """

def layout_of(data: Buffer, /) -> bytes:
    """Return where the tensors of the dump file are that begins with *data*, for `Encoder.encode`.

    Empty if *data* does not have the whole header.
    """

def encoded_bound(length: int, /) -> int:
    """Return the most bytes that so many become."""

def crc32(data: Buffer, /) -> int:
    """Return what `zlib.crc32` returns, sooner."""

def has_libzstd() -> bool:
    """Whether this machine has a libzstd that encoders and decoders can use."""

def hide_libzstd(hidden: bool, /) -> None:
    """For tests: let encoders and decoders that are made from now on find none."""

def use_kernels(name: str, /) -> str:
    """Use the kernels *name* for all that is begun from now on, and return the name of those in use.

    ``portable`` runs everywhere, ``avx2`` and ``neon`` where the processor has them, and ``auto`` takes the
    fastest, which is the default. Raises `ValueError` if this machine does not have them.
    """
