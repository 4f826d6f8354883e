"""Exit codes beyond 0, which says that the command is done and everything is whole."""

FAILED = 1
WRONG_USAGE = 2
NOT_WHOLE = 3  #: done, but not everything is whole
BY_SIGNAL = 128  #: plus the number of the signal, as in shells


class WrongUsageError(Exception):
    """The arguments do not go together, or one is out of range; the message says why."""
