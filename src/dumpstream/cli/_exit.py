"""Exit codes beyond 0, which says that the command is done and everything is whole."""

from signal import SIGPIPE
from typing import Self

FAILED = 1
WRONG_USAGE = 2
NOT_WHOLE = 3  #: done, but not everything is whole
BY_SIGNAL = 128  #: plus the number of the signal, as in shells
BY_PIPE = BY_SIGNAL + SIGPIPE  #: standard output has no reader any more


class WrongUsageError(Exception):
    """The arguments do not go together, or one is out of range; the message says why."""

    @classmethod
    def of(cls, error: ValueError) -> Self:
        """Return *error* as wrong usage, with its notes."""
        wrong = cls(str(error))
        for note in getattr(error, "__notes__", ()):
            wrong.add_note(note)
        return wrong
