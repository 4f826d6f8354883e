from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from obstore.store import MemoryStore

from dumpstream.objectstore import Prefix
from dumpstream.objectstore.lock import LOCK, find_lock, lock_text, take_lock
from dumpstream.objectstore.store import Store

if TYPE_CHECKING:
    from dumpstream.objectstore.store import Entry


class RacedStore(Store):
    """A store where somebody else takes the lock just after the first look."""

    def __init__(self) -> None:
        super().__init__(Prefix.of(MemoryStore(), "place"))
        self._looked = False

    def get_range(self, key: str, start: int, length: int) -> tuple[Entry, bytes]:
        try:
            return super().get_range(key, start, length)
        finally:
            if not self._looked:
                self._looked = True
                self.write(LOCK, b'{"pid": 7}')


@pytest.fixture
def store() -> Store:
    return Store(Prefix.of(MemoryStore(), "place"))


def test_lock_that_comes_between_the_look_and_the_write_is_not_broken() -> None:
    store = RacedStore()

    holder = take_lock(store, b'{"pid": 8}')

    assert holder is not None
    assert holder.pid == 7
    assert store.get(LOCK) == b'{"pid": 7}'


def test_lock_is_taken_over_from_who_is_known_to_be_gone(store: Store) -> None:
    store.write(LOCK, b'{"pid": 7}')

    assert take_lock(store, lock_text(), left='{"pid": 6}') is not None
    assert take_lock(store, b'{"pid": 8}', left='{"pid": 7}') is None
    assert find_lock(store) is not None
    assert store.get(LOCK) == b'{"pid": 8}'


class ForgetfulStore(Store):
    """A store whose answers to writes are lost, so that they are written again."""

    def create(self, key: str, data: bytes) -> bool:
        super().create(key, data)
        return super().create(key, data)


def test_lock_that_was_written_twice_is_ones_own() -> None:
    store = ForgetfulStore(Prefix.of(MemoryStore(), "place"))

    assert take_lock(store, lock_text()) is None
