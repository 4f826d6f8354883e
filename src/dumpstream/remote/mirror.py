"""Mirror: keeps one object in a store as it should be, however long the store is away."""

from __future__ import annotations

import random
import threading
from time import monotonic
from typing import TYPE_CHECKING

from dumpstream._errors import StoreError

if TYPE_CHECKING:
    from dumpstream.objectstore.store import Store

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
_LOOK_S = 0.1


class Mirror:
    """Writes the latest of what is published as the object *key* in *store*, from a thread of its own.

    `stop` waits no longer than the patience of *store*.
    """

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key
        self._changed = threading.Condition()
        self._data: bytes | None = None  # what the store has not confirmed
        self._closing = False
        self._error: StoreError | None = None
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> bool:
        """Whether the store has not confirmed the latest."""
        return self._data is not None

    def update(self, data: bytes) -> None:
        """Let *data* be the object, soon; what was published before and is not yet there is skipped."""
        with self._changed:
            self._data = data
            self._changed.notify()

    def stop(self) -> bool:
        """Write what is left, once, and return whether everything is there.

        Raises:
            StoreError: the store refuses it.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        while self._thread.is_alive() and monotonic() < self._store.patience.deadline:
            self._thread.join(_LOOK_S)
        if self._error is not None:
            raise self._error
        return not self.waiting

    def _run(self) -> None:
        pause = 0.0
        closing = False
        while not closing:
            closing, data = self._wait(pause)
            try:
                if data is not None:
                    self._store.write(self._key, data)
                    self._confirm(data)
                pause = 0.0
            except StoreError as exc:
                if not exc.away:
                    self._error = exc
                    return
                pause = min(max(2 * pause, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)

    def _wait(self, pause: float) -> tuple[bool, bytes | None]:
        """Return whether to stop and what to write, after *pause* seconds or when there is something."""
        with self._changed:
            if pause:
                seconds = pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients
                self._changed.wait_for(lambda: self._closing, seconds)
            else:
                self._changed.wait_for(lambda: self._closing or self.waiting)
            return self._closing, self._data

    def _confirm(self, data: bytes) -> None:
        with self._changed:
            if self._data is data:
                self._data = None
