"""The typed face of the native core."""

from typing import Any, TypeAlias, final

from typing_extensions import Buffer

CAUSES: tuple[str, ...]
#: So many bytes stay in the processor's cache: hash them and give them to `Statistics.update` in turn.
CACHED_BYTES: int

@final
class Chunk:
    """What one callback brought, or one record of it when it was larger than a record may be.

    Exports its bytes through the buffer protocol, read-only and without a copy. Bytes that lie in the
    ring stay valid while the `Lease` is unreleased or a view of them exists.
    """

    def __new__(
        cls,
        name: str | bytes,
        data: Buffer,
        *,
        offset: int = -1,
        is_last: bool = False,
        flag: int = 0,
        sequence: int = 0,
        more: bool = False,
    ) -> Chunk: ...
    #: The name the runtime gave, undecodable bytes as surrogate escapes (`os.fsencode` gives them back).
    @property
    def name(self) -> str: ...
    #: Where the bytes go in the file; -1 appends.
    @property
    def offset(self) -> int: ...
    @property
    def is_last(self) -> bool: ...
    @property
    def flag(self) -> int: ...
    #: The number of the callback, counting refused ones too; the records of one callback share it.
    @property
    def sequence(self) -> int: ...
    #: Whether further records of the same callback follow.
    @property
    def more(self) -> bool: ...
    @property
    def data(self) -> memoryview: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Lease:
    """A hold on consecutive records of the ring, released as one."""

    #: Ring bytes under the lease.
    @property
    def size(self) -> int: ...
    def release(self) -> None:
        """Give the bytes back to the producers as soon as no view of them is left."""

@final
class Ring:
    """The byte ring between the callback and its reader; `docs/ring.md` explains it.

    Raises `OSError` if the memory or the file cannot be had.
    """

    def __new__(cls, size: int, *, path: str | None = None) -> Ring: ...
    def attach(self, block: bool, block_limit_ns: int, max_file_bytes: int, /) -> None:
        """Let the callback fill this ring; `OSError` with EBUSY if it fills another."""
    def detach(self, limit_ns: int, /) -> bool:
        """Refuse all further calls and wait until none is inside; False if one still is after the limit."""
    def discard(self) -> None:
        """Refuse all further chunks at once, counting them."""
    def lease(
        self, max_records: int, max_bytes: int, /
    ) -> tuple[list[Chunk], list[tuple[str, str, int, bool]], Lease] | None:
        """Take what is there: chunks, and the losses (name, cause, bytes, ended) that come before them."""
    def arm(self, distance: int, /) -> bool:
        """Ask for a wake-up *distance* bytes ahead; True if a record is there already."""
    def disarm(self) -> None: ...
    def fileno(self) -> int: ...
    def refused(self) -> list[tuple[str, int]]:
        """Return the files still refused after `detach`, with the bytes refused since their first loss."""
    def statistics(self) -> tuple[int, int, int, int, int, dict[str, tuple[int, int]]]:
        """Return size, fill, callbacks, wake-ups, unnamed losses, and (chunks, bytes) lost by cause."""
    def close(self) -> None: ...

@final
class SharedRing:
    """The collector's side of a ring that another process fills.

    Nothing in the ring is trusted. Chunks are private copies, so nothing changes under who reads them, and
    they outlive the ring. A lease's release frees its ring space at once, whatever views there are.

    In sealed memory, or in a new file (*path*), which is read and written by system calls only.
    Raises `OSError` if the memory or the file cannot be had.
    """

    def __new__(cls, size: int, *, path: str | None = None) -> SharedRing: ...
    @staticmethod
    def recover(path: str, /) -> SharedRing:
        """Go on with the ring in a file where its collector, which has died, had freed it.

        `OSError` with EBADMSG if the file does not hold a ring.
        """
    def fileno(self) -> int:
        """Return the descriptor to hand over."""
    def lease(
        self, max_records: int, max_bytes: int, /
    ) -> tuple[list[Chunk], list[tuple[str, str, int, bool]], Lease] | None:
        """Take what is there: chunks, and the losses (name, cause, bytes, ended) that come before them.

        A record that a dead producer did not finish is a loss without a name, of cause `unfinished`. Copies
        *max_bytes* and at most one record more. `OSError` with EBADMSG if there is nothing left but damage.
        """
    def arm(self, distance: int, /) -> bool:
        """Ask for a wake-up *distance* bytes ahead; True if a record is there already.

        It comes as a message of the producer.
        """
    def disarm(self) -> None: ...
    def discard(self) -> None:
        """Let the producer refuse all further chunks at once, counting them."""
    def producer_died(self) -> None:
        """Go on behind what nobody will finish: no process that writes to the ring is left."""
    def statistics(self) -> tuple[int, int, int, int, int, dict[str, tuple[int, int]]]:
        """Return size, fill, callbacks, wake-ups, unnamed losses, and (chunks, bytes) lost by cause.

        All but the first two are what the producer says.
        """
    def close(self) -> None: ...

@final
class Summary:
    """The statistics of a tensor.

    What there is no element for is None. A zero has no sign.
    """

    @property
    def count(self) -> int: ...
    @property
    def nan(self) -> int: ...
    @property
    def pos_inf(self) -> int: ...
    @property
    def neg_inf(self) -> int: ...
    #: 0.0 and -0.0.
    @property
    def zero(self) -> int: ...
    #: Less than zero: with -Inf, without -0.0 and NaN.
    @property
    def negative(self) -> int: ...
    #: By the kind's own format.
    @property
    def subnormal(self) -> int: ...
    #: At the largest finite magnitude of the table; None for kinds without one.
    @property
    def saturated(self) -> int | None: ...
    #: As IEEE and numpy have it, like the next five: a NaN or an infinity shows. An exact int for integers.
    @property
    def max(self) -> float | None: ...
    @property
    def min(self) -> float | None: ...
    #: An exact int for integers; 0 without elements.
    @property
    def sum(self) -> float: ...
    @property
    def mean(self) -> float | None: ...
    #: 0.0 without elements.
    @property
    def l2norm(self) -> float: ...
    #: Of the population; NaN if there is a NaN or an infinity.
    @property
    def std(self) -> float | None: ...
    #: Of the elements that are neither NaN nor infinite, like the next two.
    @property
    def finite_max(self) -> float | None: ...
    @property
    def finite_min(self) -> float | None: ...
    @property
    def finite_mean(self) -> float | None: ...
    #: 256 counts by magnitude, for floats and tables if asked for. Bin b in 1 to 254 has what is at least
    #: 2**(b - 127) and less than twice that (254 also what is more), bin 0 zero, what is subnormal and what
    #: is below 2**-126, bin 255 infinities and NaN.
    @property
    def histogram(self) -> list[int] | None: ...

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
        elements: Only the first so many count; what follows is padding.
        histogram: Count magnitudes too.
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

        Gives up the GIL while it reads a large *data*. `RuntimeError` if another thread is in here.
        """
    def result(self) -> Summary:
        """Sum up what there was so far; an element that is not whole does not count. Updates may follow."""

def callback_address() -> int:
    """Return the address to give to ``acldumpRegCallback``."""

def late_calls() -> int:
    """Return how many callbacks came while no ring was attached."""

def push(name: bytes, address: int, length: int, is_last: bool, offset: int, flag: int, /) -> int:
    """Do what the callback does for a chunk whose bytes lie at *address*; nonzero if it was refused."""

def read_header(data: Buffer, /) -> tuple[int, int, int]:
    """Return ``(state, total, present)`` for the start of a dump file.

    *state* is 0 if *data* holds a whole dump header, 1 if it is the beginning of one, and 2 if it is none.
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

#: version, time, operator name, DFX message, attributes, inputs, outputs, buffers, spaces, and the unknown
#: fields as they were written.
_Message: TypeAlias = tuple[
    str,
    int,
    str,
    str,
    list[tuple[str, str]],
    list[_Segment],
    list[_Segment],
    list[_Segment],
    list[_Segment],
    bytes,
]

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
    promises, all its types can be read and all shapes fit. Gives up the GIL while it reads.
    """

def rename_noreplace(src_dir_fd: int, src: str, dst_dir_fd: int, dst: str, /) -> None:
    """Rename *src* to *dst*, each relative to its directory.

    Raises:
        FileExistsError: there is something at *dst*; it is left alone, and so is *src*.
        OSError: any other failure.
    """

def sync_filesystem(fd: int, /) -> None:
    """Force everything written to the file system that holds *fd* to the disk."""

def use_kernels(name: str, /) -> str:
    """Use the kernels *name* for all `Statistics` begun from now on, and return the name of those in use.

    ``portable`` runs everywhere, ``avx2`` and ``neon`` where the processor has them, and ``auto`` takes the
    fastest, as if nobody had called this. `ValueError` if this machine does not have them.
    """
