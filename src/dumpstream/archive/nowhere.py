"""Nowhere: the destination of a capture that stores nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from dumpstream.archive.manifest import Configured
from dumpstream.archive.pulse import Pulse
from dumpstream.archive.remains import Remains
from dumpstream.archive.rows import Outcome
from dumpstream.custody import Custody


class Nowhere:
    """Needs no directory, and keeps neither a manifest nor a journal; also takes the lines of the journal."""

    path = None
    work_directory = None
    full = False
    waiting = 0
    waiting_files = 0

    def __init__(self) -> None:
        self.remains = Remains()

    def begin_run(self, options: Mapping[str, Any], **_: Any) -> int:  # noqa: ARG002 - as other destinations
        """Return the number of the only run."""
        return 1

    def configure_run(self, configured: Sequence[Configured]) -> None:
        """Do nothing."""

    def tell(self, pulse: Pulse) -> None:
        """Do nothing."""

    async def finish_run(self, outcome: Outcome) -> None:
        """Do nothing."""

    def add(self, line: str, custodies: Sequence[Custody] = ()) -> None:
        """Do nothing."""

    async def drain(self) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""
