"""Pipeline: source to reassembler to sinks, with a line in the journal for every file that ends."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from time import monotonic

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled

from dumpstream._errors import CaptureCancelledError, DumpstreamError, RingError, SinkError, SourceError
from dumpstream.archive.journal import Lines
from dumpstream.chunk import Batch, Chunk
from dumpstream.reassemble import Reassembler
from dumpstream.source import Source, receive_from
from dumpstream.stages.abandonment import Abandonment
from dumpstream.stages.assembly import File
from dumpstream.stages.events import End, Event, Hold, Part, Piece, Recall, Whole
from dumpstream.stages.feed import Ending, Feed
from dumpstream.stages.notices import Notices, Progress
from dumpstream.stages.outlet import Outlet, out_of_memory, unwrapped
from dumpstream.stages.plan import SMALL_BYTES, PartWriter, Plan
from dumpstream.stages.tally import DRAIN_TIMEOUT, NO_MEMORY, SINK_FAILED, SOURCE_FAILED, Tally
from dumpstream.system.heldbytes import HeldBytes
from dumpstream.system.timeslice import TimeSlice

_log = logging.getLogger(__name__)

#: While the sinks work on one plan, the next is made and the one after that waits.
_PLANS_IN_FLIGHT = 2
#: Held bytes that come back are passed on in portions of about this size.
_RECALL_BYTES = 8 << 20
#: Chunks that are fed at once: a few milliseconds of work if each is a statistics text of its own.
_FED_CHUNKS = 64
#: Files that are recorded at once: a few milliseconds of work.
_RECORDED_FILES = 128
#: A plan in which files with so many parts end is not extended.
_PLAN_PARTS = 1024
_EXPIRE_S = 1.0
#: The slowest destination that is given the time to take a whole ring.
_DRAINED_BYTES_PER_S = 8 << 20
#: Once the source accepts nothing more, the reader has received everything after this time.
_QUIET_S = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineOptions:
    """What the pipeline may keep in memory beside the ring, and which files it gives to the sinks."""

    held_bytes: int = 16 << 20  #: pieces that wait behind a gap; more goes to a temporary file
    gathered_bytes: int = 16 << 20  #: beginnings of small files, which sinks are to get whole
    only: Sequence[str] = ()  #: patterns of the names of files whose bytes are stored; all if there are none
    #: Seconds, beyond one for each 8 MiB, for storing what is in the ring at the end; the rest is lost.
    drain_timeout: float | None = 300.0

    def __post_init__(self) -> None:
        for name in ("held_bytes", "gathered_bytes"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"{name} must be at least 0, not {value}")
        if self.drain_timeout is not None and not self.drain_timeout >= 0:  # also refuses NaN
            limit = "at least 0 seconds, or None for no limit"
            raise ValueError(f"drain_timeout must be {limit}, not {self.drain_timeout}")
        # A text is a sequence of its characters, each of which would be a pattern.
        object.__setattr__(self, "only", (self.only,) if isinstance(self.only, str) else tuple(self.only))
        if not all(isinstance(pattern, str) and pattern for pattern in self.only):
            raise ValueError(f"only must be patterns such as '*MatMul*', not {self.only!r}")


@dataclass(kw_only=True, eq=False)
class Pipeline:
    """Moves batches from a source through the reassembler into sinks.

    A batch becomes a plan: the whole files to put, the pieces to write to open files, and the files that end.
    Plans without a common file may run at the same time. Plans of the same file never do, so its bytes and
    its parts keep their order. The batch is released when its plan is done.
    """

    source: Source
    reassembler: Reassembler
    outlets: Sequence[Outlet]
    journal: Lines
    held: HeldBytes
    options: PipelineOptions
    notices: Notices
    feed: Feed
    place: str = "the capture"  #: what messages call it
    chunks: int = 0
    bytes: int = 0
    error: DumpstreamError | None = None  #: why the capture failed
    cause: str | None = None  #: the cause of all losses from then on
    #: Set after the last line, or when the capture begins to discard the rest.
    ended: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.tally = Tally(self.journal, [outlet.label for outlet in self.outlets])
        self._writers: dict[Part, PartWriter] = {}
        self._gathered = 0
        self._in_flight: list[Plan] = []
        self._progress = anyio.Event()
        self._consuming = anyio.CancelScope()
        self._plan = Plan()
        self._unhandled: list[Event] = []  # when the capture was abandoned
        self._unfed: Sequence[Chunk] = ()
        self._slice = TimeSlice()

    @property
    def open_files(self) -> int:
        """The number of unfinished files."""
        return self.reassembler.open_files

    @property
    def drain_s(self) -> float:
        """How long the sinks have, from now on, for what is in the ring."""
        limit = self.options.drain_timeout
        if limit is None or self.feed.wanted:  # a consumer has all the time it needs
            return inf
        return limit + self.source.statistics().fill / _DRAINED_BYTES_PER_S

    async def run(self) -> None:
        """Work until the source ends. Never raises: a failure is left in `error`.

        After a failure or `cancel`, only discard what still comes.
        """
        # Shielded from the caller's cancellation, so that every file gets its line.
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                with self._consuming:
                    try:
                        await self._consume(tasks)
                    except (DumpstreamError, OSError, MemoryError) as exc:
                        self._abandon_for(exc)
            if self.cause is None:
                self.ended.set()
                return
            await self._give_up(self.cause)
            self.ended.set()
            self.notices.end(self.error or CaptureCancelledError())
            rest = Abandonment(self.tally, self.cause)  # what was on its way into the ring
            await rest.drain(self.source, patience=inf)
            await rest.record()

    def cancel(self) -> None:
        """Refuse and discard everything from now on, without waiting for sinks; finished files stay."""
        self._drop("cancelled")

    def give_up_draining(self) -> None:
        """Do as `cancel` does, because what was in the ring at the end is not stored after all this time."""
        remedy = "raise drain_timeout, pack small files (pack), or choose a faster destination"
        self.fail(SinkError(f"what was left in the ring was not stored within drain_timeout; {remedy}"))
        self._drop(DRAIN_TIMEOUT)

    def _drop(self, cause: str) -> None:
        self._abandon(cause)
        for plan in self._in_flight:
            plan.cancel()

    def fail(self, error: Exception) -> None:
        """Keep *error*, unless an earlier one is kept, and log it if the capture still runs."""
        if isinstance(error, MemoryError):
            error = out_of_memory()
        elif not isinstance(error, DumpstreamError):
            remedy = "free some space or choose another destination"
            error = SinkError(f"the capture cannot be written: {error}; {remedy}")
        if self.error is None and not self.ended.is_set():
            _log.error("%s: %s; whatever else comes is lost, and counted", self.place, error)
        self.error = self.error or error

    def _abandon_for(self, error: Exception) -> None:
        cause = unwrapped(error)
        if isinstance(error, SinkError):
            error.__traceback__ = None  # its frames hold the chunks, and thereby the ring
        self.fail(cause if isinstance(cause, MemoryError) else error)
        lost_to = SOURCE_FAILED if isinstance(error, SourceError | RingError) else SINK_FAILED
        self._abandon(NO_MEMORY if isinstance(cause, MemoryError) else lost_to)

    def _abandon(self, cause: str) -> None:
        if self.cause is None:
            self.cause = cause
            self.source.discard()
            self.notices.abandon()
            self._consuming.cancel()

    # From batches to plans

    async def _consume(self, tasks: TaskGroup) -> None:
        while True:
            batch = None
            with anyio.move_on_after(_EXPIRE_S):
                try:
                    batch = await receive_from(self.source)
                except anyio.EndOfStream:
                    break
            now = monotonic()
            if batch is not None:
                await self._take(batch, now, tasks)
            if self.reassembler.open_files:
                await self._handle(self.reassembler.expire(now), tasks)
                await self._submit(tasks)
        await self._handle(self.reassembler.finish(self.source.cut_off), tasks)
        await self._submit(tasks)
        await self._settle()
        await self.journal.drain()

    async def _take(self, batch: Batch, now: float, tasks: TaskGroup) -> None:
        self._plan.batch = batch
        chunks = self._unfed = batch.chunks
        for loss in batch.losses:
            await self._handle(
                self.reassembler.lose(loss.name, loss.cause, loss.bytes, ended=loss.ended, now=now), tasks
            )
        self.reassembler.mark(batch.step)
        self.chunks += len(chunks) - sum([chunk.more for chunk in chunks])
        self.bytes += sum(map(len, chunks))
        for start in range(0, len(chunks), _FED_CHUNKS):
            fed, self._unfed = chunks[start : start + _FED_CHUNKS], chunks[start + _FED_CHUNKS :]
            await self._handle(self.reassembler.feed(fed, now), tasks)
            await self._slice.pause()
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
                    small = len(event.chunk) <= SMALL_BYTES
                    if name in plan.names and not (small and name in plan.repeatable):
                        plan = await self._split_plan(tasks)
                    plan.names.add(name)
                    if small:
                        plan.repeatable.add(name)
                    plan.wholes.append(event)
                elif isinstance(event, Piece):
                    writer = writers.get(event.part)
                    if writer is None:
                        plan = await self._plan_without(event.part.name, tasks)
                        writer = writers[event.part] = PartWriter(event.part)
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
        await self._slice.pause()  # one chunk may have thousands of these events
        if isinstance(event, End):
            await self._end(event.file, tasks)
        elif isinstance(event, Hold):
            await self.held.keep(event.held, event.data)
        else:
            await self._recall(event, tasks)
        return self._plan

    async def _end(self, file: File, tasks: TaskGroup) -> None:
        plan = await self._plan_without(file.name, tasks)
        plan.names.add(file.name)
        writers = self._writers
        plan.ended.append(
            (file, [writers.pop(part) if part in writers else PartWriter(part) for part in file.parts])
        )
        plan.ended_after.append(len(plan.wholes))
        plan.parts += len(file.parts)
        if plan.parts >= _PLAN_PARTS:
            await self._split_plan(tasks)

    async def _recall(self, event: Recall, tasks: TaskGroup) -> None:
        data = await self.held.take(event.held)
        self._plan.recalled += event.held.length
        await self._handle(self.reassembler.restore(event.held, data), tasks)
        if self._plan.recalled > _RECALL_BYTES:
            await self._split_plan(tasks)
            await self._settle()

    async def _plan_without(self, name: str, tasks: TaskGroup) -> Plan:
        """Return a plan in which no file *name* ends: a further file of the same name must come later."""
        return await self._split_plan(tasks) if name in self._plan.names else self._plan

    async def _split_plan(self, tasks: TaskGroup) -> Plan:
        """Submit what is planned so far; the batch stays leased until the plan that follows is done."""
        batch, self._plan.batch = self._plan.batch, None
        try:
            await self._submit(tasks)
        finally:
            self._plan.batch, self._plan.continues = batch, True
        return self._plan

    async def _submit(self, tasks: TaskGroup) -> None:
        """Start the plan as soon as no plan in flight has a file in common with it."""
        plan = self._plan
        self._gathered += plan.arrange()
        if self._gathered > self.options.gathered_bytes:
            self._gathered -= plan.flush(self._writers.values(), self._gathered // 2)
        if plan.empty:
            if plan.continues:
                await self._settle()
            self._plan = Plan()
            plan.release()
            return
        while len(self._in_flight) >= _PLANS_IN_FLIGHT or any(
            not plan.names.isdisjoint(other.names) for other in self._in_flight
        ):
            await self._progress.wait()
        if self.journal.full:
            await self.journal.drain()
        # cancel() would not reach a plan that began after it.
        await checkpoint_if_cancelled()
        self._plan = Plan()
        self._in_flight.append(plan)
        tasks.start_soon(self._execute, plan)

    async def _settle(self) -> None:
        while self._in_flight:
            await self._progress.wait()

    # From plans to sinks and journal

    async def _execute(self, plan: Plan) -> None:
        try:
            stored = await plan.run(self.outlets)
            cause = self.cause or SINK_FAILED
            endings: list[Ending] | None = [] if self.feed.wanted else None
            in_hand = {} if endings is None else plan.in_hand()
            results = zip(*stored, strict=True)
            for start in range(0, len(plan.wholes), _RECORDED_FILES):
                wholes = plan.wholes[start : start + _RECORDED_FILES]
                self.tally.record_wholes(wholes, islice(results, len(wholes)), cause, endings)
                await self._slice.pause()
            for start in range(0, len(plan.ended), _RECORDED_FILES):
                ended = plan.ended[start : start + _RECORDED_FILES]
                self.tally.record_ended(ended, cause, endings, in_hand)
                await self._slice.pause()
            if plan.error is not None:
                self.fail(plan.error)
                self._abandon(SINK_FAILED)
            self.notices.offer(Progress())
            if endings:
                while self._in_flight[0] is not plan:  # consumers get files in the order in which they came
                    await self._progress.wait()
                await self.feed.tell(plan.in_order(endings))
                self.notices.offer(Progress())
        except Exception as exc:  # noqa: BLE001 - after any error, the capture must not end as if all were well
            self._abandon_for(exc)
        finally:
            plan.release()
            self._in_flight.remove(plan)
            self._progress.set()
            self._progress = anyio.Event()

    # The end of an abandoned capture

    async def _give_up(self, cause: str) -> None:
        """Record every unfinished file as lost to *cause*, and abort it in the sinks."""
        abandoned = Abandonment(self.tally, cause)
        writers = [*self._writers.values()]
        for file, ending in self._plan.ended:
            writers += ending
            abandoned.add_file(file)
        for events in (self._plan.wholes, self._unhandled, self.reassembler.finish()):
            await abandoned.add_events(events)
        abandoned.add_chunks(self._unfed)
        self._unhandled, self._unfed = [], ()
        self._plan.release()
        for writer in writers:
            await writer.abort()
        await self.held.aclose()  # the journal may need the space
        await abandoned.drain(self.source, patience=_QUIET_S)
        await abandoned.record()
