"""Plan: what one batch asks of the sinks, crossing to them once."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import anyio

from dumpstream._errors import FileRefusedError, SinkError
from dumpstream.sinks import Stored, WholeFile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator, Sequence, Sized

    from typing_extensions import Buffer

    from dumpstream.sinks import Sink, SinkFile
    from dumpstream.source import Batch
    from dumpstream.stages.assembly import File
    from dumpstream.stages.events import Part, Whole

#: Up to this is gathered in memory: a file of no more is put whole, a larger one written in portions.
_SMALL_BYTES = 1 << 20
#: Open files that are written to at the same time.
_WRITES_IN_FLIGHT = 16
#: Seconds that a sink has for leaving no trace of a file.
_ABORT_S = 5.0
_CANCELLED = SinkError("the sink was not waited for")


_Result = TypeVar("_Result")


class Outlet(NamedTuple):
    """A sink, and what the journal calls it."""

    label: str
    sink: Sink


class Writer:
    """The bytes of one part on their way into the sinks."""

    __slots__ = ("cause", "failed", "files", "gathered", "part", "pending", "stored")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.pending: list[Buffer] = []  #: pieces of the plan being made
        self.gathered = bytearray()  #: pieces of earlier plans, copied, because they are still few
        self.files: list[SinkFile] = []  #: one per outlet once some of it was written
        self.stored: dict[int, Stored] = {}  #: by outlet, where it is committed
        self.failed = False
        self.cause: str | None = None  #: what it is lost to, if a sink refused it and goes on

    @property
    def unsent(self) -> int:
        """The bytes not yet given to the sinks."""
        return len(self.gathered) + sum(map(len, cast("list[Sized]", self.pending)))

    def take(self) -> list[Buffer]:
        """Return everything not yet given to the sinks, and forget it."""
        pieces, self.pending = self.pending, []
        if self.gathered:
            pieces.insert(0, self.gathered)
            self.gathered = bytearray()
        return pieces

    async def abort(self) -> None:
        """Leave no trace of the part in any sink that has not committed it."""
        for index, file in enumerate(self.files):
            if index not in self.stored:
                with suppress(Exception), anyio.move_on_after(_ABORT_S):
                    await file.abort()
        self.files = []


class _Write(NamedTuple):
    writer: Writer
    pieces: list[Buffer]
    commit: bool


class Plan:
    """Whole files to put, pieces to write, files that end; and the batch their bytes lie in."""

    __slots__ = (
        "_calls",
        "_puts",
        "_writes",
        "batch",
        "continues",
        "ended",
        "error",
        "names",
        "recalled",
        "touched",
        "wholes",
    )

    def __init__(self) -> None:
        self.batch: Batch | None = None
        self.continues = False  #: whether earlier plans read from the same batch
        self.wholes: list[Whole] = []
        self.touched: list[Writer] = []  #: with pending pieces
        self.ended: list[tuple[File, list[Writer]]] = []
        self.names: set[str] = set()  #: of files that end here; once arranged, of all files
        self.recalled = 0
        self.error: SinkError | None = None
        self._puts: list[tuple[Writer, Buffer]] = []
        self._writes: list[list[_Write]] = []  #: those of one file together, in order
        self._calls = anyio.CancelScope()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.wholes or self._puts or self._writes)

    def arrange(self) -> int:
        """Decide what is put, written and gathered; return by how much the gathered bytes grew."""
        ending = {writer for _, writers in self.ended for writer in writers}
        grown = 0
        for writer in self.touched:
            if writer in ending:
                continue
            self.names.add(writer.part.file.name)
            grown -= len(writer.gathered)
            if writer.unsent <= _SMALL_BYTES:
                for piece in writer.pending:
                    writer.gathered += piece
                writer.pending = []
                grown += len(writer.gathered)
            else:
                self._writes.append([_Write(writer, writer.take(), commit=False)])
        for _, writers in self.ended:
            grown -= sum(len(writer.gathered) for writer in writers)
            self._finish(writers)
        return grown

    def _finish(self, writers: Sequence[Writer]) -> None:
        writes = []
        for writer in writers:
            pieces = writer.take()
            if writer.files or writer.part.offset or writer.part.size > _SMALL_BYTES:
                writes.append(_Write(writer, pieces, commit=True))
            else:
                self._puts.append((writer, pieces[0] if len(pieces) == 1 else b"".join(pieces)))
        if writes:
            self._writes.append(writes)

    def flush(self, writers: Iterable[Writer], least: int) -> int:
        """Write out gathered bytes, at least so many, and return how many."""
        freed = 0
        for writer in writers:
            if freed >= least:
                break
            if writer.gathered:
                freed += len(writer.gathered)
                self.names.add(writer.part.file.name)
                self._writes.append([_Write(writer, writer.take(), commit=False)])
        return freed

    def release(self) -> None:
        """Give the batch back."""
        self._puts = []
        self._writes = []
        self.wholes = []
        if self.batch is not None:
            self.batch.release()

    def cancel(self) -> None:
        """Wait for the sinks no longer; what they have not finished counts as failed."""
        self._calls.cancel()

    async def run(self, outlets: Sequence[Outlet]) -> list[Sequence[Stored | SinkError]]:
        """Give everything to every outlet; return what became of the wholes, a list per outlet.

        Never raises for a sink: the first failure is left in `error`, and in the writers it concerns.
        """
        unknown = [_CANCELLED] * (len(self.wholes) + len(self._puts))
        results: list[Sequence[Stored | SinkError]] = [unknown] * len(outlets)
        with self._calls:
            for write in self._each_write():
                await self._open(write.writer, outlets)
            if len(outlets) == 1 and not self._writes:
                results[0] = await self._put(outlets[0])
            else:
                async with anyio.create_task_group() as tasks:

                    async def put(index: int) -> None:
                        results[index] = await self._put(outlets[index])

                    for index, outlet in enumerate(outlets):
                        tasks.start_soon(put, index)
                        files = iter(self._writes)
                        for _ in range(min(_WRITES_IN_FLIGHT, len(self._writes))):
                            tasks.start_soon(self._work_through, files, index, outlet)
        if self._calls.cancelled_caught:
            for write in self._each_write():
                write.writer.failed = len(write.writer.stored) < len(outlets)
        await self._conclude(results)
        return [result[: len(self.wholes)] for result in results]

    def _each_write(self) -> Iterable[_Write]:
        return chain.from_iterable(self._writes)

    async def _open(self, writer: Writer, outlets: Sequence[Outlet]) -> None:
        if writer.files or writer.failed:
            return
        for outlet in outlets:
            opening = outlet.sink.open(writer.part.file.name, offset=writer.part.offset)
            file = await self._result_of(opening, outlet)
            if isinstance(file, SinkError):
                self._fail(writer, file)
                return
            writer.files.append(file)

    async def _put(self, outlet: Outlet) -> Sequence[Stored | SinkError]:
        files = [WholeFile(chunk.name, chunk) for chunk, _ in self.wholes]
        files += [WholeFile(writer.part.file.name, data) for writer, data in self._puts]
        if not files:
            return ()
        stored = await self._result_of(_checked_put(outlet.sink, files), outlet)
        return [stored] * len(files) if isinstance(stored, SinkError) else stored

    async def _work_through(self, files: Iterator[list[_Write]], index: int, outlet: Outlet) -> None:
        for write in chain.from_iterable(files):
            writer = write.writer
            if not writer.failed:
                stored = await self._result_of(_checked_write(writer.files[index], write), outlet)
                if isinstance(stored, SinkError):
                    self._fail(writer, stored)
                elif stored is not None:
                    writer.stored[index] = stored

    async def _result_of(self, call: Awaitable[_Result], outlet: Outlet) -> _Result | SinkError:
        """Return what *call*, into anybody's code, returns, or why it failed."""
        try:
            return await call
        except anyio.get_cancelled_exc_class() as exc:
            if self._calls.cancel_called:
                raise
            # Something inside the sink was cancelled; taken for a cancellation of ours, files would vanish.
            return as_sink_error(outlet, exc)
        except Exception as exc:  # noqa: BLE001 - anybody's code
            return as_sink_error(outlet, exc)

    async def _conclude(self, results: Sequence[Sequence[Stored | SinkError]]) -> None:
        """Hand the results of the puts to their writers, and abort what failed."""
        first = len(self.wholes)
        for index, result in enumerate(results):
            for (writer, _), stored in zip(self._puts, result[first:], strict=True):
                if not isinstance(stored, SinkError):
                    writer.stored[index] = stored
                elif stored is _CANCELLED:
                    writer.failed = True
                else:
                    self._fail(writer, stored)
            for item in result:
                if isinstance(item, SinkError) and item is not _CANCELLED:
                    self._note(item)
        for write in self._each_write():
            if write.writer.failed:
                await write.writer.abort()

    def _fail(self, writer: Writer, error: SinkError) -> None:
        writer.failed = True
        if isinstance(error, FileRefusedError):
            writer.cause = writer.cause or error.cause
        self._note(error)

    def _note(self, error: SinkError) -> None:
        """Let *error* end the capture, unless it concerns one file alone."""
        if not isinstance(error, FileRefusedError):
            self.error = self.error or error


async def _checked_put(sink: Sink, files: Sequence[WholeFile]) -> Sequence[Stored | SinkError]:
    results = list(await sink.put(files))
    if len(results) != len(files):
        raise TypeError(f"put() told of {len(results)} files when it was given {len(files)}")
    for result in results:
        if not isinstance(result, SinkError):
            _check_stored(result, "put")
    return results


async def _checked_write(file: SinkFile, write: _Write) -> Stored | None:
    if write.pieces:
        await file.write(write.pieces)
    if not write.commit:
        return None
    stored = await file.commit()
    _check_stored(stored, "commit")
    return stored


def _check_stored(stored: Stored, method: str) -> None:
    if not isinstance(stored, Stored) or not isinstance(stored.path, str | None):
        raise TypeError(f"{method}() returned {stored!r} for a file; it must be a Stored")


def as_sink_error(outlet: Outlet, error: BaseException) -> SinkError:
    """Return *error* as what a sink should have raised."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, SinkError):
        return error
    wrapped = SinkError(f"the {outlet.label} sink failed: {error!r}")
    wrapped.__cause__ = error
    return wrapped
