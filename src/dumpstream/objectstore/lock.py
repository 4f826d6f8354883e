"""The lock of a place in a store: an object that is written again and again while a capture writes."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dumpstream._errors import ObjectMissingError
from dumpstream.place import Writer
from dumpstream.rows import timestamp

if TYPE_CHECKING:
    from dumpstream.objectstore.store import Entry, Store

#: There while a capture writes.
LOCK = "lock.json"
#: A lock that was not written again for so many seconds was left by a capture that was killed.
STALE_S = 120.0
#: So it is written again every so many seconds.
REFRESH_S = 30.0

_LONGEST_BYTES = 4096


def lock_text() -> bytes:
    """Return what the lock of this process says; no other lock says the same."""
    fields = {"host": socket.gethostname(), "pid": os.getpid(), "time": timestamp()}
    return json.dumps(fields).encode()


def find_lock(store: Store) -> Writer | None:
    """Return who has the lock in *store*, as far as the lock says; None if nobody has."""
    found = _read(store)
    return None if found is None or _is_stale(found[0]) else _writer(found[1])


def take_lock(store: Store, text: bytes, *, left: str | None = None) -> Writer | None:
    """Write the lock *text* in *store*, and return None, or who has the lock already.

    A stale lock is replaced, and so is one that says *left*: who wrote that is known to be gone.
    """
    found = _read(store)
    if found is not None:
        entry, data = found
        if not _is_stale(entry) and (left is None or data != left.encode()):
            return _writer(data)
        store.delete(LOCK)
    if store.create(LOCK, text):
        return None
    found = _read(store)
    if found is not None and found[1] == text:  # written by a request whose answer was lost
        return None
    return _writer(found[1]) if found else Writer(0)


def _read(store: Store) -> tuple[Entry, bytes] | None:
    try:
        return store.get_range(LOCK, 0, _LONGEST_BYTES)
    except ObjectMissingError:
        return None


def _is_stale(entry: Entry) -> bool:
    return (datetime.now(UTC) - entry.modified).total_seconds() >= STALE_S


def _writer(data: bytes) -> Writer:
    try:
        fields = json.loads(data)
        host = fields.get("host")
        return Writer(int(fields["pid"]), None if host is None else str(host))
    except (ValueError, LookupError, TypeError, AttributeError):
        return Writer(0)
