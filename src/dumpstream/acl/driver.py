"""Driver: the ACL calls around dumping, with any binding."""

from pathlib import Path
from typing import Protocol


class Driver(Protocol):
    """The calls that a `Lifecycle` puts in order.

    They block: make them from a worker thread. They raise `AclError` if the runtime refuses, also for a
    repeated call, and `LibraryNotFoundError` if the binding lacks the function.
    """

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the functions come from."""

    @property
    def delivering(self) -> bool:
        """Whether the calling thread is inside the callback."""

    def init(self, config: Path | None) -> None:
        """Initialise ACL, with the configuration *config*."""

    def release(self) -> bool:
        """Take back one `init`; return False if the binding cannot."""

    def finalize(self) -> None:
        """Finalise ACL, however often it was initialised."""

    def register(self) -> None:
        """Register the callback that fills the ring."""

    def unregister(self) -> None:
        """Unregister the callback, also another component's."""

    def init_dump(self) -> None:
        """Start the dump server."""

    def set_dump(self, config: Path) -> None:
        """Apply the dump configuration *config* to the models loaded from now on."""

    def finalize_dump(self) -> None:
        """Stop dumping; queued chunks go through the callback before this returns."""

    def current_context(self) -> int | None:
        """Return the device context of the calling thread, if it has one."""

    def synchronize(self, context: int) -> None:
        """Wait until the device of *context* has done all its work."""
