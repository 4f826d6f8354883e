"""Dump: the part of its process's dump that one capture begins, and ends."""

from contextlib import suppress
from pathlib import Path

from dumpstream._errors import DumpstreamError
from dumpstream.acl.driver import Driver
from dumpstream.acl.lifecycle import Lifecycle


class Dump:
    """Registers the callback and starts the dump for one capture; undoes only what it did itself.

    Its methods block: call them from a worker thread.
    """

    def __init__(self, lifecycle: Lifecycle, config: Path | None) -> None:
        self._lifecycle = lifecycle
        self._config = config
        self._left = False

    @property
    def driver(self) -> Driver:
        """What makes the calls."""
        return self._lifecycle.driver

    @property
    def started(self) -> bool:
        """Whether `begin` started a dump that can be stopped and has not been."""
        return self._lifecycle.finalizable and not self._left

    def begin(self) -> None:
        """Register the callback and, with a configuration, start dumping by it."""
        self._lifecycle.register()
        try:
            if self._config is not None:
                self._lifecycle.init_dump()
                self._lifecycle.set_dump(self._config)
        except Exception:  # also a warning, where warnings are errors
            # The caller needs the first error.
            with suppress(DumpstreamError):
                self.undo()
            raise

    def undo(self) -> None:
        """Stop dumping at once, without waiting for the device, and unregister."""
        try:
            self.finalize(None)
        finally:
            self.unregister()

    def unregister(self) -> None:
        """Unregister the callback, once."""
        if self._lifecycle.registered and not self._left:
            self._lifecycle.unregister()

    def leave(self) -> None:
        """Leave everything as it is; the callback stays registered and refuses what still comes."""
        self._left = True

    def finalize(self, context: int | None) -> bool:
        """Stop the dump of `begin` once the device of *context* is done; return False without a dump."""
        if not self.started:
            return False
        self._lifecycle.finalize_dump(context)
        return True
