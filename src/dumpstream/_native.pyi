"""The typed face of the native core."""

from typing import final

from typing_extensions import Buffer

CAUSES: tuple[str, ...]

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

def rename_noreplace(src_dir_fd: int, src: str, dst_dir_fd: int, dst: str, /) -> None:
    """Rename *src* to *dst*, each relative to its directory.

    Raises:
        FileExistsError: there is something at *dst*; it is left alone, and so is *src*.
        OSError: any other failure.
    """

def sync_filesystem(fd: int, /) -> None:
    """Force everything written to the file system that holds *fd* to the disk."""
