"""Time slice: how long a task works before the other tasks of its event loop get their turn."""

from time import monotonic

from anyio.lowlevel import checkpoint

#: Much longer than a change of tasks takes, and short beside the dozen turns after which a line is written.
_SECONDS = 0.002


class TimeSlice:
    """Counts from when it is made, or from the last pause."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = monotonic()

    async def pause(self) -> None:
        """Let other tasks run if the time is used up; that is where a cancellation is raised."""
        if monotonic() - self._since > _SECONDS:
            await checkpoint()
            self._since = monotonic()
