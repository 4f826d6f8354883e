"""Captures read from a store: what is asked of it, what comes back, and what is said of damage."""

from __future__ import annotations

import os
import socket
import threading
import tracemalloc
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import obstore
import pytest
import xxhash
import zstandard
from obstore.store import LocalStore

from dumpstream import DumpFile, NotACaptureError, StoredCapture
from dumpstream._errors import PartError
from dumpstream.analysis.measurement import measure
from dumpstream.archive.manifest import MANIFEST
from dumpstream.archive.rows import JOURNAL, FileRow, MergedRow, StoredPart
from dumpstream.format.verdict import Verdict
from dumpstream.objectstore.reader import BLOCK_BYTES, FIRST_BYTES
from dumpstream.reading.collection import Collection
from dumpstream.reading.inputs import find_inputs
from dumpstream.reading.problem import Kind
from dumpstream.reading.stored import State
from dumpstream.reading.verification import Verification, verify
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder, CollectionBuilder, DumpBuilder

_MIB = 1 << 20


def in_store(path: Path) -> Prefix:
    """Return the directory *path* as a place in a store."""
    return Prefix.of(LocalStore(path.parent), path.name)


def open_in_store(path: Path) -> StoredCapture:
    return StoredCapture.open(in_store(path))


def read(capture: StoredCapture, part: StoredPart) -> bytes:
    return b"".join(bytes(block) for block in capture.read_part(part))


def kinds(result: Verification) -> list[tuple[Kind, str]]:
    return [(problem.kind, problem.subject) for problem in result.problems]


class Request(NamedTuple):
    """What obstore was asked for."""

    function: str
    key: str | None
    bytes: int | None = None


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Everything that obstore is asked for from now on; it answers as ever."""
    seen: list[Request] = []
    get, head, listing = obstore.get, obstore.head, obstore.list

    def counted_get(store: Any, path: str, *, options: Any = None) -> Any:
        start, end = (options or {}).get("range", (0, None))
        seen.append(Request("get", path, None if end is None else end - start))
        return get(store, path, options=options)

    def counted_head(store: Any, path: str) -> Any:
        seen.append(Request("head", path))
        return head(store, path)

    def counted_list(store: Any, prefix: str | None = None, **options: Any) -> Any:
        seen.append(Request("list", prefix))
        return listing(store, prefix, **options)

    monkeypatch.setattr(obstore, "get", counted_get)
    monkeypatch.setattr(obstore, "head", counted_head)
    monkeypatch.setattr(obstore, "list", counted_list)
    return seen


class TestWhatComesBack:
    def test_store_says_what_the_directory_says(self, builder: CaptureBuilder) -> None:
        parts = [builder.store("files/a.zst", b"one"), builder.store("files/a.2.zst", b"two")]
        for part in parts:
            builder.write(FileRow("a", 3, 1, Verdict.UNPARSED, [part]).to_line())
        builder.add_gapped("gapped", b"before", b"behind", 100)
        path = builder.finish()

        local, remote = StoredCapture.open(path), open_in_store(path)

        assert [(file.name, file.rows) for file in remote.files] == [
            (file.name, file.rows) for file in local.files
        ]
        assert (remote.state, remote.outcomes) == (State.FINISHED, local.outcomes)
        assert [read(remote, part) for part in remote.files[0].parts] == [b"one", b"two"]

    def test_processes_are_found_below_the_place(self, collection: CollectionBuilder) -> None:
        for rank in (0, 1):
            capture = collection.begin(rank=rank, pid=10 + rank)
            capture.add("a", f"of rank {rank}".encode())
            collection.end(capture)
        place = in_store(collection.close())

        captures = [it.capture for it in Collection.open(place).members() if it.capture is not None]
        names = [item.name for item in find_inputs([place], [1])]
        result = verify(Collection.open(place), deep=True)

        assert [read(it, it.files[0].parts[0]) for it in captures] == [b"of rank 0", b"of rank 1"]
        assert names == ["rank-1/a"]
        assert (result.whole, result.parts, result.state) == (True, 2, State.FINISHED)

    def test_capture_that_was_copied_from_a_store_to_a_disk_is_read(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", b"data")
        path = builder.finish()
        lines = (path / JOURNAL).read_text()
        (path / JOURNAL).write_text(MergedRow(3).to_line() + "\n" + lines)

        capture = StoredCapture.open(path)

        assert (capture.state, capture.unreadable_lines) == (State.FINISHED, [])
        assert read(capture, part) == b"data"

    def test_place_without_a_capture_is_named_with_the_remedy(self, tmp_path: Path) -> None:
        with pytest.raises(NotACaptureError, match=r"LocalStore/none holds no capture .*capture --out"):
            open_in_store(tmp_path / "none")

    def test_empty_manifest_is_no_capture(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / MANIFEST).touch()

        with pytest.raises(NotACaptureError, match=r"is not dumpstream's"):
            open_in_store(tmp_path / "run")


class TestRequests:
    def test_small_file_is_read_with_one_range_request(
        self, builder: CaptureBuilder, requests: list[Request]
    ) -> None:
        part = builder.add("a", os.urandom(1000))
        builder.add("b", os.urandom(1000))
        capture = open_in_store(builder.finish())
        requests.clear()

        read(capture, part)

        assert requests == [Request("get", "capture/files/a.zst", part.stored_bytes)]

    def test_file_in_a_pack_is_read_with_one_range_request(
        self, builder: CaptureBuilder, requests: list[Request]
    ) -> None:
        part = add_packed(builder, "a", b"data")
        capture = open_in_store(builder.finish())
        requests.clear()

        data = read(capture, part)

        assert data == b"data"
        assert requests == [Request("get", "capture/packs/1.zip", part.stored_bytes)]

    def test_header_of_a_large_file_takes_one_range_request(
        self, builder: CaptureBuilder, dump: DumpBuilder, requests: list[Request]
    ) -> None:
        array = np.frombuffer(os.urandom(3 * _MIB), np.uint8)
        builder.add("a", dump.output(array).build(), Verdict.COMPLETE)
        capture = open_in_store(builder.finish())
        requests.clear()

        with DumpFile.open(capture, "a") as file:
            shape = file.tensors[0].shape

        assert shape == array.shape
        assert requests == [Request("get", "capture/files/a.zst", FIRST_BYTES)]

    def test_large_file_is_read_block_by_block(
        self, builder: CaptureBuilder, requests: list[Request]
    ) -> None:
        data = os.urandom(FIRST_BYTES + 2 * BLOCK_BYTES)
        part = builder.add("a", data)
        capture = open_in_store(builder.finish())
        requests.clear()
        tracemalloc.start()

        size = sum(len(block) for block in capture.read_part(part))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        rest = part.stored_bytes - FIRST_BYTES - 2 * BLOCK_BYTES
        assert size == len(data)
        assert [request.bytes for request in requests] == [FIRST_BYTES, BLOCK_BYTES, BLOCK_BYTES, rest]
        assert peak < 3 * BLOCK_BYTES

    def test_listing_a_capture_reads_no_file(self, builder: CaptureBuilder, requests: list[Request]) -> None:
        for number in range(50):
            builder.add(f"{number}", b"data")

        open_in_store(builder.finish())

        assert not [request for request in requests if "files" in (request.key or "")]
        assert len(requests) <= 6

    def test_small_files_are_fetched_at_once(
        self, builder: CaptureBuilder, dump: DumpBuilder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = dump.output(np.ones(4, np.float32)).build()
        for number in range(8):
            builder.add(f"Relu.{number}.1.2.3", data, Verdict.COMPLETE)
        place = in_store(builder.finish())
        together = threading.Barrier(8, timeout=30)
        get = obstore.get

        def get_together(store: Any, path: str, *, options: Any = None) -> Any:
            if "/files/" in path:
                together.wait()
            return get(store, path, options=options)

        monkeypatch.setattr(obstore, "get", get_together)

        measured = list(measure([place]))

        assert [len(it.rows) for it in measured] == [1] * 8


def add_packed(builder: CaptureBuilder, name: str, data: bytes) -> StoredPart:
    """Store *data* in the middle of something, and write its row."""
    frame = zstandard.ZstdCompressor().compress(data)
    (builder.path / "packs").mkdir()
    (builder.path / "packs/1.zip").write_bytes(b"before" + frame + b"behind")
    digest = xxhash.xxh3_64_hexdigest(data)
    part = StoredPart("zstd", "packs/1.zip", 0, len(data), len(frame), digest, start=len(b"before"))
    builder.write(FileRow(name, len(data), 1, Verdict.UNPARSED, [part]).to_line())
    return part


class TestDamage:
    def test_missing_part_is_named_with_the_remedy(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", b"data")
        capture = open_in_store(builder.finish())
        (builder.path / "files/a.zst").unlink()

        with pytest.raises(PartError, match=r"files/a.zst is missing; restore it") as raised:
            read(capture, part)

        assert raised.value.missing

    @pytest.mark.parametrize("size", [0, 5])
    def test_shorter_part_is_told(self, builder: CaptureBuilder, size: int) -> None:
        part = builder.add("a", b"data")
        capture = open_in_store(builder.finish())
        os.truncate(builder.path / "files/a.zst", size)

        with pytest.raises(PartError, match=f"has {size} bytes instead of {part.stored_bytes}; restore"):
            read(capture, part)

    @pytest.mark.parametrize("size", [0, 3, 10])
    def test_shorter_pack_is_told(self, builder: CaptureBuilder, size: int) -> None:
        part = add_packed(builder, "a", b"data")
        capture = open_in_store(builder.finish())
        os.truncate(builder.path / "packs/1.zip", size)

        with pytest.raises(PartError, match=f"has only {size} bytes; restore"):
            read(capture, part)

    def test_object_that_is_replaced_while_it_is_read_is_told(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", data := os.urandom(FIRST_BYTES + BLOCK_BYTES))
        blocks = open_in_store(builder.finish()).read_part(part)
        next(blocks)

        builder.store("files/a.zst", data)
        with pytest.raises(PartError, match="changed while it was read; read it again"):
            list(blocks)

    @pytest.mark.parametrize("path", ["../files/a.zst", "files/../../a", "s3://bucket/../a", ""])
    def test_path_that_leads_outside_is_refused(self, builder: CaptureBuilder, path: str) -> None:
        part = builder.add("a", b"data")
        capture = open_in_store(builder.finish())

        with pytest.raises(PartError, match="leads outside the capture"):
            read(capture, part._replace(path=path))


class TestVerify:
    def test_store_is_asked_what_it_has_and_nothing_is_read(
        self, builder: CaptureBuilder, requests: list[Request]
    ) -> None:
        for number in range(30):
            builder.add(f"{number}", b"data")
        add_packed(builder, "packed", b"data")
        capture = open_in_store(builder.finish())
        requests.clear()

        result = verify(capture)

        assert (result.whole, result.parts, result.found_parts) == (True, 0, 31)
        assert requests == [Request("list", "capture")]

    def test_everything_is_read_back_on_demand(
        self, builder: CaptureBuilder, requests: list[Request]
    ) -> None:
        for number in range(30):
            builder.add(f"{number}", b"data")
        capture = open_in_store(builder.finish())
        requests.clear()

        result = verify(capture, deep=True)

        assert (result.whole, result.parts, result.bytes, result.found_parts) == (True, 30, 120, 0)
        assert sum(request.function == "get" for request in requests) == 30

    def test_what_is_missing_shorter_or_unknown_is_found_cheaply(self, builder: CaptureBuilder) -> None:
        for name in ("deleted", "shortened", "whole"):
            builder.add(name, b"data")
        path = builder.finish()
        (path / "files/deleted.zst").unlink()
        os.truncate(path / "files/shortened.zst", 5)
        (path / "files/foreign").touch()
        (path / ".dumpstream-probe").touch()

        result = verify(open_in_store(path))

        assert kinds(result) == [
            (Kind.MISSING, "deleted"),
            (Kind.DAMAGED, "shortened"),
            (Kind.EXTRA, "files/foreign"),
        ]
        assert (result.found_parts, result.leftovers) == (1, [".dumpstream-probe"])

    def test_damage_that_keeps_the_size_is_found_by_reading(self, builder: CaptureBuilder) -> None:
        part = builder.add("a", b"data")
        place = in_store(builder.finish())
        damaged = zstandard.ZstdCompressor().compress(b"tada")
        assert len(damaged) == part.stored_bytes
        (builder.path / "files/a.zst").write_bytes(damaged)

        shallow, deep = verify(StoredCapture.open(place)), verify(StoredCapture.open(place), deep=True)

        assert shallow.whole
        assert kinds(deep) == [(Kind.DAMAGED, "a")]

    def test_object_with_another_entity_tag_is_read(self, builder: CaptureBuilder) -> None:
        tagged = builder.store("files/a.zst", b"data")._replace(etag='"of another object"')
        builder.write(FileRow("a", 4, 1, Verdict.UNPARSED, [tagged]).to_line())

        result = verify(open_in_store(builder.finish()))

        assert (result.whole, result.parts, result.found_parts) == (True, 1, 0)

    def test_what_the_disk_has_is_verified_without_the_store(
        self, builder: CaptureBuilder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dumpstream.remote.place._RETRY_S", 0.1)
        here = builder.store("files/a.zst", b"data")
        there = here._replace(sink="s3", path="s3://bucket/files/a.zst")
        builder.write(FileRow("a", 4, 1, Verdict.UNPARSED, [there, here]).to_line())
        capture = StoredCapture.open(builder.finish())

        with closing(socket.socket()) as bound:  # and not listening
            bound.bind(("127.0.0.1", 0))
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bound.getsockname()[1]}")
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
            result = verify(capture)

        assert capture.files[0].parts == (here,)
        assert [problem.kind for problem in result.problems] == [Kind.UNREACHABLE]
        assert "does not answer (connection refused)" in result.problems[0].detail
        assert (result.parts, result.skipped_parts) == (1, 1)

    def test_directory_is_read_as_ever(self, builder: CaptureBuilder) -> None:
        builder.add("a", b"data")

        result = verify(StoredCapture.open(builder.finish()))

        assert (result.whole, result.parts, result.found_parts) == (True, 1, 0)


@pytest.mark.parametrize("url", ["s3://bucket/files/a?b#c.zst", "s3://bucket/a%20b", "s3://bucket/é"])
def test_key_in_a_journal_is_taken_as_it_is(url: str) -> None:
    place = Prefix.of_object(url)

    assert (place.bucket, f"s3://bucket/{place.key}", place.options) == ("bucket", url, ())
