"""Request: what a capture is to be, as a value."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dumpstream.acl.driver import Driver
from dumpstream.profiling.settings import ProfileSettings
from dumpstream.sinks import Sink
from dumpstream.source import OnFull, RingOptions, RingSource, Source
from dumpstream.stages.options import StageOptions
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    StrPath = str | os.PathLike[str]

DEFAULT_SINKS = ("zstd:",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a capture is to be. Making one touches nothing: no directory, no store, no library."""

    destination: Path | Prefix | None  #: None if nothing is stored
    stages: StageOptions
    sinks: Sequence[str | Sink | ObjectStore] = DEFAULT_SINKS
    config: Path | None = None
    acl_library: StrPath | None = None
    driver: Driver | None = None
    source: Source | None = None
    profile: ProfileSettings | None = None
    job: Path | Prefix | None = None  #: of which the destination is a host, if it is
    prefix: str = ""  #: that `ls` shows before the names of the files, if the capture is one of several
    append: bool = False
    force: bool = False
    alert: Sequence[str] | None = None  #: what is looked for while it runs; None: nothing
    of_processes: bool = False  #: the destination is for processes with a capture each, instead of runs

    @property
    def on_full(self) -> OnFull:
        """What happens when the spill is full: unless it was set, the same as when the ring is."""
        if self.stages.on_full is not None:
            return self.stages.on_full
        ring = self.stages.ring or self.source
        return ring.on_full if isinstance(ring, RingOptions | RingSource) else OnFull.BLOCK
