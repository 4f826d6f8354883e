"""Backoff: growing pauses between the tries of a store that is away."""

import random

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0


class Backoff:
    """Pauses that double from half a second to 15 s; chance shortens each, which spreads the clients."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S

    def next_pause(self) -> float:
        """Return how many seconds to wait before the next try."""
        pause, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret

    def reset(self) -> None:
        """Begin anew, because the store has answered."""
        self._pause_s = _FIRST_PAUSE_S
