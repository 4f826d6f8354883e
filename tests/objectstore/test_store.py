from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import pytest
from anyio.to_thread import run_sync
from obstore.exceptions import GenericError, PermissionDeniedError
from obstore.store import LocalStore, MemoryStore

from dumpstream._errors import ObjectMissingError, StoreError
from dumpstream.objectstore.failure import explain_failure
from dumpstream.objectstore.multipart import MultipartUpload
from dumpstream.objectstore.store import PART_BYTES, Store
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    client = MemoryStore() if request.param == "memory" else LocalStore(tmp_path)
    return Store(Prefix.of(client, "place"))


async def test_object_is_read_whole_or_in_part(store: Store) -> None:
    await store.put("a/b", b"0123456789")

    assert await run_sync(store.get, "a/b") == b"0123456789"
    entry, data = await run_sync(store.get_range, "a/b", 2, 3)
    assert (entry.bytes, data) == (10, b"234")
    assert await run_sync(lambda: b"".join(store.read("a/b"))) == b"0123456789"
    entry = await run_sync(store.head, "a/b")
    assert (entry.key, entry.bytes) == ("a/b", 10)


@pytest.mark.parametrize(
    ("start", "length", "expected"), [(8, 5, b"89"), (10, 5, b""), (20, 5, b""), (0, 0, b"")]
)
async def test_range_beyond_the_end_gives_what_is_there(
    store: Store, start: int, length: int, expected: bytes
) -> None:
    await store.put("a", b"0123456789")

    entry, data = await run_sync(store.get_range, "a", start, length)

    assert (entry.bytes, data) == (10, expected)


async def test_entries_are_relative_to_the_place(store: Store) -> None:
    for key in ("a", "b/c", "b/d/e"):
        await store.put(key, b"")

    assert sorted(entry.key for entry in await run_sync(lambda: list(store.entries()))) == [
        "a",
        "b/c",
        "b/d/e",
    ]
    assert sorted(entry.key for entry in await run_sync(lambda: list(store.entries("b")))) == ["b/c", "b/d/e"]


async def test_object_is_created_only_once(store: Store) -> None:
    created = [await run_sync(store.create, "lock", b"one"), await run_sync(store.create, "lock", b"two")]

    assert created == [True, False]
    assert await run_sync(store.get, "lock") == b"one"


async def test_missing_object_is_told_from_other_failures(store: Store) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: store.get("none"),
        lambda: store.get_range("none", 0, 1),
        lambda: store.head("none"),
        lambda: list(store.read("none")),
    ]
    for call in calls:
        with pytest.raises(ObjectMissingError, match="none is not there"):
            await run_sync(call)
    await run_sync(store.delete, "none")


async def test_upload_appears_when_it_is_finished(store: Store) -> None:
    upload = MultipartUpload(store, "large")
    for _ in range(20):
        await upload.send(bytes(1 << 20))
    with pytest.raises(ObjectMissingError):
        await run_sync(store.head, "large")

    await upload.finish()

    assert (await run_sync(store.head, "large")).bytes == 20 << 20


async def test_aborted_upload_leaves_nothing(store: Store) -> None:
    upload = MultipartUpload(store, "large")
    await upload.send(bytes(9 << 20))

    await upload.abort()

    assert await run_sync(lambda: list(store.entries())) == []


async def test_upload_that_still_needs_pieces_is_taken_back_when_the_store_is_abandoned(store: Store) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"0" * PART_BYTES
        store.abandon()
        yield b"1"

    with pytest.raises(StoreError, match="was given up"):
        await store.upload("a", pieces())
    await store.aclose()

    assert await run_sync(lambda: list(store.entries())) == []


def http_error(status: int, code: str = "") -> GenericError:
    body = f"<Error><Code>{code}</Code></Error>" if code else ""
    return GenericError(f"Generic S3 error: status code: {status} : {body} signature=marker")


def silence(reason: str, endpoint: str = "http://host:8000") -> GenericError:
    request = f"Error performing GET {endpoint}/bucket/lock.json?signature=marker in 2.05s"
    return GenericError(f"Generic S3 error: {request} - HTTP error\n\nDebug source: {reason}")


@pytest.mark.parametrize(
    ("error", "message", "away"),
    [
        (http_error(503), "answers 503", True),
        (http_error(429), "answers 429", True),
        (GenericError("error sending request"), "does not answer", True),
        (silence("dns error"), "http://host:8000 does not answer .there is no such host.; check", True),
        (silence("Connection refused"), "http://host:8000 does not answer .connection refused.; check", True),
        (silence("kind: Timeout"), "http://host:8000 does not answer .timed out.; check", True),
        (silence("kind: Timeout", "http://169.254.169.254"), "without credentials; set AWS_ACC", True),
        (silence("status code: 403", "http://169.254.170.2"), "without credentials; set AWS_ACC", False),
        (http_error(404, "NoSuchBucket"), "no such bucket", False),
        (http_error(404, "ContainerNotFound"), "no such container", False),
        (http_error(403, "AuthenticationFailed"), "check the AZURE_STORAGE_... variables", False),
        (http_error(401, "AuthenticationRequired"), "check GOOGLE_APPLICATION_CREDENTIALS", False),
        (http_error(501, "NotImplemented"), "answers 501 .NotImplemented", False),
        (http_error(403, "AccessDenied"), "403, AccessDenied", False),
        (http_error(403, "RequestTimeTooSkewed"), "clock", False),
        (http_error(400, "ExpiredToken"), "the session has expired; get new credentials", False),
        (http_error(400, "EntityTooLarge"), "400 .EntityTooLarge", False),
        (PermissionDeniedError("signature=marker"), "no access", False),
        (builtins.PermissionError(13, "Permission denied"), "Permission denied", False),
    ],
)
def test_failure_is_explained_without_what_the_library_quotes(
    error: Exception, message: str, *, away: bool
) -> None:
    explained = explain_failure(error, "write", Prefix("s3", "bucket"), "key")

    with pytest.raises(StoreError, match=message):
        raise explained
    assert explained.away is away
    assert "marker" not in str(explained)
    assert "--spill" not in str(explained)  # there may be one
