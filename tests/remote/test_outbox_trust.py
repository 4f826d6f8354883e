"""What is found in a spill directory is obeyed only if the caller's own capture has left it there."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from anyio.to_thread import run_sync
from obstore.store import MemoryStore

from dumpstream._errors import DestinationError, StoreError
from dumpstream.archive.manifest import Manifest
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.cli import main
from dumpstream.format.verdict import Verdict
from dumpstream.objectstore.patience import Patience
from dumpstream.objectstore.store import Store
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.outboxes import find_outboxes
from dumpstream.remote.outboxuploader import OutboxUploader
from dumpstream.remote.quota import Quota
from dumpstream.remote.reconciliation import reconcile
from dumpstream.source import OnFull
from dumpstream.system.location import Prefix

from .captures import capturing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NAME = "20260101T000000-0123abcd"
_STRANGER = 12345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture(autouse=True)
def private_files() -> Iterator[None]:
    """Let the test make files as a capture does."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def make_outbox(root: Path, destination: str = "s3://bucket/run") -> Outbox:
    return Outbox.make(root, destination, quota=Quota(1 << 20), on_full=OnFull.BLOCK)


def leave_outbox(root: Path, destination: str = "s3://bucket/run") -> Path:
    """Leave what a capture leaves that was killed before its run began; uploading it needs no store."""
    outbox = make_outbox(root, destination)
    outbox.needed = True
    outbox.close()
    return outbox.path


def plant(path: Path, **description: Any) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps({"format": 1, "destination": "s3://bucket/nothing", **description})
    (path / "outbox.json").write_text(text)
    return path


class TestDirectory:
    def test_description_in_the_root_of_a_spill_does_not_make_it_an_outbox(self, tmp_path: Path) -> None:
        spill = plant(tmp_path / "spill")
        (spill / "notes.txt").write_text("a stranger's")
        live = make_outbox(spill)

        assert main(["upload", str(spill)]) == 1  # the live one is in use
        live.needed = True
        live.close()

        assert (spill / "notes.txt").read_text() == "a stranger's"
        assert list(find_outboxes(spill)) == [live.path]

    def test_outbox_inside_another_is_not_looked_for(self, tmp_path: Path) -> None:
        outer = leave_outbox(tmp_path)
        inner = plant(outer / _NAME)

        assert list(find_outboxes(tmp_path)) == [outer]
        with pytest.raises(DestinationError, match="is inside the outbox"):
            Outbox.open(inner)

    @pytest.mark.parametrize("below", ["", "spill", "objects/deep/spill"])
    def test_capture_whose_spill_is_in_an_outbox_is_refused(self, tmp_path: Path, below: str) -> None:
        outer = make_outbox(tmp_path)
        before = sorted(tmp_path.rglob("*"))

        with pytest.raises(DestinationError, match=r"is inside the outbox .* name another with --spill"):
            make_outbox(outer.path / below)

        assert sorted(tmp_path.rglob("*")) == before
        outer.close()

    def test_link_to_an_outbox_is_not_followed(self, tmp_path: Path) -> None:
        elsewhere = leave_outbox(tmp_path / "elsewhere")
        (tmp_path / "spill").mkdir()
        (tmp_path / "spill" / _NAME).symlink_to(elsewhere)

        assert list(find_outboxes(tmp_path / "spill")) == []
        with pytest.raises(DestinationError, match="is not an outbox"):
            Outbox.open(tmp_path / "spill" / _NAME)
        assert elsewhere.exists()

    def test_directory_that_dumpstream_has_not_named_is_not_an_outbox(self, tmp_path: Path) -> None:
        planted = plant(tmp_path / "photos")

        with pytest.raises(DestinationError, match="is not an outbox"):
            Outbox.open(planted)

        assert list(planted.iterdir()) == [planted / "outbox.json"]


class TestOwner:
    @as_root
    @pytest.mark.parametrize("name", [".", "outbox.json", "objects"])
    def test_outbox_of_another_user_is_refused_before_anything_is_asked_of_a_store(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            path = leave_outbox(tmp_path, f"s3://b/run?endpoint=http://127.0.0.1:{server.getsockname()[1]}")
            (path / "journal.jsonl").write_text('{"type": "begin", "run": 1, "time": "now"}\n')
            os.chown(path / name, _STRANGER, _STRANGER)

            assert main(["upload", str(tmp_path)]) == 1

            with pytest.raises(BlockingIOError):
                server.accept()
        assert f"belongs to user {_STRANGER}; upload it as that user" in capsys.readouterr().err
        assert path.exists()

    @pytest.mark.parametrize("name", [".", "outbox.json", "objects"])
    @pytest.mark.parametrize("mode", [0o020, 0o002])
    def test_outbox_that_others_can_write_is_refused(self, tmp_path: Path, name: str, mode: int) -> None:
        path = leave_outbox(tmp_path)
        (path / name).chmod(0o700 | mode)

        with pytest.raises(DestinationError, match=r"can be written by other users; .* chmod -R go-w"):
            Outbox.open(path)

    @pytest.mark.parametrize("name", ["journal.jsonl", "manifest.json"])
    def test_file_that_others_can_write_is_not_read(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
    ) -> None:
        path = leave_outbox(tmp_path)
        (path / "manifest.json").write_text('{"format": 1, "created": "", "dumpstream": "", "runs": []}')
        (path / "journal.jsonl").write_text("")
        (path / name).chmod(0o666)

        assert main(["upload", str(tmp_path)]) == 1
        assert "can be written by other users" in capsys.readouterr().err
        assert (path / "outbox.json").exists()


class TestFiles:
    def test_what_is_not_dumpstreams_stays_and_is_named(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = leave_outbox(tmp_path)
        (path / "notes.txt").write_text("a stranger's")
        (path / "objects/photo.jpg").write_text("a stranger's")
        (path / "objects" / ("0" * 32)).mkdir()
        (path / "objects" / f"{'1' * 32}.part").write_text("an unfinished object")

        assert main(["upload", str(tmp_path)]) == 0

        left = sorted(str(it.relative_to(path)) for it in path.rglob("*"))
        assert left == ["notes.txt", "objects", f"objects/{'0' * 32}", "objects/photo.jpg"]
        said = capsys.readouterr().err
        assert f"left in {path}, because dumpstream did not make them: notes.txt, objects/0000" in said

    def test_outbox_with_nothing_else_is_gone_after_the_upload(self, tmp_path: Path) -> None:
        path = leave_outbox(tmp_path)
        (path / ".manifest.json.new").write_text("of a killed write")

        assert main(["upload", str(tmp_path)]) == 0
        assert not path.exists()

    @pytest.mark.parametrize("name", ["journal.jsonl", "manifest.json", "outbox.json", "objects", ".lock"])
    @pytest.mark.parametrize("kind", ["fifo", "link", "loop"])
    def test_file_that_is_not_regular_is_reported_and_the_next_outbox_is_uploaded(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
    ) -> None:
        bad, good = sorted([leave_outbox(tmp_path), leave_outbox(tmp_path)])
        (bad / "manifest.json").write_text('{"format": 1, "created": "", "dumpstream": "", "runs": []}')
        target = bad / name
        if target.is_dir():
            target.rmdir()
        else:
            target.unlink(missing_ok=True)
        (tmp_path / "elsewhere").write_text('{"type": "begin", "run": 1, "time": "now"}\n')
        if kind == "fifo":
            os.mkfifo(target)
        else:
            target.symlink_to(tmp_path / "elsewhere" if kind == "link" else name)

        assert main(["upload", str(tmp_path)]) == 1

        assert str(bad) in capsys.readouterr().err
        assert bad.exists()
        assert not good.exists()

    @pytest.mark.parametrize(
        "more",
        [
            {"stores": "s3://bucket"},
            {"stores": [1]},
            {"stores": ["no url"]},
            {"packs": {"a": 1}},
            {"packs": ["s3://bucket/run/files/a"]},
            {"packs": ["s3://other/packs/0123abcd"]},
            {"packs": ["s3://bucket/run/packs/0123abc"]},
            {"packs": ["s3://bucket/run/packs/"]},
            {"locks": ["s3://bucket/run"]},
            {"locks": {"no url": None}},
            {"locks": {"s3://bucket/run": 1}},
            {"destination": "s3://"},
        ],
    )
    def test_description_that_dumpstream_does_not_write_is_refused(
        self, tmp_path: Path, more: dict[str, Any]
    ) -> None:
        path = leave_outbox(tmp_path)
        description = {"format": 1, "destination": "s3://bucket/run", "stores": ["s3://bucket/run"], **more}
        (path / "outbox.json").write_text(json.dumps(description))

        with pytest.raises(DestinationError, match="is not an outbox"):
            Outbox.open(path)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """What every bucket is made of."""
    store = MemoryStore()
    monkeypatch.setattr("dumpstream.objectstore.store.make_client", lambda *_: store)
    return store


@pytest.fixture
def uploader_of(tmp_path: Path, memory: MemoryStore) -> Iterator[Callable[..., OutboxUploader]]:
    prefix = Prefix.parse("s3://bucket/run")
    outbox = make_outbox(tmp_path, prefix.url)
    outbox.add_store(prefix)
    outbox.add_packs(f"{prefix}/packs/0123abcd")

    def make(*waiting: str) -> OutboxUploader:
        for url in waiting:
            outbox.append(url, [b"data"], new=True)
            outbox.complete(url)
        return OutboxUploader(outbox, (), Patience())

    yield make
    outbox.close()


@pytest.mark.anyio
class TestKeys:
    @pytest.mark.parametrize(
        "key",
        [
            "manifest.json",
            "journal/000001.jsonl",
            "lock.json",
            "files/a",
            "files/.zst",
            "files//a.zst",
            "files/../../other/a.zst",
            "files/./a.zst",
            "packs/a.zip",
            "packs/89abcdef-000001.zip",
            "packs/0123abcd-000001.zip/a.zst",
            "stats/a.parquet",
            "stats/20260510T015441-0123ab-00001.csv.parquet",
            "stats/../a.csv",
            "stats/.csv",
            "stats/a.json",
        ],
    )
    async def test_object_that_the_capture_cannot_have_stored_is_not_uploaded(
        self, uploader_of: Callable[..., OutboxUploader], memory: MemoryStore, key: str
    ) -> None:
        uploader = await run_sync(uploader_of, f"s3://bucket/run/{key}")

        with pytest.raises(StoreError, match="is not a key of this capture"):
            await uploader.upload(key)

        assert not [entry for page in memory.list() for entry in page]

    @pytest.mark.parametrize("url", ["s3://bucket/other/files/a.zst", "s3://other/run/files/a.zst"])
    async def test_object_of_another_prefix_is_not_uploaded(
        self, uploader_of: Callable[..., OutboxUploader], url: str
    ) -> None:
        uploader = await run_sync(uploader_of, url)

        with pytest.raises(StoreError, match="is not a key of this capture"):
            await uploader.upload(url)

    @pytest.mark.parametrize("key", ["files/a.zst", "files/deep/a.2.zst", "packs/0123abcd-000001.zip"])
    async def test_object_of_the_capture_is_uploaded(
        self, uploader_of: Callable[..., OutboxUploader], key: str
    ) -> None:
        uploader = await run_sync(uploader_of, f"s3://bucket/run/{key}")

        assert await uploader.upload(key) == 4

    async def test_only_packs_of_its_own_names_are_deleted(
        self, uploader_of: Callable[..., OutboxUploader]
    ) -> None:
        part = StoredPart("zstd", "packs/0123abcd-000001.zip", 0, 4, 4, None, 0)
        line = FileRow("a", 4, 1, Verdict.UNPARSED, [part]).to_line().encode()
        others = ["89abcdef-000001.zip", "0123abcd-x.zip", "0123abcd-000001.zip", "0123abcd-000002.zip.txt"]

        def delete() -> tuple[int, list[str]]:
            uploader, store = uploader_of(), Store(Prefix.parse("s3://bucket/run"))
            for name in ["0123abcd-000002.zip", *others]:
                store.write(f"packs/{name}", b"")
            deleted = uploader.delete_packs([line], list)
            return deleted, sorted(entry.key for entry in store.entries())

        deleted, left = await run_sync(delete)

        assert deleted == 1
        assert left == sorted(f"packs/{name}" for name in others)


@pytest.mark.anyio
async def test_capture_that_spills_into_an_outbox_ends_before_it_begins(tmp_path: Path) -> None:
    outer = await run_sync(make_outbox, tmp_path)

    with pytest.raises(DestinationError, match="is inside the outbox"):
        async with capturing("s3://bucket/run", spill=outer.path):
            pass

    await run_sync(outer.close)


@pytest.mark.anyio
async def test_object_that_is_a_link_is_an_error_of_its_outbox(tmp_path: Path, memory: MemoryStore) -> None:
    outbox = await run_sync(make_outbox, tmp_path)
    prefix, (name, path) = Prefix.parse("s3://bucket/run"), ("a", "files/a.zst")

    def fill() -> None:
        outbox.needed = True
        outbox.add_store(prefix)
        outbox.keep_manifest(Manifest(dumpstream="1", created="now", runs=[]))
        part = StoredPart("zstd", path, 0, 4, 4, None)
        outbox.journal_path.write_text(FileRow(name, 4, 1, Verdict.UNPARSED, [part]).to_line() + "\n")
        outbox.append(f"{prefix}/{path}", [b"data"], new=True)
        outbox.complete(f"{prefix}/{path}")
        (waiting,) = (outbox.path / "objects").iterdir()
        waiting.unlink()
        waiting.symlink_to("/etc/hostname")

    await run_sync(fill)

    with pytest.raises(DestinationError, match=r"cannot be uploaded \(.*objects/.*upload again"):
        await reconcile(outbox)
    await run_sync(outbox.close)

    assert outbox.path.exists()
    assert "files/a.zst" not in [entry["path"] for page in memory.list() for entry in page]
