"""Capture: a run of the pipeline into a directory, from registering the callback to the last verdict."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import fields
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import anyio
from anyio.to_thread import run_sync

from dumpstream import _native
from dumpstream._errors import DestinationError, DumpstreamError
from dumpstream.acl import Dump, load_acl
from dumpstream.destination import Destination, explained
from dumpstream.hold import HeldBytes
from dumpstream.journal import Journal
from dumpstream.pipeline import Pipeline, PipelineOptions
from dumpstream.plan import Outlet, as_sink_error
from dumpstream.reassemble import Reassembler, ReassemblyOptions
from dumpstream.report import LossCount, Report
from dumpstream.rows import Outcome, begin_row, end_row, loss_row, timestamp
from dumpstream.sinks import Fsync, Sink, SinkSettings, find_factory
from dumpstream.source import OnFull, RingOptions, RingSource, Source

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Sequence

    StrPath = str | os.PathLike[str]

_DEFAULT_SINKS = ("zstd:",)
#: CANN before 9.1 may still be inside the last callback when it says that dumping has ended.
_LAST_CALLBACK_S = 0.02

_Options = TypeVar("_Options")


class CaptureOptions(TypedDict, total=False):
    """The options of `open_capture`, each with its meaning and default in the class that holds it.

    `RingOptions`, `ReassemblyOptions`, `PipelineOptions` and `SinkSettings`, in this order.
    """

    buffer_bytes: int
    buffer_file: StrPath | None
    on_full: OnFull | str
    block_timeout: float
    max_file_bytes: int
    idle_timeout: float | None
    text_idle_timeout: float | None
    max_digests: int
    max_header_bytes: int
    held_bytes: int
    gathered_bytes: int
    level: int
    workers: int
    fsync: Fsync | str
    max_descriptors: int


class Capture:
    """A capture that is running, or has run."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    @property
    def path(self) -> Path:
        """The directory it goes to."""
        return self._run.place.path

    @property
    def report(self) -> Report:
        """What has been seen and done so far; may be read at any time, also after the end."""
        return self._run.report()

    @property
    def error(self) -> DumpstreamError | None:
        """Why the capture ended early; it is raised when the block is left."""
        return self._run.pipeline.error

    async def wait(self) -> None:
        """Return when the capture has ended: in the block that is only if it failed."""
        await self._run.pipeline.ended.wait()


@asynccontextmanager
async def open_capture(
    destination: StrPath,
    *,
    config: StrPath | None = None,
    acl_library: StrPath | None = None,
    sinks: Sequence[str | Sink] | None = None,
    source: Source | None = None,
    append: bool = False,
    force: bool = False,
    **options: Unpack[CaptureOptions],
) -> AsyncIterator[Capture]:
    """Capture every dumped file into *destination* while the block runs.

    Entering registers the callback and, with *config*, calls ``aclmdlInitDump`` and ``aclmdlSetDump``; load
    your models inside the block then. Leaving drains and closes, and undoes what entering did:
    ``aclmdlFinalizeDump`` only if *config* was given, after synchronising the device if the thread that
    leaves the block has a device context (synchronise yourself if other threads drive devices).

    Without *config* the dump is yours: finalise it before you leave the block. If you do not, the runtime
    writes every chunk still queued to the path in its name, on its own disk, and this capture never sees it.

    ``aclInit`` is never called; call it before. Losses and verdicts never raise: they are in `Capture.report`
    and in the journal. If a sink fails, the block goes on: the capture discards from then on and counts, what
    was finished stays, and the error is raised when the block is left. A cancelled block ends at once, an
    exception in it is raised after everything was drained.

    Args:
        destination: a directory for this capture alone.
        config: the dump configuration to apply (``acl.json``).
        acl_library: the library with the ACL functions, where it is not to be searched for.
        sinks: ``kind:location`` strings or objects; by default ``zstd:``, files below *destination*.
        source: where chunks come from instead, such as a `PyAclSource`; then no ACL function is called.
        append: add a run to the capture that is in *destination*.
        force: delete the capture that is in *destination*.
        **options: see `CaptureOptions`.

    Raises:
        DestinationError: *destination* cannot take a capture.
        LibraryNotFoundError: no ACL library was found.
        AclError: an ACL function refused.
        CaptureInUseError: this process is capturing already.
        SinkError: a sink could not be made; or, on leaving, it failed.
        ValueError: an option is out of range, or options exclude each other.
    """
    if source is not None and (config is not None or acl_library is not None):
        raise ValueError(
            "config and acl_library need the default source; with source= drive the dump yourself"
        )
    ring = _pick(RingOptions, options)
    config_path = None if config is None else Path(config)
    async with AsyncExitStack() as stack:
        place = await run_sync(_open_destination, Path(destination), append, force, config_path)
        stack.push_async_callback(_in_thread, place.close)
        settings = _pick(SinkSettings, options, directory=place.path)
        outlets = []
        for sink in sinks or _DEFAULT_SINKS:
            outlets.append(await _make_outlet(sink, settings))
            stack.push_async_callback(_give_up_sink, outlets[-1].sink)
        dump = None if source is not None else Dump(await run_sync(load_acl, acl_library), config_path)
        pipeline_options = _pick(PipelineOptions, options)
        held = HeldBytes(place.path, memory_bytes=pipeline_options.held_bytes)
        stack.push_async_callback(held.aclose)
        with explained(place.path):
            journal = await stack.enter_async_context(
                Journal.open(place.journal_path, fsync=Fsync(settings.fsync))
            )
        pipeline = Pipeline(
            source=await stack.enter_async_context(source or RingSource(ring)),
            reassembler=Reassembler(_pick(ReassemblyOptions, options)),
            outlets=outlets,
            journal=journal,
            held=held,
            options=pipeline_options,
        )
        run = _Run(place, pipeline, outlets, journal, dump)
        await run.begin(_as_json(options))
        async with run.running():
            yield Capture(run)
    if pipeline.error is not None:
        raise pipeline.error


class _Run:
    """The stages of a capture, from its first line in the journal to its last."""

    def __init__(
        self,
        place: Destination,
        pipeline: Pipeline,
        outlets: Sequence[Outlet],
        journal: Journal,
        dump: Dump | None,
    ) -> None:
        self.place = place
        self.pipeline = pipeline
        self._outlets = outlets
        self._drained = anyio.Event()
        self._journal = journal
        self._dump = dump
        self._number = 0
        self._started = monotonic()
        self._ended: float | None = None
        self._late_before = _native.late_calls()
        self._late = 0

    def report(self) -> Report:
        """Return the figures of the moment, or those of the end."""
        pipeline, ledger = self.pipeline, self.pipeline.ledger
        ring = pipeline.source.statistics()
        losses = {cause: LossCount(*lost) for cause, lost in ring.losses.items()}
        if pipeline.cause is not None and ledger.lost_chunks:
            losses[pipeline.cause] = LossCount(ledger.lost_chunks, ledger.lost_bytes)
        if self._late:
            losses["late"] = LossCount(self._late, 0)
        return Report(
            seconds=(self._ended or monotonic()) - self._started,
            chunks=pipeline.chunks,
            bytes=pipeline.bytes,
            files=ledger.verdicts.total(),
            open_files=pipeline.open_files,
            stored_bytes=ledger.stored_bytes,
            verdicts={str(verdict): count for verdict, count in sorted(ledger.verdicts.items())},
            losses=losses,
            unnamed_losses=ring.unnamed,
            ring_bytes=ring.size,
            ring_fill=ring.fill,
            failure=pipeline.cause if pipeline.error is None else str(pipeline.error),
        )

    async def begin(self, options: dict[str, Any]) -> None:
        """Start the dump, then write down that the run has begun: a refused one leaves no trace."""
        dump = self._dump
        libraries = None if dump is None else ", ".join(dump.acl.paths)
        if dump is not None:
            await run_sync(dump.begin)
        try:
            self._number = await run_sync(lambda: self.place.begin_run(options, acl_library=libraries))
        except BaseException:
            if dump is not None:
                with anyio.CancelScope(shield=True):
                    await run_sync(dump.undo)
            raise
        self._journal.add(begin_row(self._number, timestamp()))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the pipeline beside the block; after it, end the dump, the pipeline and the journal."""
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run_pipeline)
                tasks.start_soon(self._heed_cancellation)
                try:
                    yield
                except BaseException as exc:  # noqa: BLE001 - raised outside the group, which would wrap it
                    failure = exc
                    if isinstance(exc, anyio.get_cancelled_exc_class()):
                        self.pipeline.cancel()
                # A task of its own: whoever leaves the block may be cancelled while it waits.
                tasks.start_soon(self._end)
        finally:
            with anyio.CancelScope(shield=True):
                await self._write_end()
        if failure is not None:
            raise failure

    async def _run_pipeline(self) -> None:
        try:
            await self.pipeline.run()
        finally:
            self._drained.set()

    async def _heed_cancellation(self) -> None:
        """Cancel the pipeline as soon as the block is cancelled, also while that waits for a thread."""
        try:
            await self._drained.wait()
        except anyio.get_cancelled_exc_class():
            self.pipeline.cancel()
            raise

    async def _end(self) -> None:
        """Finalise, drain, unregister: in the order in which the runtime loses nothing."""
        with anyio.CancelScope(shield=True):
            finalized = await self._finalize()
            await self.pipeline.source.stop()
            await self._drained.wait()
            # Chunks still queued would go to the runtime's own disk: the callback stays to discard them.
            if self._dump is not None and (finalized or self.pipeline.cause is None):
                await run_sync(self._dump.acl.unregister)

    async def _finalize(self) -> bool:
        if self._dump is None:
            return False
        # What the device has not sent yet would be discarded if the capture was given up.
        context = self._dump.acl.current_context() if self.pipeline.cause is None else None
        try:
            finalized = await run_sync(self._dump.finalize, context)
        except DumpstreamError as exc:
            self.pipeline.fail(exc)
            return False
        if finalized:
            await anyio.sleep(_LAST_CALLBACK_S)
        return finalized

    async def _write_end(self) -> None:
        """Close the sinks, then the books; what cannot be closed is one more reason to fail."""
        for outlet in self._outlets:
            try:
                await outlet.sink.aclose()
            except Exception as exc:  # noqa: BLE001 - a sink is anybody's code
                self.pipeline.fail(as_sink_error(outlet, exc))
        self._ended = monotonic()
        self._late = _native.late_calls() - self._late_before
        report = self.report()
        for cause, loss in report.losses.items():
            self._journal.add(loss_row(cause, loss.chunks, loss.bytes))
        self._journal.add(end_row(self._number, timestamp(), self._outcome, report.as_dict()))
        try:
            with explained(self.place.path):
                await self._journal.aclose()
            await run_sync(self.place.end_run, self._outcome)
        except DestinationError as exc:
            self.pipeline.fail(exc)

    @property
    def _outcome(self) -> Outcome:
        if self.pipeline.error is not None:
            return Outcome.FAILED
        return Outcome.FINISHED if self.pipeline.cause is None else Outcome.CANCELLED


def _pick(kind: type[_Options], options: CaptureOptions, **more: Any) -> _Options:
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # they are all dataclasses
    return kind(**{name: value for name, value in options.items() if name in names}, **more)


async def _make_outlet(sink: str | Sink, settings: SinkSettings) -> Outlet:
    if isinstance(sink, str):
        kind, _, location = sink.partition(":")
        factory = await run_sync(find_factory, kind)
        return Outlet(kind, factory(location, settings))
    return Outlet(type(sink).__name__.removesuffix("Sink").lower(), sink)


def _open_destination(path: Path, append: bool, force: bool, config: Path | None) -> Destination:  # noqa: FBT001 - positional for run_sync
    dump_path = None if config is None else _dump_path(config)
    return Destination.open(path, append=append, force=force, dump_path=dump_path)


def _dump_path(config: Path) -> Path | None:
    """Return where *config* tells the runtime to write; what else is wrong with it, the runtime will say."""
    try:
        dump = json.loads(config.read_bytes() or b"{}").get("dump", {})
        path = dump.get("dump_path") if isinstance(dump, dict) else None
    except OSError as exc:
        raise DestinationError(
            config, f"cannot be read: {exc.strerror}; give config (--config) a file"
        ) from exc
    except (ValueError, AttributeError):
        return None
    return Path(path) if isinstance(path, str) and path else None


def _as_json(options: CaptureOptions) -> dict[str, Any]:
    return {
        name: value if isinstance(value, int | float | None) else str(value)
        for name, value in options.items()
    }


async def _in_thread(function: Any) -> None:
    with anyio.CancelScope(shield=True):
        await run_sync(function)


async def _give_up_sink(sink: Sink) -> None:
    """Close a sink if the capture could not begin; after a run it is closed already."""
    with anyio.CancelScope(shield=True), suppress(Exception):
        await sink.aclose()
