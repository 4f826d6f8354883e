"""Batches: work for several threads, handed over in portions that are worth it."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

# A batch is many small items, or one large one.
_BATCH_ITEMS = 32
_BATCH_BYTES = 4 << 20
_BATCHES_AHEAD = 4  #: for each worker

#: Threads to use if nobody says how many.
WORKERS = min(os.cpu_count() or 1, 8)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def run_batches(
    function: Callable[[list[_Item]], Sequence[_Result]],
    items: Iterable[_Item],
    *,
    bytes_of: Callable[[_Item], int],
    workers: int = WORKERS,
) -> Iterator[_Result]:
    """Call *function* with batches of *items* in *workers* threads, and yield the results in order.

    Items are taken a few batches ahead. What a call raises is raised here; then, and if the caller stops,
    batches that have not begun are dropped and those that have are waited for.
    """
    pending: deque[Future[Sequence[_Result]]] = deque()
    executor = ThreadPoolExecutor(workers, "dumpstream")
    try:
        for batch in _batches(items, bytes_of):
            pending.append(executor.submit(function, batch))
            if len(pending) > workers * _BATCHES_AHEAD:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        executor.shutdown(cancel_futures=True)


def _batches(items: Iterable[_Item], bytes_of: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    batch: list[_Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += bytes_of(item)
        if len(batch) >= _BATCH_ITEMS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
