"""Request: what a capture is to be, checked as far as it can be without touching anything."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from anyio.to_thread import run_sync

from dumpstream._errors import SinkError
from dumpstream.acl.dump import Dump
from dumpstream.acl.library import load_acl, load_profiling
from dumpstream.acl.lifecycle import Lifecycle
from dumpstream.archive.destination import Destination
from dumpstream.archive.manifest import LONGEST_CONFIG
from dumpstream.objectstore.patience import ask
from dumpstream.profiling.profiler import Profiler
from dumpstream.remote.destination import RemoteDestination
from dumpstream.remote.outbox import Outbox, state_directory
from dumpstream.remote.room import Room
from dumpstream.source import OnFull
from dumpstream.system.location import Prefix, is_remote

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from obstore.store import ObjectStore

    from dumpstream.acl.driver import Driver
    from dumpstream.config import AclConfig
    from dumpstream.objectstore.patience import Patience
    from dumpstream.profiling.settings import ProfileSettings
    from dumpstream.remote.storelock import StoreLock
    from dumpstream.sinks import Sink
    from dumpstream.source import Source
    from dumpstream.stages.options import CaptureOptions, StageOptions

    StrPath = str | os.PathLike[str]

DEFAULT_SINKS = ("zstd:",)


class Request(NamedTuple):
    """What a capture is to be, checked as far as it can be without touching anything."""

    path: Path | Prefix
    sinks: Sequence[str | Sink | ObjectStore]
    stages: StageOptions
    config: Path | None = None
    acl_library: StrPath | None = None
    driver: Driver | None = None
    source: Source | None = None
    profile: ProfileSettings | None = None
    append: bool = False
    force: bool = False
    of_processes: bool = False  #: it is for processes with a capture each, instead of runs
    fresh: bool = False  #: nothing is at *path*, which belongs to a place that this process holds

    def make_outbox(self) -> Outbox | None:
        """Make the local directory of a capture that leaves the machine; blocks."""
        settings = self.stages.sinks
        leaves = isinstance(self.path, Prefix)
        if not leaves and (settings.spill is None or not any(map(is_remote, self.sinks))):
            return None
        return Outbox.make(
            settings.spill or state_directory(),
            self.path.url if isinstance(self.path, Prefix) else str(self.path),
            room=Room(settings.spill_bytes, settings.room) if settings.spill else None,
            on_full=self._on_full,
        )

    @property
    def _on_full(self) -> OnFull:
        """What a full spill does: if nobody has said it, what the ring that the chunks come from does."""
        of_ring: OnFull = getattr(self.stages.ring or self.source, "on_full", OnFull.BLOCK)
        return self.stages.on_full or of_ring

    async def open_destination(
        self,
        dump_path: Path | None,
        outbox: Outbox | None,
        lock: StoreLock | None,
        patience: Patience,
    ) -> Destination | RemoteDestination:
        options = {"append": self.append, "force": self.force, "of_processes": self.of_processes}
        if isinstance(self.path, Prefix):
            assert outbox is not None
            assert lock is not None
            options["fresh"] = self.fresh
            return await ask(
                partial(RemoteDestination.open, self.path, outbox, lock, patience=patience, **options)
            )
        return await run_sync(partial(Destination.open, self.path, dump_path=dump_path, **options))

    def load_profiler(self) -> Profiler | None:
        return None if self.profile is None else Profiler(load_profiling(self.acl_library))

    def load_dump(self) -> Dump | None:
        if self.source is not None:
            return None
        driver = self.driver or load_acl(self.acl_library)
        return Dump(Lifecycle(driver, initialized=True), self.config)


def refuse_without_directory(kind: str, location: str, path: Path | Prefix) -> None:
    """Raise `SinkError` if a sink needs a directory and has none, because the capture is in a store."""
    if isinstance(path, Prefix) and kind == "stats" and not location.partition("?")[0]:
        raise SinkError("stats: needs a directory if the capture is in a store; write stats:DIR")


def load_asked(config: Path | None) -> AclConfig | None:
    """Return what the file *config* asks for, if there is one.

    Raises:
        ConfigError: CANN would refuse it.
    """
    if config is None:
        return None
    from dumpstream.config import load_config  # noqa: PLC0415 - pydantic takes long to load

    return load_config(config).config


def dump_path_of(asked: AclConfig | None) -> Path | None:
    """Return where the runtime writes what no callback takes, if *asked* says it."""
    return Path(asked.dump.dump_path) if asked is not None and asked.dump.dump_path else None


def as_json(options: CaptureOptions) -> dict[str, Any]:
    """Return *options* as the manifest has them."""
    return {
        name: value if isinstance(value, int | float | None) else str(value)
        for name, value in options.items()
    }


def as_kept(asked: AclConfig) -> dict[str, Any] | None:
    """Return what the manifest keeps of *asked*: not one that makes every reading and writing of it slow."""
    fields = asked.as_dict()
    return fields if len(json.dumps(fields)) <= LONGEST_CONFIG else None
