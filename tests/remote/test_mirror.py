"""An object that is kept as it should be in a store."""

from __future__ import annotations

from threading import Event

import pytest
from obstore.store import MemoryStore

from dumpstream import StoreError
from dumpstream.objectstore.store import Store
from dumpstream.remote.publisher import Publisher
from dumpstream.system.location import Prefix


class SlowStore(Store):
    """Lets the test see when the first write has begun, and say when it may go on."""

    def __init__(self) -> None:
        super().__init__(Prefix.of(MemoryStore()))
        self.begun, self.may_go_on = Event(), Event()
        self.written: list[bytes] = []

    def write(self, key: str, data: bytes) -> str | None:
        self.begun.set()
        assert self.may_go_on.wait(20)
        self.written.append(data)
        return super().write(key, data)


def test_the_latest_is_there_at_the_end_and_what_it_replaced_is_skipped() -> None:
    store = SlowStore()
    publisher = Publisher(store, "key")
    publisher.publish(b"1")
    assert store.begun.wait(20)
    publisher.publish(b"2")
    publisher.publish(b"3")

    store.may_go_on.set()
    complete = publisher.stop()

    assert complete
    assert store.written == [b"1", b"3"]
    assert store.get("key") == b"3"


def test_what_a_store_that_is_away_did_not_get_is_still_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    publisher = Publisher(Store(Prefix.parse("s3://bucket/run"), patience_s=0.1), "key")

    publisher.publish(b"data")

    assert not publisher.stop()
    assert publisher.waiting


class RefusingStore(Store):
    """Refuses every write."""

    def write(self, key: str, data: bytes) -> str | None:
        raise StoreError(f"cannot write {key}")


def test_a_store_that_refuses_is_named_at_the_end() -> None:
    publisher = Publisher(RefusingStore(Prefix.of(MemoryStore())), "key")

    publisher.publish(b"data")

    with pytest.raises(StoreError, match="cannot write key"):
        publisher.stop()
    assert publisher.waiting
