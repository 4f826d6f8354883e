"""The lock of a place in a store: an object that is written again and again while a capture writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dumpstream._errors import ObjectMissingError
from dumpstream.place import Writer

if TYPE_CHECKING:
    from dumpstream.objectstore.store import Store

#: There while a capture writes.
LOCK = "lock.json"
#: A lock that was not written again for so many seconds was left by a capture that was killed.
STALE_S = 120.0

_LONGEST_BYTES = 4096


def find_lock(store: Store) -> Writer | None:
    """Return who has the lock in *store*, as far as the lock says; None if nobody has."""
    try:
        entry, data = store.get_range(LOCK, 0, _LONGEST_BYTES)
    except ObjectMissingError:
        return None
    if (datetime.now(UTC) - entry.modified).total_seconds() >= STALE_S:
        return None
    try:
        fields = json.loads(data)
        host = fields.get("host")
        return Writer(int(fields["pid"]), None if host is None else str(host))
    except (ValueError, LookupError, TypeError, AttributeError):
        return Writer(0)
