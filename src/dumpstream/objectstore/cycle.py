"""Cycle: finds out that a listing repeats itself, however long the cycle is, with a memory of one key."""


class Cycle:
    """The keys of a listing, in which every key comes once."""

    def __init__(self) -> None:
        self._seen: str | None = None
        self._count, self._next = 0, 1

    def is_closed_by(self, key: str) -> bool:
        """Whether *key*, the next one, is a repetition; a cycle is found within a few rounds."""
        if key == self._seen:
            return True
        self._count += 1
        if self._count == self._next:  # ever rarer, so that a cycle of any length has its turn
            self._seen, self._next = key, 2 * self._next
        return False
