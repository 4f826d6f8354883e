"""Mirror: keeps one object in a store equal to the latest data, however long the store is away."""

import threading
from time import monotonic

from dumpstream._errors import StoreError
from dumpstream.objectstore.backoff import Backoff
from dumpstream.objectstore.store import Store

_LOOK_S = 0.1


class Mirror:
    """Writes the latest data as the object *key* in *store*, from a thread of its own."""

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
        """Whether the store has not confirmed the latest data."""
        return self._data is not None

    def update(self, data: bytes) -> None:
        """Write *data* soon; earlier data that is not written yet is skipped."""
        with self._changed:
            self._data = data
            self._changed.notify()

    def stop(self) -> bool:
        """Try once more to write what is left; return whether the store has the latest data.

        Waits no longer than the patience of the store.

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
        backoff = Backoff()
        closing = False
        while not closing:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self.waiting)
                closing, data = self._closing, self._data
            try:
                if data is not None:
                    self._store.write(self._key, data)
            except StoreError as exc:
                if not exc.away:
                    self._error = exc
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, backoff.next_pause())
            else:
                backoff.reset()
                with self._changed:
                    if self._data is data:
                        self._data = None
