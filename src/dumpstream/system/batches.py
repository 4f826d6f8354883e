"""Batches: work for several threads, in portions that are large enough to be worth handing over."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from threading import Condition
from typing import Generic, TypeVar

# A batch is many small items, or one large one.
_BATCH_ITEMS = 32
_BATCH_BYTES = 4 << 20
_BATCHES_AHEAD = 4  #: for each worker

#: Threads to use by default,
WORKERS = min(os.cpu_count() or 1, 8)
#: and if each of them waits for a store most of the time.
REMOTE_WORKERS = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def run_batches(
    function: Callable[[list[_Item]], Sequence[_Result]],
    items: Iterable[_Item],
    *,
    bytes_of: Callable[[_Item], int],
    most_items: int = _BATCH_ITEMS,
    workers: int | None = None,
    is_remote: Callable[[_Item], bool] | None = None,
    stop: Callable[[], None] | None = None,
) -> Generator[_Result, None, None]:
    """Call *function* with batches of *items* in threads, and yield the results in order.

    Items are taken a few batches ahead. An exception of a call is raised here. After one, or if the caller
    closes the generator, batches that have not begun are dropped, and those that have are waited for.

    Args:
        function: turns a batch into results.
        items: the work.
        bytes_of: returns how large an item is.
        most_items: how many items a batch has at most.
        workers: how many threads.
        is_remote: returns whether an item is in a store; if the first is, more threads take single items.
        stop: called before batches that have begun are waited for, so that they can end early.
    """
    items = iter(items)
    first = list(islice(items, 1))
    remote = is_remote is not None and any(map(is_remote, first))
    workers = workers or (REMOTE_WORKERS if remote else WORKERS)
    pending: deque[Future[Sequence[_Result]]] = deque()
    calls = _Calls(function)
    executor = ThreadPoolExecutor(workers, "dumpstream")
    try:
        for batch in _batches(chain(first, items), bytes_of, 1 if remote else most_items):
            pending.append(executor.submit(calls, batch))
            if len(pending) > workers * _BATCHES_AHEAD:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        if stop is not None:
            stop()
        executor.shutdown(cancel_futures=True)
        calls.end()


class _Calls(Generic[_Item, _Result]):
    """Calls of *function*, which can be waited for.

    An interrupt may come while the pool starts a thread; the pool then does not know of that thread.
    """

    def __init__(self, function: Callable[[list[_Item]], Sequence[_Result]]) -> None:
        self._function = function
        self._changed = Condition()
        self._running = 0
        self._ended = False

    def __call__(self, batch: list[_Item]) -> Sequence[_Result]:
        with self._changed:
            if self._ended:
                return ()
            self._running += 1
        try:
            return self._function(batch)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Wait for those that have begun; others do nothing from now on."""
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: not self._running)


def _batches(
    items: Iterable[_Item], bytes_of: Callable[[_Item], int], most_items: int
) -> Iterator[list[_Item]]:
    batch: list[_Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += bytes_of(item)
        if len(batch) >= most_items or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
