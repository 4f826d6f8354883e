"""What a killed run left is removed when the caller asks for that, and nothing else."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import obstore
import pytest
from obstore.store import MemoryStore

from dumpstream import NotACaptureError
from dumpstream._errors import DestinationError
from dumpstream.archive.manifest import MANIFEST
from dumpstream.archive.rows import JOURNAL, MergedRow
from dumpstream.cli import main
from dumpstream.reading.repair import repair
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.verification import verify
from dumpstream.remote.outbox import Outbox
from dumpstream.source import OnFull
from dumpstream.system.location import Prefix
from dumpstream.system.lock import SHARED, release_shares, share_directories

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder, CollectionBuilder

_DRAFT = ".0123456789abcdef.dumpstream-part"
OURS = ["files/deep/a.2.zst", "files/extra.zst", "packs/0123abcd-000001.zip"]
LEFTOVERS = [".manifest.json.new", f"files/{_DRAFT}", f"packs/{_DRAFT}"]
OTHERS = ["files/notes.txt", "notes.txt", "other/a.zst", "packs/a.zip", "packs/0123abcd-1.zip", "stats/a"]


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where captures without a spill have their outboxes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/dumpstream"


def litter(root: Path) -> None:
    """Put files there that the journal does not name."""
    for name in [*OURS, *LEFTOVERS, *OTHERS]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def run(location: Path | Prefix, **options: Any) -> list[str]:
    removed: list[str] = []
    anyio.run(partial(repair, location, removed.append, **options))
    return sorted(removed)


def leave_outbox(root: Path, destination: object) -> Outbox:
    outbox = Outbox.make(root, str(destination), quota=None, on_full=OnFull.BLOCK)
    outbox.needed = True
    outbox.close()
    return outbox


def set_spill(path: Path, spill: Path) -> None:
    """Have the manifest of the capture *path* say that it had a spill."""
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["runs"][0]["options"]["spill"] = str(spill)
    (path / MANIFEST).write_text(json.dumps(manifest))


class TestDirectory:
    def test_only_what_dumpstream_left_is_removed(
        self, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        builder.add("kept", b"data")
        litter(builder.path)
        builder.interrupt()

        code = main(["verify", "--repair", "--json", str(builder.path)])

        result = json.loads(capsys.readouterr().out)
        assert code == 3  # it was interrupted all the same
        assert sorted(result["removed"]) == sorted(OURS + LEFTOVERS)
        assert result["leftovers"] == []
        assert sorted(it["subject"] for it in result["problems"] if it["kind"] == "extra") == sorted(OTHERS)
        assert result["parts"] == 1
        assert not [name for name in OURS + LEFTOVERS if (builder.path / name).exists()]

    def test_text_names_what_is_removed(
        self, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        builder.store("files/extra.zst", b"data")
        builder.interrupt()

        main(["verify", "--repair", str(builder.path)])

        assert capsys.readouterr().out.startswith(
            "removed     files/extra.zst: no line of the journal names it\n"
        )

    def test_nothing_is_removed_unasked(self, builder: CaptureBuilder) -> None:
        litter(builder.path)
        builder.interrupt()

        assert main(["verify", str(builder.path)]) == 3
        assert all((builder.path / name).exists() for name in OURS + LEFTOVERS)
        assert main(["verify", "--outbox-lost", str(builder.path)]) == 2

    def test_files_that_no_killed_run_can_have_left_stay(self, builder: CaptureBuilder) -> None:
        litter(builder.finish())

        assert run(builder.path) == sorted(LEFTOVERS)

    @pytest.mark.parametrize("mark", [MANIFEST, ".lock"])
    def test_another_capture_inside_stays(self, builder: CaptureBuilder, mark: str) -> None:
        inside = ["files/other/files/deep/a.zst", f"files/other/files/{_DRAFT}", f"notes/{_DRAFT}"]
        for name in [*inside, f"files/other/{mark}", f"notes/{mark}"]:
            builder.store(name, b"data")
        builder.store("files/others.zst", b"data")
        builder.interrupt()

        assert run(builder.path) == ["files/others.zst"]
        assert all((builder.path / name).exists() for name in inside)

    def test_nothing_is_removed_while_the_sink_of_another_capture_writes_there(
        self, builder: CaptureBuilder, tmp_path: Path
    ) -> None:
        litter(builder.path)
        builder.interrupt()
        shares = share_directories(builder.path / "files", besides=tmp_path / "other")
        assert shares
        try:
            with pytest.raises(DestinationError, match="is being written by another capture's sink"):
                run(builder.path)
        finally:
            release_shares(shares)

        assert run(builder.path) == sorted([*LEFTOVERS, *(it for it in OURS if not it.startswith("files/"))])

    def test_files_of_another_capture_s_sink_stay_after_its_end(
        self, builder: CaptureBuilder, tmp_path: Path
    ) -> None:
        builder.store("files/extra.zst", b"data")
        builder.interrupt()
        other, sink = tmp_path / "other", f"zstd:{builder.path / 'files/below'}"
        captured = main(["capture", "--out", str(other), "--simulate", "ops=2,steps=2", "--sink", sink])
        assert captured == 0

        assert run(builder.path) == ["files/extra.zst"]
        assert main(["verify", str(other)]) == 0

    @pytest.mark.parametrize("mark", [b"{", b'"../files"\n', b"7\n", b"\xff\n", b'"."\n'])
    def test_nothing_but_drafts_is_removed_where_any_file_may_be_another_s(
        self, builder: CaptureBuilder, mark: bytes
    ) -> None:
        litter(builder.path)
        (builder.path / SHARED).write_bytes(mark)
        builder.interrupt()

        assert run(builder.path) == sorted(LEFTOVERS)

    def test_the_mark_of_another_capture_s_sink_is_no_problem(
        self, builder: CaptureBuilder, tmp_path: Path
    ) -> None:
        builder.add("a", b"data")
        for besides in (tmp_path / "other", None):
            release_shares(share_directories(builder.path / "files", besides=besides))
        inside = builder.path / "other"  # as those of processes are
        release_shares(share_directories(inside / "files", besides=inside))

        assert (builder.path / SHARED).read_bytes() == b'"files"\n'
        assert main(["verify", str(builder.finish())]) == 0

    def test_links_are_neither_followed_nor_removed(self, builder: CaptureBuilder, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere/a.zst").touch()
        (builder.path / "files").mkdir()
        (builder.path / "files/link.zst").symlink_to(tmp_path / "elsewhere/a.zst")
        (builder.path / "files/deep").symlink_to(tmp_path / "elsewhere")
        builder.interrupt()

        assert run(builder.path) == []
        assert (tmp_path / "elsewhere/a.zst").exists()
        assert (builder.path / "files/link.zst").is_symlink()

    def test_file_that_the_journal_names_by_its_full_path_stays(self, builder: CaptureBuilder) -> None:
        part = builder.store("files/a.zst", b"data")
        line = json.dumps(
            {
                "type": "file",
                "name": "a",
                "bytes": 4,
                "chunks": 1,
                "verdict": "unparsed",
                "stored": [part._replace(path=str(builder.path / "files/a.zst"))._asdict()],
            }
        )
        builder.write(line)
        builder.interrupt()

        assert run(builder.path) == []

    def test_running_capture_is_left_alone(self, builder: CaptureBuilder) -> None:
        litter(builder.path)

        with pytest.raises(DestinationError, match=f"process {os.getpid()}; repair it when that has ended"):
            run(builder.path)

        assert all((builder.path / name).exists() for name in OURS + LEFTOVERS)

    def test_journal_that_cannot_be_read_may_name_any_file(self, builder: CaptureBuilder) -> None:
        litter(builder.path)
        builder.write("garbage")
        builder.add("a", b"data")
        builder.interrupt()

        with pytest.raises(DestinationError, match="line 2 cannot be read; restore it"):
            run(builder.path)

        assert all((builder.path / name).exists() for name in OURS)

    def test_line_that_was_cut_off_does_not_hinder(self, builder: CaptureBuilder) -> None:
        litter(builder.path)
        builder.write('{"type":"fi', end="")
        builder.interrupt()

        assert run(builder.path) == sorted(OURS + LEFTOVERS)

    def test_directory_without_a_capture_is_not_touched(self, tmp_path: Path) -> None:
        (tmp_path / "files").mkdir()
        (tmp_path / "files/a.zst").touch()

        with pytest.raises(NotACaptureError):
            run(tmp_path)

        assert [it.name for it in tmp_path.iterdir()] == ["files"]


class TestOutbox:
    def test_files_whose_lines_wait_are_not_removed(self, builder: CaptureBuilder, tmp_path: Path) -> None:
        litter(builder.path)
        builder.interrupt()
        set_spill(builder.path, tmp_path / "spill")
        leave_outbox(tmp_path / "spill", tmp_path / "another")
        outbox = leave_outbox(tmp_path / "spill", builder.path)

        with pytest.raises(DestinationError, match=f"wait in {outbox.path}; first run: dumpstream upload"):
            run(builder.path, outbox_lost=True)
        assert all((builder.path / name).exists() for name in OURS)

        uploaded = Outbox.open(outbox.path)
        uploaded.needed = False
        uploaded.close()
        assert run(builder.path) == sorted(OURS + LEFTOVERS)

    def test_verification_calls_what_waits_waiting(self, builder: CaptureBuilder, tmp_path: Path) -> None:
        builder.interrupt()
        spill = tmp_path / "spill"
        set_spill(builder.path, spill)
        outbox = leave_outbox(spill, builder.path)

        (waiting,) = verify(StoredCapture.open(builder.path)).problems

        assert waiting.kind == "waiting"
        assert waiting.detail.endswith(f"upload the rest with: dumpstream upload {spill}")
        uploaded = Outbox.open(outbox.path)
        uploaded.needed = False
        uploaded.close()
        assert [problem.kind for problem in verify(StoredCapture.open(builder.path)).problems] == [
            "interrupted"
        ]

    def test_spill_on_another_machine_may_have_lines(self, builder: CaptureBuilder, tmp_path: Path) -> None:
        litter(builder.path)
        builder.interrupt()
        set_spill(builder.path, tmp_path / "elsewhere")

        with pytest.raises(DestinationError, match=r"may have lines that wait .* --outbox-lost"):
            run(builder.path)
        assert all((builder.path / name).exists() for name in OURS)

        assert run(builder.path, outbox_lost=True) == sorted(OURS + LEFTOVERS)


class TestProcesses:
    def test_captures_of_all_processes_are_repaired(self, collection: CollectionBuilder) -> None:
        for rank in (0, 1):
            capture = collection.begin(rank=rank, pid=rank + 1)
            capture.add("kept", b"data")
            capture.store("files/extra.zst", b"data")
            capture.interrupt()
        (collection.path / _DRAFT).touch()
        (collection.path / "files").mkdir()
        (collection.path / "files/a.zst").touch()

        removed = run(collection.close())

        assert removed == [_DRAFT, "rank-0/files/extra.zst", "rank-1/files/extra.zst"]
        assert (collection.path / "rank-0/files/kept.zst").exists()
        assert (collection.path / "files/a.zst").exists()

    def test_process_without_a_capture_does_not_hinder(self, collection: CollectionBuilder) -> None:
        first, second = collection.begin(rank=0), collection.begin(rank=1)
        (first.interrupt() / "manifest.json").unlink()
        second.store("files/extra.zst", b"data")
        second.interrupt()

        assert run(collection.close()) == ["rank-1/files/extra.zst"]

    def test_processes_that_are_being_captured_are_left_alone(self, collection: CollectionBuilder) -> None:
        capture = collection.begin(rank=0)
        capture.store("files/extra.zst", b"data")
        capture.interrupt()

        with pytest.raises(DestinationError, match="repair it when that has ended"):
            run(collection.path)

        assert (capture.path / "files/extra.zst").exists()

    def test_ring_that_can_be_recovered_comes_first(self, collection: CollectionBuilder) -> None:
        capture = collection.begin(rank=0, ring="/dev/shm/ring")
        capture.store("files/extra.zst", b"data")
        capture.interrupt()

        with pytest.raises(DestinationError, match="run first: dumpstream recover"):
            run(collection.close())

        assert (capture.path / "files/extra.zst").exists()


@pytest.fixture
def prefix(builder: CaptureBuilder) -> Prefix:
    """A capture in a store that was killed, and whose outbox was uploaded."""
    builder.add("kept", b"data")
    litter(builder.path)
    builder.interrupt()
    client = MemoryStore()
    for path in builder.path.rglob("*"):
        if path.is_file() and path.name not in {".lock", ".manifest.json.new"} and path.name != _DRAFT:
            obstore.put(client, f"run/{path.relative_to(builder.path)}", path.read_bytes())
    obstore.put(client, "run/.dumpstream-probe", b"")
    obstore.put(client, "beside/files/a.zst", b"")
    return Prefix.of(client, "run")


def keys(prefix: Prefix) -> set[str]:
    return {str(meta["path"]) for page in obstore.list(prefix.store) for meta in page}


class TestStore:
    def test_only_what_dumpstream_left_is_removed(self, prefix: Prefix) -> None:
        before = keys(prefix)

        removed = run(prefix)

        assert removed == sorted([*OURS, ".dumpstream-probe"])
        assert keys(prefix) == before - {f"run/{key}" for key in removed}
        assert "run/lock.json" not in keys(prefix)

    def test_running_capture_is_left_alone(self, prefix: Prefix) -> None:
        obstore.put(prefix.store, "run/lock.json", b'{"host": "node7", "pid": 4711}')
        before = keys(prefix)

        with pytest.raises(DestinationError, match=r"process 4711 on node7; repair it .* in two minutes"):
            run(prefix)

        assert before - keys(prefix) <= {"run/.dumpstream-probe"}  # written again to learn the store's time

    @pytest.mark.parametrize("state", ["segments", "no begin"])
    def test_lines_may_wait_where_it_was_captured(self, prefix: Prefix, state: str) -> None:
        journal = bytes(obstore.get(prefix.store, f"run/{JOURNAL}").bytes())
        if state == "segments":
            obstore.delete(prefix.store, f"run/{JOURNAL}")
            obstore.put(prefix.store, "run/journal/000001.jsonl", journal)
        else:
            rest = journal.partition(b"\n")[2]
            obstore.put(prefix.store, f"run/{JOURNAL}", MergedRow(1).to_line().encode() + b"\n" + rest)
        before = keys(prefix)

        with pytest.raises(DestinationError, match="may have lines that wait where it was captured"):
            run(prefix)
        assert keys(prefix) == before

        assert run(prefix, outbox_lost=True) == sorted([*OURS, ".dumpstream-probe"])

    def test_files_whose_lines_wait_in_an_outbox_here_are_not_removed(
        self, prefix: Prefix, state: Path
    ) -> None:
        outbox = leave_outbox(state, prefix.url)

        with pytest.raises(DestinationError, match=f"wait in {outbox.path}"):
            run(prefix, outbox_lost=True)
