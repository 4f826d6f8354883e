"""Plan: what the sinks are asked to do for one batch."""

from collections.abc import Awaitable, Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple, TypeVar, cast

import anyio
from typing_extensions import Buffer

from dumpstream._errors import FileRefusedError, SinkError
from dumpstream.chunk import Batch
from dumpstream.format.verdict import Verdict
from dumpstream.sinks import SinkFile, Stored, WholeFile
from dumpstream.stages.assembly import File
from dumpstream.stages.events import Part, Whole
from dumpstream.stages.outlet import Outlet, as_sink_error, write_pieces
from dumpstream.system.timeslice import TimeSlice

#: So much of a file is gathered in memory; a file of at most this size is put whole, a larger one written.
SMALL_BYTES = 1 << 20
#: Open files that are written at the same time.
_WRITES_IN_FLIGHT = 16
#: Seconds that a sink has to abort a file.
_ABORT_S = 5.0
_CANCELLED = SinkError("the capture did not wait for the sink")

_Result = TypeVar("_Result")


@dataclass(slots=True, eq=False)
class PartWriter:
    """The bytes of one part on their way into the sinks."""

    part: Part
    pending: list[Buffer] = field(default_factory=list)  #: pieces of the plan that is being made
    gathered: bytearray = field(default_factory=bytearray)  #: of earlier plans, copied, while they are few
    files: Sequence[SinkFile] = ()  #: one per outlet, once a piece was written
    stored: dict[int, Stored] = field(default_factory=dict)  #: by the index of the outlet that committed it
    failed: bool = False
    cause: str | None = None  #: what it is lost to, if a sink refused only this file

    @property
    def unsent(self) -> int:
        """The bytes not yet given to the sinks."""
        return len(self.gathered) + sum(map(len, cast("list[Sized]", self.pending)))

    def take(self) -> list[Buffer]:
        """Return and forget everything not yet given to the sinks."""
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
        self.files = ()


class _Write(NamedTuple):
    writer: PartWriter
    pieces: list[Buffer]
    verdict: Verdict | None  #: of the file, if it ends here


class _Put(NamedTuple):
    writer: PartWriter
    data: Buffer
    verdict: Verdict


@dataclass(slots=True, eq=False)
class Plan:
    """Whole files to put, pieces to write, files that end, and the batch that holds their bytes."""

    batch: Batch | None = None
    continues: bool = False  #: whether earlier plans read from the same batch
    wholes: list[Whole] = field(default_factory=list)
    touched: list[PartWriter] = field(default_factory=list)  #: with pending pieces
    ended: list[tuple[File, list[PartWriter]]] = field(default_factory=list)
    ended_after: list[int] = field(default_factory=list)  #: how many whole files came before each of these
    names: set[str] = field(default_factory=set)  #: of files that end here; once arranged, of all files
    repeatable: set[str] = field(default_factory=set)  #: those of which all files here are small `wholes`
    recalled: int = 0
    parts: int = 0  #: of the files that end
    error: SinkError | None = None
    _puts: list[_Put] = field(default_factory=list)
    _writes: list[list[_Write]] = field(default_factory=list)  #: those of one file together, in order
    _calls: anyio.CancelScope = field(default_factory=anyio.CancelScope)

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
            self.names.add(writer.part.name)
            grown -= len(writer.gathered)
            if writer.unsent <= SMALL_BYTES:
                for piece in writer.pending:
                    writer.gathered += piece
                writer.pending = []
                grown += len(writer.gathered)
            else:
                self._writes.append([_Write(writer, writer.take(), None)])
        for file, writers in self.ended:
            grown -= sum(len(writer.gathered) for writer in writers)
            self._finish(writers, file.verdict)
        return grown

    def _finish(self, writers: Sequence[PartWriter], verdict: Verdict) -> None:
        writes = []
        for writer in writers:
            pieces = writer.take()
            if writer.files or writer.part.offset or writer.part.size > SMALL_BYTES:
                writes.append(_Write(writer, pieces, verdict))
            else:
                self._puts.append(_Put(writer, pieces[0] if len(pieces) == 1 else b"".join(pieces), verdict))
        if writes:
            self._writes.append(writes)

    def flush(self, writers: Iterable[PartWriter], least: int) -> int:
        """Plan to write gathered bytes, at least *least* of them; return how many."""
        freed = 0
        for writer in writers:
            if freed >= least:
                break
            if writer.gathered:
                freed += len(writer.gathered)
                self.names.add(writer.part.name)
                self._writes.append([_Write(writer, writer.take(), None)])
        return freed

    def in_hand(self) -> dict[PartWriter, Buffer]:
        """Return the bytes of the parts that are put whole; valid until `release`."""
        return {put.writer: put.data for put in self._puts}

    def in_order(self, found: Sequence[_Result]) -> Iterator[_Result]:
        """Yield *found*, one for each whole file and then one for each that ended, as the files came."""
        wholes = iter(found[: len(self.wholes)])
        given = 0
        for after, ended in zip(self.ended_after, found[len(self.wholes) :], strict=True):
            yield from islice(wholes, after - given)
            given = after
            yield ended
        yield from wholes

    def release(self) -> None:
        """Give the batch back."""
        self._puts = []
        self._writes = []
        self.wholes = []
        if self.batch is not None:
            self.batch.release()

    def cancel(self) -> None:
        """Stop waiting for the sinks; what they have not finished counts as failed."""
        self._calls.cancel()

    async def run(self, outlets: Sequence[Outlet]) -> list[Sequence[Stored | SinkError]]:
        """Give everything to every outlet; return for each outlet where the whole files went.

        Does not raise what a sink raises: the first failure is left in `error` and in the writers concerned.
        """
        unknown = [_CANCELLED] * (len(self.wholes) + len(self._puts))
        results: list[Sequence[Stored | SinkError]] = [unknown] * len(outlets)
        with self._calls:
            opening = TimeSlice()
            for write in self._each_write():
                await self._open(write.writer, outlets)
                await opening.pause()
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

    async def _open(self, writer: PartWriter, outlets: Sequence[Outlet]) -> None:
        if writer.files or writer.failed:
            return
        for outlet in outlets:
            opening = outlet.open(writer.part.name, offset=writer.part.offset, step=writer.part.step)
            file = await self._result_of(opening, outlet)
            if isinstance(file, SinkError):
                self._fail(writer, file)
                return
            writer.files = (*writer.files, file)

    async def _put(self, outlet: Outlet) -> Sequence[Stored | SinkError]:
        files = [WholeFile(whole.chunk.name, whole.chunk) for whole in self.wholes]
        files += [WholeFile(put.writer.part.name, put.data) for put in self._puts]
        if not files:
            return ()
        told: dict[str, Sequence[object]] = {}
        if outlet.asks_for("verdicts"):
            told["verdicts"] = [
                *(whole.verdict for whole in self.wholes),
                *(put.verdict for put in self._puts),
            ]
        if outlet.asks_for("steps"):
            told["steps"] = [
                *(whole.step for whole in self.wholes),
                *(put.writer.part.step for put in self._puts),
            ]
        stored = await self._result_of(outlet.put(files, told), outlet)
        return [stored] * len(files) if isinstance(stored, SinkError) else stored

    async def _work_through(self, files: Iterator[list[_Write]], index: int, outlet: Outlet) -> None:
        for write in chain.from_iterable(files):
            writer = write.writer
            if not writer.failed:
                writing = write_pieces(writer.files[index], write.pieces, write.verdict)
                stored = await self._result_of(writing, outlet)
                if isinstance(stored, SinkError):
                    self._fail(writer, stored)
                elif stored is not None:
                    writer.stored[index] = stored

    async def _result_of(self, call: Awaitable[_Result], outlet: Outlet) -> _Result | SinkError:
        """Return what *call*, which runs the sink's code, returns, or why it failed."""
        try:
            return await call
        except anyio.get_cancelled_exc_class() as exc:
            if self._calls.cancel_called:
                raise
            # The sink cancelled itself. Taken for a cancellation of the capture, its files would vanish.
            return as_sink_error(outlet, exc)
        except Exception as exc:  # noqa: BLE001 - a sink may raise anything
            return as_sink_error(outlet, exc)

    async def _conclude(self, results: Sequence[Sequence[Stored | SinkError]]) -> None:
        """Give their results to the writers that were put, and abort what failed."""
        first = len(self.wholes)
        for index, result in enumerate(results):
            for (writer, *_), stored in zip(self._puts, result[first:], strict=True):
                if isinstance(stored, SinkError):
                    self._fail(writer, stored)
                else:
                    writer.stored[index] = stored
            for item in result[:first]:
                if isinstance(item, SinkError):
                    self._note(item)
        for write in self._each_write():
            if write.writer.failed:
                await write.writer.abort()

    def _fail(self, writer: PartWriter, error: SinkError) -> None:
        writer.failed = True
        if isinstance(error, FileRefusedError):
            writer.cause = writer.cause or error.cause
        self._note(error)

    def _note(self, error: SinkError) -> None:
        """Let *error* end the capture, unless it concerns one file, or the capture did not wait for it."""
        if not isinstance(error, FileRefusedError) and error is not _CANCELLED:
            self.error = self.error or error
