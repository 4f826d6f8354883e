"""What a collector is to be, and what of it each process gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dumpstream.archive.destination import below
from dumpstream.objectstore.client import RETRY_S
from dumpstream.outside.shares import EXPECTED
from dumpstream.outside.wire import encode
from dumpstream.remote.storelock import StoreLock
from dumpstream.remote.uploader import SHORT_RETRY_S
from dumpstream.request import Request, dump_path_of, refuse_without_directory
from dumpstream.sinks import find_factory
from dumpstream.sinks.objectstore import probe_store
from dumpstream.source import OnFull
from dumpstream.system.location import Prefix, is_remote

if TYPE_CHECKING:
    from collections.abc import Sequence

    import anyio

    from dumpstream.archive.history import History
    from dumpstream.config import AclConfig
    from dumpstream.objectstore.patience import Patience
    from dumpstream.outside.sharedsource import SharedSource
    from dumpstream.remote.outbox import Outbox
    from dumpstream.remote.room import Room
    from dumpstream.sinks import SinkSettings
    from dumpstream.source import RingOptions
    from dumpstream.stages.options import StageOptions

#: With fewer a sink works, but opens the same directories again and again.
_GOOD_DESCRIPTORS = 8


class CollectorRequest(NamedTuple):
    """What a collector was asked for, checked as far as it can be without touching anything."""

    path: Path | Prefix
    config: Path | None
    sinks: tuple[str, ...]
    append: bool
    force: bool
    ring: RingOptions
    stages: StageOptions
    options: dict[str, Any]  #: as the manifest has them
    threads: anyio.CapacityLimiter  #: of all sinks together
    room: Room  #: of what may wait for a store, together

    def check_sinks(self, patience: Patience) -> list[StoreLock]:
        """Find out whether each process can have its sinks, and whether their stores answer; blocks.

        Returns:
            The locks of the stores' places, to be taken for all processes together.

        Raises:
            SinkError: it cannot.
        """
        locks = []
        for sink in self.sinks:
            kind, _, location = sink.partition(":")
            if is_remote(sink):
                probe_store(Prefix.parse(sink))
                retry_s = RETRY_S if self.stages.sinks.spill is None else SHORT_RETRY_S
                locks.append(StoreLock(Prefix.parse(sink), retry_s=retry_s, patience=patience))
            else:
                refuse_without_directory(kind, location, self.path)
                find_factory(kind)
        return locks

    def with_locks(self, locks: Sequence[StoreLock]) -> CollectorRequest:
        """Return it with *locks* that are held for all processes."""
        return self._replace(stages=self.stages._replace(sinks=replace(self.stages.sinks, locks=locks)))

    def make_outbox(self) -> Outbox | None:
        """Make the local part of a list of processes that leaves the machine; blocks."""
        return self._whole.make_outbox() if isinstance(self.path, Prefix) else None

    async def open_destination(
        self, asked: AclConfig | None, outbox: Outbox | None, lock: StoreLock | None, patience: Patience
    ) -> History:
        """Prepare the place for processes that are *asked* to dump."""
        return await self._whole.open_destination(dump_path_of(asked), outbox, lock, patience)

    def part(self, directory: str, source: SharedSource, local_size: int | None) -> Request:
        """Return the capture of one of *local_size* processes, with its part of what they have together."""
        path = self.path / directory
        among = local_size or EXPECTED
        pipeline = replace(
            self.stages.pipeline,
            held_bytes=self.stages.pipeline.held_bytes // among,
            gathered_bytes=self.stages.pipeline.gathered_bytes // among,
        )
        settings = self._sink_settings(path if isinstance(path, Path) else Path(), among)
        stages = self.stages._replace(pipeline=pipeline, sinks=settings)
        sinks = [sink_below(sink, directory) for sink in self.sinks]
        return Request(path, sinks, stages, source=source, fresh=True)

    @property
    def _whole(self) -> Request:
        return Request(self.path, (), self.stages, append=self.append, force=self.force, of_processes=True)

    def answer(self, size: int) -> bytes:
        """Return what an agent is told beside its ring of *size* bytes."""
        fields: list[tuple[str, str | int]] = [
            ("size", size),
            ("block", int(self.ring.on_full is OnFull.BLOCK)),
            ("block_ns", int(self.ring.block_timeout * 1e9)),
            ("max_file_bytes", self.ring.max_file_bytes),
        ]
        if self.config is not None:
            fields.append(("config", str(self.config)))
        return encode("ring", fields)

    def _sink_settings(self, directory: Path, among: int) -> SinkSettings:
        sinks = self.stages.sinks
        descriptors = max(sinks.max_descriptors // among, min(sinks.max_descriptors, _GOOD_DESCRIPTORS))
        return replace(
            sinks,
            directory=directory,
            max_descriptors=descriptors,
            threads=self.threads,
            spill_bytes=max(sinks.spill_bytes // among, 1),
            room=self.room,
            among=among,
        )


def sink_below(spec: str, directory: str) -> str:
    """Return the sink that *spec* means for one process: a location of its own below the common one."""
    if is_remote(spec):
        return (Prefix.parse(spec) / directory).url
    where, mark, choices = spec.partition("?")
    kind, colon, location = where.partition(":")
    return f"{kind}{colon}{below(location, directory)}{mark}{choices}" if location else spec
