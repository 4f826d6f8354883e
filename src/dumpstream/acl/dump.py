"""Dump: what one capture does to the dump of its process, and undoes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dumpstream._errors import DumpstreamError

if TYPE_CHECKING:
    from pathlib import Path

    from dumpstream.acl.driver import Driver
    from dumpstream.acl.lifecycle import Lifecycle


class Dump:
    """The dump, as far as one capture drives it: undoes what it did and nothing else.

    Everything in it blocks: call it from a worker thread, except for the context of the calling thread.
    """

    def __init__(self, lifecycle: Lifecycle, config: Path | None) -> None:
        self._lifecycle = lifecycle
        self._config = config
        self._left = False

    @property
    def driver(self) -> Driver:
        """Makes the calls."""
        return self._lifecycle.driver

    @property
    def started(self) -> bool:
        """Whether `begin` started it, and it can be stopped, and has not been."""
        return self._lifecycle.finalizable and not self._left

    def begin(self) -> None:
        """Register the callback and, with a configuration, start dumping by it."""
        self._lifecycle.register()
        try:
            if self._config is not None:
                self._lifecycle.init_dump()
                self._lifecycle.set_dump(self._config)
        except DumpstreamError:
            # What failed first is what the caller must hear of.
            with suppress(DumpstreamError):
                self.undo()
            raise

    def undo(self) -> None:
        """Stop dumping at once, whatever is under way, and unregister; what is undone already stays so."""
        try:
            self.finalize(None)
        finally:
            self.unregister()

    def unregister(self) -> None:
        """Unregister the callback, once."""
        if self._lifecycle.registered and not self._left:
            self._lifecycle.unregister()

    def leave(self) -> None:
        """Leave everything as it is, and the callback registered, so that it refuses what still comes."""
        self._left = True

    def finalize(self, context: int | None) -> bool:
        """Stop what `begin` started, once the device of *context* has done its work; False if nothing was."""
        if not self.started:
            return False
        self._lifecycle.finalize_dump(context)
        return True
