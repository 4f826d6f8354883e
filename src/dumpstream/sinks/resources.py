"""Resources: what the built-in sinks get from their capture besides its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio import CapacityLimiter

from dumpstream.objectstore.patience import Patience
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.quota import Quota
from dumpstream.remote.storelock import StoreLock
from dumpstream.sinks._compressors import CompressorPool

if TYPE_CHECKING:  # numpy takes long to load
    from dumpstream.sinks.measuring import Listener


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """What a capture has for its built-in sinks, its own and what it shares with other captures."""

    outbox: Outbox | None = None  #: the capture's own: where objects wait for their store
    captures: int = 1  #: how many captures share memory, connections and the rest of this
    quota: Quota | None = None  #: what may wait in the outboxes of all of them together
    locks: Sequence[StoreLock] = ()  #: of prefixes in stores, held for all of them
    threads: CapacityLimiter | None = None  #: of all their sinks; None: each sink has its own
    compressors: CompressorPool = field(default_factory=CompressorPool)  #: of these threads
    #: Whether sinks that compute statistics are to return them in `Stored.rows`.
    rows_wanted: Callable[[], bool] = bool
    #: Hears what sinks measure; None if nothing is to be heard.
    listener: Listener | None = None
    patience: Patience = field(default_factory=Patience)  #: with stores that do not answer
