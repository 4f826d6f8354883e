"""An object that is kept equal to the latest data."""

from __future__ import annotations

from threading import Event

import pytest
from obstore.store import MemoryStore

from dumpstream import StoreError
from dumpstream.objectstore.store import Store
from dumpstream.remote.mirror import Mirror
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
    mirror = Mirror(store, "key")
    mirror.update(b"1")
    assert store.begun.wait(20)
    mirror.update(b"2")
    mirror.update(b"3")

    store.may_go_on.set()
    complete = mirror.stop()

    assert complete
    assert store.written == [b"1", b"3"]
    assert store.get("key") == b"3"


def test_what_a_store_that_is_away_did_not_get_is_still_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    mirror = Mirror(Store(Prefix.parse("s3://bucket/run"), retry_s=0.1), "key")

    mirror.update(b"data")

    assert not mirror.stop()
    assert mirror.waiting


class RefusingStore(Store):
    """Refuses every write."""

    def write(self, key: str, data: bytes) -> str | None:
        raise StoreError(f"cannot write {key}")


def test_a_store_that_refuses_is_named_at_the_end() -> None:
    mirror = Mirror(RefusingStore(Prefix.of(MemoryStore())), "key")

    mirror.update(b"data")

    with pytest.raises(StoreError, match="cannot write key"):
        mirror.stop()
    assert mirror.waiting
