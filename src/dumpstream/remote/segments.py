"""Segments: the journal of a capture in a store, which cannot append."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from io import BufferedReader
from itertools import count, takewhile
from pathlib import Path
from typing import TypeVar

import anyio

from dumpstream._errors import ObjectMissingError, PartError, StoreError
from dumpstream.archive.rows import JOURNAL, MergedRow, is_finished_file, read_rows
from dumpstream.objectstore.backoff import Backoff
from dumpstream.objectstore.patience import Patience, ask
from dumpstream.objectstore.reader import ObjectReader
from dumpstream.objectstore.store import Store
from dumpstream.system.batches import run_batches

SEGMENTS = "journal"

_SEGMENT = re.compile(rf"{SEGMENTS}/([0-9]{{6,19}})\.jsonl")
_LONGEST_MERGED_ROW = 256
#: A longer line is read as several that cannot be understood.
_LONGEST_LINE = 16 << 20
#: The lines of a run for which the store was away come in one segment.
_LARGEST_SEGMENT = 1 << 30
#: A run that ends replaces the journal once; so many runs do not end while one reads.
_ATTEMPTS = 5
_SEGMENT_S = 3.0
_SEGMENT_LINES = 2000
_BLOCK_BYTES = 1 << 20

_T = TypeVar("_T")


def segment_key(number: int) -> str:
    """Return the key of the segment *number*, counted from 1."""
    return f"{SEGMENTS}/{number:06}.jsonl"


def is_segment(key: str) -> bool:
    """Whether *key* is that of a segment."""
    return _SEGMENT.fullmatch(key) is not None


def merged_through(store: Store) -> int:
    """Return the number of the last segment in the merged journal; 0 if there is no merged journal."""
    try:
        _, head = store.get_range(JOURNAL, 0, _LONGEST_MERGED_ROW)
    except ObjectMissingError:
        return 0
    return _through(head.partition(b"\n")[0])


def last_segment(store: Store) -> int:
    """Return the highest number that a segment has or had."""
    return max([merged_through(store), *_segments(store)])


def read_journal(store: Store, read: Callable[[Iterator[bytes]], _T]) -> _T:
    """Return what *read* makes of the lines of the journal, each with its newline.

    They are a consistent prefix, also while a capture writes. If a run ends meanwhile, the lines stop with an
    exception, and *read* is called again.

    Raises:
        StoreError: the store refuses or is away, or shows another journal every time.
    """
    for _ in range(_ATTEMPTS):
        with suppress(_JournalReplaced):
            return read(_lines(store))
    raise StoreError(
        f"cannot read {store.prefix / JOURNAL}: the journal is another one whenever it is read; "
        "read it again when no run ends, or restore it from a copy"
    )


def journal_version(store: Store) -> str | None:
    """Return what changes whenever the journal does; None if the store does not tell."""
    objects = [*store.entries(SEGMENTS)]
    with suppress(ObjectMissingError):
        objects.append(store.get_range(JOURNAL, 0, 1)[0])
    if any(it.etag is None for it in objects):
        return None
    return "\n".join(sorted(f"{it.key} {it.bytes} {it.etag}" for it in objects))


class _JournalReplaced(Exception):  # noqa: N818 - not an error
    """The lines that were read are not a prefix of the journal that is there now."""


def _lines(store: Store) -> Iterator[bytes]:
    through = 0
    with suppress(ObjectMissingError), BufferedReader(ObjectReader(store, JOURNAL)) as file:
        try:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b"")):
                through = _through(line) if number == 0 else through
                yield line
        except PartError:
            raise _JournalReplaced from None
    found = _segments(store)
    numbers = takewhile(found.__contains__, count(through + 1))
    get = partial(_get_segments, store)
    try:
        for segment in run_batches(get, numbers, bytes_of=lambda _: 0, is_remote=lambda _: True):
            yield from segment.splitlines(keepends=True)
    except ObjectMissingError:  # it has just been merged
        raise _JournalReplaced from None
    if merged_through(store) != through:
        raise _JournalReplaced


def _get_segments(store: Store, numbers: Iterable[int]) -> list[bytes]:
    return [store.get(segment_key(number), _LARGEST_SEGMENT) for number in numbers]


def _segments(store: Store) -> set[int]:
    numbers = [_SEGMENT.fullmatch(entry.key) for entry in store.entries(SEGMENTS)]
    return {int(match[1]) for match in numbers if match}


def _through(line: bytes) -> int:
    row = next(read_rows([line]), None)
    return row.through if isinstance(row, MergedRow) else 0


def _merged_before(store: Store) -> Iterator[bytes]:
    """Yield the lines of the merged journal, or of one that was copied there, in blocks."""
    blocks = store.read(JOURNAL)
    try:
        block = next(blocks, b"")
    except ObjectMissingError:
        return
    first, _, rest = block.partition(b"\n")
    last = rest if _through(first) else block
    yield last
    for last in blocks:
        yield last
    if last and not last.endswith(b"\n"):
        yield b"\n"


async def merge_segments(store: Store, run: Iterable[bytes], *, first: int, through: int) -> None:
    """Merge all segments up to *through* into one journal, and delete them.

    *run* has the lines of the segments from *first* on, in blocks.
    """
    patience = store.patience
    merged = await ask(partial(merged_through, store), patience)

    def pieces() -> Iterator[bytes]:
        yield MergedRow(through).to_line().encode() + b"\n"
        yield from _merged_before(store)
        for number in range(merged + 1, first):
            yield store.get(segment_key(number), _LARGEST_SEGMENT)
        yield from run

    def delete() -> None:
        for number in _segments(store):  # an earlier merge that was killed may have left some
            if number <= through:
                store.delete(segment_key(number))

    await store.upload(JOURNAL, _in_threads(pieces(), patience))
    await ask(delete, patience)


async def _in_threads(pieces: Iterator[bytes], patience: Patience) -> AsyncIterator[bytes]:
    # Not a plain iterator: the pieces call obstore, which must not be called while it waits for a piece.
    while (piece := await ask(partial(next, pieces, None), patience)) is not None:
        if piece:
            yield piece


class SegmentJournal:
    """Writes lines to *store* as segments, every few seconds; *last* is the number of the latest there."""

    def __init__(self, store: Store, *, last: int) -> None:
        self._store = store
        self._first = last + 1
        self._last = last
        self._lines: list[str] = []  # that the store has not confirmed
        self.waiting_files = 0  #: finished files in those lines
        self._due = asyncio.Event()  # there are lines enough for a segment, or the end has come
        self._closing = asyncio.Event()
        self.error: StoreError | None = None  #: why nothing more is written
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def waiting(self) -> int:
        """The lines that the store has not confirmed."""
        return len(self._lines)

    def add(self, line: str) -> None:
        """Append *line*, without its newline, soon."""
        self._lines.append(line)
        self.waiting_files += is_finished_file(line)
        if len(self._lines) >= _SEGMENT_LINES:
            self._due.set()

    async def stop(self) -> bool:
        """Try once more to write what is left; return whether the store has everything."""
        self._closing.set()
        self._due.set()
        await asyncio.wait([self._task])
        self._task.result()
        return self.error is None and not self.waiting

    async def merge(self, path: Path) -> None:
        """Merge everything, after `stop` has returned True; *path* has the lines of this run.

        Raises:
            StoreError: nothing is merged; the segments are still there.
        """
        await merge_segments(self._store, _blocks(path), first=self._first, through=self._last)

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            closing = self._closing.is_set()
            try:
                await self._write_segment()
            except StoreError as exc:
                if not exc.away:
                    self.error = exc
                if closing or not exc.away:
                    return
                with anyio.move_on_after(backoff.next_pause()):
                    await self._closing.wait()
                continue
            backoff.reset()
            if closing and not self._lines:
                return
            if not closing:
                await self._gather()

    async def _write_segment(self) -> None:
        if lines := self._lines.copy():
            await self._store.put(segment_key(self._last + 1), "\n".join([*lines, ""]).encode("ascii"))
            self._last += 1
            del self._lines[: len(lines)]
            self.waiting_files -= sum(map(is_finished_file, lines))

    async def _gather(self) -> None:
        """Wait until a segment is worth its request."""
        if len(self._lines) < _SEGMENT_LINES and not self._closing.is_set():
            self._due.clear()
            with anyio.move_on_after(_SEGMENT_S):
                await self._due.wait()


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block
