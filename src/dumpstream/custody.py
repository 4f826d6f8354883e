"""Custody: how safe the bytes are that a sink has taken but not yet stored."""

from collections.abc import Callable
from enum import IntEnum


class Stage(IntEnum):
    """How safe bytes are."""

    TAKEN = 0  #: in memory: a kill loses them
    KEPT = 1  #: on the local disk, to be uploaded
    STORED = 2  #: where they belong
    LOST = 3


class Custody:
    """The stage of some files that are stored or lost together. For the event loop's thread alone.

    Attributes:
        cause: why the files were lost, if they were.
    """

    __slots__ = ("_waiting", "cause", "stage")

    def __init__(self, stage: Stage = Stage.TAKEN) -> None:
        self.stage = stage
        self.cause: str | None = None
        self._waiting: list[tuple[Stage, Callable[[], None]]] = []

    def when(self, stage: Stage, call: Callable[[], None]) -> None:
        """Call *call* when *stage* is reached or the files are lost; at once if that has happened."""
        if self.stage >= stage:
            call()
        else:
            self._waiting.append((stage, call))

    def advance(self, stage: Stage, cause: str | None = None) -> None:
        """Move on to *stage*, never back; *cause* is for `Stage.LOST`."""
        if stage <= self.stage:
            return
        self.stage, self.cause = stage, cause
        waiting, self._waiting = self._waiting, []
        for goal, call in waiting:
            self.when(goal, call)
