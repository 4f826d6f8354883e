"""Pipeline: source to reassembler to sinks, with a line in the journal for every file that ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import anyio

from dumpstream._errors import DumpstreamError, SinkError
from dumpstream.plan import Outlet, Plan, Writer
from dumpstream.reassemble import End, Hold, Piece, Reassembler, Recall, Whole
from dumpstream.rows import StoredPart, file_row
from dumpstream.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anyio.abc import TaskGroup

    from dumpstream.assembly import File
    from dumpstream.events import Event, Part
    from dumpstream.hold import HeldBytes
    from dumpstream.journal import Journal
    from dumpstream.sinks import Stored
    from dumpstream.source import Batch, Source

#: While the sinks are busy with one plan, the next is made ready and the one after that waits.
_PLANS_IN_FLIGHT = 2
#: Held bytes that come back are passed on in portions of about this size.
_RECALL_BYTES = 8 << 20
_EXPIRE_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineOptions:
    """What the pipeline may keep in memory beside the ring."""

    held_bytes: int = 16 << 20  #: pieces that wait for a gap in front of them; more goes to a temporary file
    gathered_bytes: int = 16 << 20  #: beginnings of small files, gathered so that sinks get them whole


class Pipeline:
    """Moves batches from a source through the reassembler into sinks.

    A batch becomes a plan: which whole files to put, what to write to which open ones, which of them end.
    Plans that have no file in common may overlap; a file's plans never do, so its bytes and its parts keep
    their order. The batch is released when its plan is done.
    """

    def __init__(
        self,
        *,
        source: Source,
        reassembler: Reassembler,
        outlets: Sequence[Outlet],
        journal: Journal,
        held: HeldBytes,
        options: PipelineOptions,
    ) -> None:
        self.source = source
        self._reassembler = reassembler
        self._outlets = outlets
        self._journal = journal
        self._held = held
        self._options = options
        self._writers: dict[Part, Writer] = {}
        self._gathered = 0
        self._in_flight: list[Plan] = []
        self._progress = anyio.Event()
        self._consuming = anyio.CancelScope()
        self._plan = Plan()
        self._unhandled: list[Event] = []  # when the capture was abandoned
        self.error: DumpstreamError | None = None  #: why the capture failed
        self.cause: str | None = None  #: what everything from then on is lost to
        self.chunks = 0
        self.bytes = 0
        self.stored_bytes = 0
        self.verdicts: Counter[Verdict] = Counter()
        self.lost_chunks = 0
        self.lost_bytes = 0

    @property
    def open_files(self) -> int:
        """The number of files of which more may come."""
        return self._reassembler.open_files

    async def run(self) -> None:
        """Work until the source ends, or until `abandon`. Never raises: a failure is left in `error`."""
        # Only stop() of the source and abandon() end the pipeline, so that every file gets its line.
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                with self._consuming:
                    try:
                        await self._consume(tasks)
                    except (DumpstreamError, OSError) as exc:
                        self._fail(exc)
            if self.cause is not None:
                await self._account_for_the_rest(self.cause)

    def abandon(self, cause: str) -> None:
        """Refuse and discard everything from now on; what is finished stays."""
        if self.cause is None:
            self.cause = cause
            self.source.discard()
            self._consuming.cancel()

    def _fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = error if isinstance(error, DumpstreamError) else _explain(error)
        self.abandon("sink_failed")

    # From batches to plans

    async def _consume(self, tasks: TaskGroup) -> None:
        while True:
            batch = None
            with anyio.move_on_after(_EXPIRE_S):
                try:
                    batch = await self.source.receive()
                except anyio.EndOfStream:
                    break
            now = monotonic()
            if batch is not None:
                await self._take(batch, now, tasks)
            if self._reassembler.open_files:
                await self._handle(self._reassembler.expire(now), tasks)
                await self._submit(tasks)
        await self._handle(self._reassembler.finish(), tasks)
        await self._submit(tasks)
        await self._settle()
        await self._journal.drain()

    async def _take(self, batch: Batch, now: float, tasks: TaskGroup) -> None:
        self._plan.batch = batch
        for loss in batch.losses:
            await self._handle(
                self._reassembler.lose(loss.name, loss.cause, loss.bytes, ended=loss.ended, now=now), tasks
            )
        chunks = batch.chunks
        self.chunks += len(chunks) - sum([chunk.more for chunk in chunks])
        self.bytes += sum(map(len, chunks))
        await self._handle(self._reassembler.feed(chunks, now), tasks)
        await self._submit(tasks)

    async def _handle(self, events: Iterable[Event], tasks: TaskGroup) -> None:
        plan = self._plan
        writers = self._writers
        rest = iter(events)
        event: Event | None = None
        try:
            for event in rest:
                if isinstance(event, Whole):
                    name = event.chunk.name
                    if name in plan.names:
                        plan = await self._split_plan(tasks)
                    plan.names.add(name)
                    plan.wholes.append(event)
                elif isinstance(event, Piece):
                    writer = writers.get(event.part)
                    if writer is None:
                        plan = await self._plan_without(event.part.file.name, tasks)
                        writer = writers[event.part] = Writer(event.part)
                    if not writer.pending:
                        plan.touched.append(writer)
                    writer.pending.append(event.data)
                else:
                    plan = await self._handle_rare(event, tasks)
        except BaseException:
            if event is not None:
                self._unhandled += [event, *rest]
            raise

    async def _handle_rare(self, event: Hold | Recall | End, tasks: TaskGroup) -> Plan:
        if isinstance(event, End):
            await self._end(event.file, tasks)
        elif isinstance(event, Hold):
            await self._held.keep(event.held, event.data)
        else:
            await self._recall(event, tasks)
        return self._plan

    async def _end(self, file: File, tasks: TaskGroup) -> None:
        plan = await self._plan_without(file.name, tasks)
        plan.names.add(file.name)
        writers = [self._writers.pop(part) if part in self._writers else Writer(part) for part in file.parts]
        plan.ended.append((file, writers))

    async def _recall(self, event: Recall, tasks: TaskGroup) -> None:
        data = await self._held.take(event.held)
        self._plan.recalled += event.held.length
        await self._handle(self._reassembler.restore(event.held, data), tasks)
        if self._plan.recalled > _RECALL_BYTES:
            await self._split_plan(tasks)
            await self._settle()

    async def _plan_without(self, name: str, tasks: TaskGroup) -> Plan:
        """Return a plan in which no file of this name ends: what comes again must come later."""
        return await self._split_plan(tasks) if name in self._plan.names else self._plan

    async def _split_plan(self, tasks: TaskGroup) -> Plan:
        """Submit what is planned so far; the batch stays leased until the plan that follows is done."""
        batch, self._plan.batch = self._plan.batch, None
        try:
            await self._submit(tasks)
        finally:
            self._plan.batch = batch
        return self._plan

    async def _submit(self, tasks: TaskGroup) -> None:
        """Start the plan as soon as no plan in flight has a file in common with it."""
        plan = self._plan
        self._gathered += plan.arrange()
        if self._gathered > self._options.gathered_bytes:
            self._gathered -= plan.flush(self._writers.values(), self._gathered // 2)
        if plan.empty:
            self._plan = Plan()
            plan.release()
            return
        while len(self._in_flight) >= _PLANS_IN_FLIGHT or any(
            not plan.names.isdisjoint(other.names) for other in self._in_flight
        ):
            await self._progress.wait()
        if self._journal.full:
            await self._journal.drain()
        self._plan = Plan()
        self._in_flight.append(plan)
        tasks.start_soon(self._execute, plan)

    async def _settle(self) -> None:
        while self._in_flight:
            await self._progress.wait()

    # From plans to sinks and journal

    async def _execute(self, plan: Plan) -> None:
        try:
            stored = await plan.run(self._outlets)
            self._record_wholes(plan, stored)
            self._record_ended(plan)
            if (error := plan.error) is not None:
                self._fail(error)
        finally:
            plan.release()
            self._in_flight.remove(plan)
            self._progress.set()
            self._progress = anyio.Event()

    def _record_wholes(self, plan: Plan, stored: Sequence[Sequence[Stored | SinkError]]) -> None:
        labels = [outlet.label for outlet in self._outlets]
        add = self._journal.add
        verdicts = self.verdicts
        for (chunk, verdict), results in zip(plan.wholes, zip(*stored, strict=True), strict=False):
            size = len(chunk)
            parts = []
            for label, result in zip(labels, results, strict=True):
                if isinstance(result, SinkError):
                    self._record_lost(chunk.name, 1, size, "sink_failed")
                    break
                if result.path is not None:
                    parts.append(StoredPart(label, result.path, 0, size, result.bytes, result.xxh3))
                    self.stored_bytes += result.bytes
            else:
                verdicts[verdict] += 1
                add(file_row(chunk.name, size, 1, verdict, parts))

    def _record_ended(self, plan: Plan) -> None:
        for file, writers in plan.ended:
            parts = []
            for writer in writers:
                for outlet, result in zip(self._outlets, writer.stored, strict=False):
                    if result.path is not None:
                        offset, size = writer.part.offset, writer.part.size
                        parts.append(StoredPart(outlet.label, result.path, offset, size, *result[1:]))
                        self.stored_bytes += result.bytes
            if any(writer.failed for writer in writers):
                self._record_lost(file.name, file.chunks, file.bytes, "sink_failed", parts)
                continue
            self.verdicts[file.verdict] += 1
            self._journal.add(
                file_row(
                    file.name,
                    file.bytes,
                    file.chunks,
                    file.verdict,
                    parts,
                    cause=file.cause,
                    lost_bytes=file.lost_bytes,
                    missing=file.missing,
                    duplicates=file.duplicates,
                )
            )

    def _record_lost(
        self, name: str, chunks: int, size: int, cause: str, parts: Sequence[StoredPart] = ()
    ) -> None:
        self.verdicts[Verdict.LOST] += 1
        self.lost_chunks += chunks
        self.lost_bytes += size
        self._journal.add(file_row(name, 0, chunks, Verdict.LOST, parts, cause=cause, lost_bytes=size))

    # The end of an abandoned capture

    async def _account_for_the_rest(self, cause: str) -> None:
        """Give every file that is not finished its line: those being assembled, and those in the ring."""
        lost: dict[str, tuple[int, int]] = {}
        writers = [*self._writers.values()]
        for file, ending in self._plan.ended:
            writers += ending
            _add(lost, file.name, file.chunks, file.bytes)
        for event in [*self._plan.wholes, *self._unhandled, *self._reassembler.finish()]:
            if isinstance(event, Whole):
                _add(lost, event.chunk.name, 1, len(event.chunk))
            elif isinstance(event, End):
                _add(lost, event.file.name, event.file.chunks, event.file.bytes)
        self._unhandled = []
        self._plan.release()
        for writer in writers:
            await writer.abort()
        await self.source.stop()
        try:
            while True:
                with await self.source.receive() as batch:
                    for chunk in batch.chunks:
                        _add(lost, chunk.name, 0 if chunk.more else 1, len(chunk))
        except (anyio.EndOfStream, DumpstreamError):
            pass
        for name, (chunks, size) in lost.items():
            self._record_lost(name, chunks, size, cause)


def _add(lost: dict[str, tuple[int, int]], name: str, chunks: int, size: int) -> None:
    seen_chunks, seen_size = lost.get(name, (0, 0))
    lost[name] = seen_chunks + chunks, seen_size + size


def _explain(error: Exception) -> DumpstreamError:
    return SinkError(f"the capture cannot be written: {error}; free some space or choose another destination")
