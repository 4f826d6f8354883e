"""The progress of building the index of a large journal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dumpstream.cli.screen.progress import Progress
from dumpstream.reading.indexbuilder import watching


@contextmanager
def shown_indexing() -> Iterator[None]:
    """Show the progress of every index that is built while the block runs."""
    token = watching.set(_watch)
    try:
        yield
    finally:
        watching.reset(token)


@contextmanager
def _watch(size: int) -> Iterator[Callable[[int], None]]:
    with Progress("indexing the journal", "line") as progress:
        progress.expect(0, size)
        yield progress.show_size
