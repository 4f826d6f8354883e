"""Session: the stages of a capture at work, from the first line in the journal to the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync

from dumpstream import _native
from dumpstream._errors import CutOffError, DestinationError, DumpstreamError, SinkError
from dumpstream.archive.destination import explained
from dumpstream.archive.journal import Lines
from dumpstream.archive.manifest import PROFILE, Configured
from dumpstream.archive.pulse import Pulse
from dumpstream.archive.remains import Remains
from dumpstream.archive.rows import BeginRow, EndRow, LossRow, Outcome, timestamp
from dumpstream.pipeline import Pipeline
from dumpstream.remote.outboxes import waiting_text
from dumpstream.run.dumping import end_dump
from dumpstream.run.preparation import Preparation
from dumpstream.source import RingSource
from dumpstream.stages.finished import FinishedFile
from dumpstream.stages.outlet import as_sink_error
from dumpstream.stages.report import LossCount, Report
from dumpstream.stages.tally import SINK_FAILED
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from dumpstream.diagnosis.alerts import Alert

#: Seconds that the sinks have for closing after a cancellation.
_CLOSE_S = 5
#: Every so many seconds other processes are told the figures, if they have changed; in any case before they
#: seem to be out of date.
_TELL_S, _STALE_S = 1.0, 4.0


class Session:
    """A run that has begun: the run *number* of its destination, whose lines go to *journal*."""

    def __init__(self, preparation: Preparation, *, pipeline: Pipeline, journal: Lines, number: int) -> None:
        asked = preparation.asked
        self.destination = preparation.destination
        self.pipeline = pipeline
        self.notices = preparation.notices
        self.patience = preparation.resources.patience
        self._number = number
        self._outlets = preparation.outlets
        self._journal = journal
        self._alerting = preparation.alerting
        self._dump = preparation.dump
        self._modes: tuple[str, ...] | None = None if asked is None else asked.dump.modes
        self._profile = None if preparation.profiler is None else PROFILE
        self._spill = preparation.request.stages.sinks.spill
        self._drained = anyio.Event()
        self._left = False  # whether the caller has left the block
        self._started = monotonic()
        self._ended: float | None = None
        self._late_before = _native.late_calls()
        self._late = 0
        self.late_elsewhere = 0  #: late calls in the program, if this is another process
        self.skipped_elsewhere = 0  #: files that consumers in the program missed, if this is another process
        self.cut_off: CutOffError | None = None  #: how the program left its capture, if not in order

    @property
    def path(self) -> Path | Prefix | None:
        """Where the files go."""
        return self.destination.path

    @property
    def remains(self) -> Remains:
        """What the deletion of an earlier capture left."""
        return self.destination.remains

    @property
    def alerts(self) -> Sequence[Alert] | None:
        """What was found to be bad so far; None if nothing is looked for."""
        return None if self._alerting is None else self._alerting.told

    @property
    def error(self) -> DumpstreamError | None:
        """Why the run ended early."""
        return self.pipeline.error

    @property
    def ended(self) -> anyio.Event:
        """Set when the run is over, or begins to discard the rest."""
        return self.pipeline.ended

    def mark(self, step: int) -> None:
        """Let chunks that come from now on have *step*; raises `ValueError` if only its source can."""
        source = self.pipeline.source
        if not isinstance(source, RingSource):
            raise ValueError(  # noqa: TRY004 - the caller has passed the source, not this
                f"the source {type(source).__name__} says the steps itself; pass them to its batches, as in "
                "Batch(chunks, losses, step=3)"
            )
        source.mark(step)

    def hurry(self, seconds: float | None = None) -> None:
        """Wait less for stores that do not answer."""
        self.patience.limit(seconds)

    def report(self) -> Report:
        """Return the current figures, or the final ones once the run has ended."""
        pipeline, tally = self.pipeline, self.pipeline.tally
        ring = pipeline.source.statistics()
        losses = {cause: LossCount(*lost) for cause, lost in ring.losses.items()}
        losses |= {cause: LossCount(*lost) for cause, lost in tally.losses.items() if lost[0]}
        if self._late:
            losses["late"] = LossCount(self._late, 0)
        return Report(
            seconds=(self._ended or monotonic()) - self._started,
            chunks=pipeline.chunks,
            bytes=pipeline.bytes,
            files=tally.verdicts.total(),
            open_files=pipeline.open_files,
            stored_bytes=tally.stored_bytes,
            not_stored=tally.not_stored,
            verdicts={str(verdict): count for verdict, count in sorted(tally.verdicts.items())},
            losses=losses,
            unnamed_losses=ring.unnamed,
            waiting=self._journal.waiting,
            waiting_files=self._journal.waiting_files,
            skipped_files=self.notices.skipped[FinishedFile] + self.skipped_elsewhere,
            ring_bytes=ring.size,
            ring_fill=ring.fill,
            failure=pipeline.cause if pipeline.error is None else str(pipeline.error),
            cut_off=None if self._ended is None else pipeline.source.cut_off,
            modes=self._modes,
            profile=self._profile,
        )

    async def configure(self, configured: Sequence[Configured]) -> None:
        """Record what is known of the dump configurations; if that fails, the end of the run repeats it."""
        self._modes = await run_sync(_modes_of, configured)
        if self._alerting is not None:
            await run_sync(self._alerting.configure, configured)
        with suppress(DestinationError):
            await run_sync(self.destination.configure_run, configured)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the pipeline beside the block; after it, end the dump, the pipeline and the journal.

        A cancellation ends the pipeline at once; the dump and the journal are ended all the same.
        """
        self._journal.add(BeginRow(self._number, timestamp()).to_line())
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run_pipeline)
                tasks.start_soon(self._heed_cancellation)
                tasks.start_soon(self._tell)
                if self._alerting is not None:
                    tasks.start_soon(self._alerting.run, self._journal)
                try:
                    yield
                except BaseException as exc:  # noqa: BLE001 - raised outside the group, which would wrap it
                    failure = exc
                self._left = True
                # A task of its own: the one that leaves the block may be cancelled while it waits.
                tasks.start_soon(self._end)
        finally:
            try:
                await self._close_sinks()
            finally:
                try:
                    await self._finish(self._write_end())
                finally:
                    self.notices.end(self.pipeline.error)
        if failure is not None:
            raise failure

    def raise_error(self) -> None:
        """Raise the error of the pipeline, if there is one; its note says how to upload what waits."""
        if self.pipeline.error is not None:
            if self._journal.waiting:
                self.pipeline.error.add_note(waiting_text(self._journal.waiting_files, self._spill))
            raise self.pipeline.error

    async def _run_pipeline(self) -> None:
        try:
            await self.pipeline.run()
        finally:
            if self._alerting is not None:
                await self._alerting.finish(self._journal)
            self._drained.set()
            if not self._left:  # the source has ended by itself, and consumers may be in the block
                self.notices.end(self.pipeline.error)

    async def _heed_cancellation(self) -> None:
        try:
            await self._drained.wait()
        except anyio.get_cancelled_exc_class():
            self.pipeline.cancel()
            self._hasten()
            raise

    async def _tell(self) -> None:
        """Let other processes see the figures, until everything has come."""
        before: Pulse | None = None
        while not self._drained.is_set():
            pulse = _pulse_of(self.report())
            if (
                before is None
                or replace(pulse, time=0) != replace(before, time=0)
                or not before.is_fresh(_STALE_S)
            ):
                with suppress(OSError):  # the journal says so if the disk is full
                    await run_sync(self.destination.tell, pulse)
                before = pulse
            with anyio.move_on_after(_TELL_S):
                await self._drained.wait()

    def _hasten(self) -> None:
        """Give stores only a few seconds to answer, because the caller is cancelled."""
        if self.patience.seconds > _CLOSE_S:
            self.patience.limit(_CLOSE_S)

    async def _finish(self, ending: Coroutine[None, None, None]) -> None:
        """Await *ending*, which goes on, in haste, if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(ending)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self._hasten()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
            raise
        finally:
            task.result()

    async def _end(self) -> None:
        with anyio.CancelScope(shield=True):
            await end_dump(
                self._dump,
                self._drain,
                given_up=lambda: self.pipeline.cause is not None,
                fail=self.pipeline.fail,
            )

    async def _drain(self) -> None:
        await self.pipeline.source.stop()
        with anyio.move_on_after(self.pipeline.drain_s) as limit:
            await self._drained.wait()
        if limit.cancelled_caught:
            self.pipeline.give_up_draining()
            await self._drained.wait()

    async def _close_sinks(self) -> None:
        """Let the sinks finish; a cancelled caller gives them a few seconds more."""
        try:
            await self._close_each()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_CLOSE_S, shield=True) as scope:
                await self._close_each()
            if scope.cancelled_caught:
                self.pipeline.fail(SinkError(f"a sink did not close within {_CLOSE_S} s of the cancellation"))
            raise

    async def _close_each(self) -> None:
        for outlet in self._outlets:
            try:
                await outlet.sink.aclose()
            except Exception as exc:  # noqa: BLE001 - others write sinks too
                self.pipeline.fail(as_sink_error(outlet, exc))

    async def _write_end(self) -> None:
        """Write the last lines of the journal and the outcome; if that fails, so does the capture."""
        self._ended = monotonic()
        self._late = _native.late_calls() - self._late_before + self.late_elsewhere
        if self.cut_off is not None:
            self.pipeline.fail(self.cut_off)
        self.pipeline.tally.give_up_unsafe(self.pipeline.cause or SINK_FAILED)
        report = self.report()
        for cause, loss in report.losses.items():
            self._journal.add(LossRow(cause, loss.chunks, loss.bytes).to_line())
        self._journal.add(EndRow(self._number, timestamp(), self._outcome, report.as_dict()).to_line())
        with self._failing(), explained(self.destination.path or "the capture"):
            await self._journal.aclose()
        with self._failing():
            await self.destination.finish_run(self._outcome)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Let the pipeline fail with an error of the block."""
        try:
            yield
        except DumpstreamError as exc:
            self.pipeline.fail(exc)

    @property
    def _outcome(self) -> Outcome:
        if self.pipeline.error is not None:
            return Outcome.FAILED
        return Outcome.FINISHED if self.pipeline.cause is None else Outcome.CANCELLED


def _pulse_of(report: Report) -> Pulse:
    return Pulse(
        time=time(),
        ring_bytes=report.ring_bytes,
        ring_fill=report.ring_fill,
        chunks=report.chunks,
        bytes=report.bytes,
        files=report.files,
        open_files=report.open_files,
        waiting=report.waiting,
        losses={cause: (lost.chunks, lost.bytes) for cause, lost in report.losses.items()},
    )


def _modes_of(configured: Sequence[Configured]) -> tuple[str, ...] | None:
    from dumpstream.analysis.modes import modes_of  # noqa: PLC0415 - pydantic takes long to load

    return modes_of(configured)
