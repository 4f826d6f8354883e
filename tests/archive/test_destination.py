from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import make_process

from dumpstream._errors import DestinationError, DestinationInUseError, NotACaptureError
from dumpstream.archive.destination import Destination
from dumpstream.archive.manifest import read_manifest
from dumpstream.archive.remains import Remains
from dumpstream.archive.rows import FileRow, Outcome, StoredPart
from dumpstream.format.verdict import Verdict
from dumpstream.system.lock import lock_holder, release_lock, take_lock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "capture"


def make_capture(path: Path) -> None:
    destination = Destination.open(path)
    destination.begin_run({"level": 3})
    (path / "files").mkdir()
    (path / "files/a.zst").write_bytes(b"data")
    name_parts(path, "files/a.zst")
    destination.end_run(Outcome.FINISHED)
    destination.close()


def make_processes(path: Path) -> None:
    """Leave a capture of two processes."""
    destination = Destination.open(path, of_processes=True)
    destination.begin_processes()
    for pid, rank in ((1, 0), (2, None)):
        process = make_process(pid, rank=rank)
        destination.begin_process(process)
        make_capture(path / process.directory)
        destination.end_process(process, "exit code 0")
    destination.close()


def change_manifest(path: Path, listed: str, name: str, value: object) -> None:
    """Forge the field *name* of the first thing that is *listed*."""
    content = json.loads((path / "manifest.json").read_text())
    content[listed][0][name] = value
    (path / "manifest.json").write_text(json.dumps(content))


def replace_capture(path: Path) -> Remains:
    destination = Destination.open(path, force=True)
    destination.begin_run({})
    destination.close()
    return destination.remains


def name_parts(path: Path, *parts: str) -> None:
    """Have the journal say that these were stored."""
    with (path / "journal.jsonl").open("a") as journal:
        for part in parts:
            stored = [StoredPart("zstd", part, 0, 1, 1, None)]
            journal.write(FileRow("name", 1, 1, Verdict.UNPARSED, stored).to_line() + "\n")


class TestFreshDestinations:
    def test_directory_and_its_parents_are_made(self, tmp_path: Path) -> None:
        path = tmp_path / "a/b"

        destination = Destination.open(path)
        destination.begin_run({})
        destination.close()

        assert path.stat().st_mode & 0o777 == 0o700
        assert {entry.stat().st_mode & 0o777 for entry in path.iterdir()} == {0o600}

    def test_manifest_tells_of_the_run(self, path: Path) -> None:
        destination = Destination.open(path)

        run = destination.begin_run({"level": 3, "out": path}, acl_library="libacl.so", config={"dump": {}})
        destination.end_run(Outcome.FINISHED)
        destination.close()

        manifest = json.loads((path / "manifest.json").read_text())
        assert manifest["format"] == 1
        assert manifest["runs"][0]["run"] == run == 1
        assert manifest["runs"][0]["options"] == {"level": 3, "out": str(path)}
        assert manifest["runs"][0]["acl_library"] == "libacl.so"
        assert manifest["runs"][0]["config"] == {"dump": {}}
        assert manifest["runs"][0]["outcome"] == "finished"
        assert manifest["runs"][0]["ended"] >= manifest["runs"][0]["started"]

    def test_run_that_has_not_ended_has_no_outcome(self, path: Path) -> None:
        destination = Destination.open(path)

        destination.begin_run({})
        destination.close()

        manifest = json.loads((path / "manifest.json").read_text())
        assert manifest["runs"][0]["ended"] is manifest["runs"][0]["outcome"] is None

    def test_empty_directory_and_what_a_start_cut_off_leaves_are_taken(self, path: Path) -> None:
        path.mkdir()
        (path / ".lock").touch()
        (path / ".manifest.json.new").write_text("{")

        destination = Destination.open(path)

        assert destination.begin_run({}) == 1
        destination.close()

    def test_without_a_run_no_trace_is_left(self, tmp_path: Path) -> None:
        (tmp_path / "there").mkdir()

        for path in (tmp_path / "a/b", tmp_path / "there"):
            Destination.open(path).close()

        assert list(tmp_path.rglob("*")) == [tmp_path / "there"]

    def test_without_a_run_what_another_program_put_there_stays(self, path: Path) -> None:
        destination = Destination.open(path)
        (path / "notes.txt").write_text("mine")

        destination.close()

        assert [entry.name for entry in path.iterdir()] == ["notes.txt"]

    def test_refused_start_leaves_no_directories(self, tmp_path: Path) -> None:
        (tmp_path / "sealed").mkdir(mode=0o700)
        (tmp_path / "sealed/.lock").symlink_to("elsewhere")

        with pytest.raises(DestinationError, match="symbolic"):
            Destination.open(tmp_path / "sealed")

        assert [entry.name for entry in (tmp_path / "sealed").iterdir()] == [".lock"]

    def test_root_may_be_a_link(self, path: Path, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        path.symlink_to("real")

        destination = Destination.open(path)
        destination.begin_run({})
        destination.close()

        assert (tmp_path / "real/manifest.json").exists()


class TestUsedDestinations:
    def test_capture_is_refused_with_both_ways_out(self, path: Path) -> None:
        make_capture(path)

        with pytest.raises(DestinationError, match=r"--append.*--force"):
            Destination.open(path)

        assert (path / "files/a.zst").exists()

    def test_append_keeps_everything_and_counts_on(self, path: Path) -> None:
        make_capture(path)
        journal = (path / "journal.jsonl").read_text()

        destination = Destination.open(path, append=True)
        run = destination.begin_run({})
        destination.close()

        assert run == 2
        assert (path / "files/a.zst").exists()
        assert (path / "journal.jsonl").read_text() == journal
        assert len(json.loads((path / "manifest.json").read_text())["runs"]) == 2

    def test_force_deletes_the_capture_and_nothing_else(self, path: Path) -> None:
        make_capture(path)
        (path / "notes.txt").write_text("mine")

        replace_capture(path)

        assert sorted(entry.name for entry in path.iterdir()) == [".lock", "manifest.json", "notes.txt"]
        assert [run["options"] for run in json.loads((path / "manifest.json").read_text())["runs"]] == [{}]

    def test_force_deletes_nothing_before_a_run_begins(self, path: Path) -> None:
        make_capture(path)
        before = {entry: entry.read_bytes() for entry in path.rglob("*") if entry.is_file()}

        Destination.open(path, force=True).close()

        assert {entry: entry.read_bytes() for entry in path.rglob("*") if entry.is_file()} == before

    def test_force_deletes_what_the_journal_says_was_stored_inside(self, path: Path) -> None:
        make_capture(path)
        (path / "own/deep").mkdir(parents=True)
        for name in ("own/deep/a.zst", "own/b.zst", "c.zst", "own/notes.txt"):
            (path / name).write_text("data")
        name_parts(path, "own/deep/a.zst", "own/b.zst", "c.zst", "own/gone.zst")

        replace_capture(path)

        names = sorted(str(entry.relative_to(path)) for entry in path.rglob("*"))
        assert names == [".lock", "manifest.json", "own", "own/notes.txt"]

    def test_force_deletes_nothing_outside_whatever_the_journal_says(
        self, path: Path, tmp_path: Path
    ) -> None:
        make_capture(path)
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "file").touch()
        (path / "link").symlink_to(outside)
        name_parts(path, str(outside / "file"), "../outside/file", "link/file", "manifest.json", ".lock", "/")

        replace_capture(path)

        assert (outside / "file").exists()
        assert sorted(entry.name for entry in path.iterdir()) == [".lock", "link", "manifest.json"]

    def test_force_removes_planted_links_and_not_what_they_lead_to(self, path: Path, tmp_path: Path) -> None:
        make_capture(path)
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious/file").touch()
        (path / "files").rename(tmp_path / "moved")
        (path / "files").symlink_to(tmp_path / "precious")

        replace_capture(path)

        assert not (path / "files").is_symlink()
        assert (tmp_path / "precious/file").exists()

    def test_both_at_once_are_refused(self, path: Path) -> None:
        with pytest.raises(ValueError, match="exclude"):
            Destination.open(path, append=True, force=True)


class TestUnusableDestinations:
    @pytest.mark.parametrize("force", [False, True])
    def test_directory_with_other_things_is_refused_and_left_alone(self, path: Path, *, force: bool) -> None:
        (path / "files").mkdir(parents=True)

        with pytest.raises(DestinationError, match="holds no capture; choose"):
            Destination.open(path, force=force)

        assert [entry.name for entry in path.iterdir()] == ["files"]

    @pytest.mark.parametrize("text", ["", "[]", '{"name": "an app"}', "[" * 200_000])
    def test_the_manifest_of_another_program_is_refused_and_kept(self, path: Path, text: str) -> None:
        path.mkdir()
        (path / "manifest.json").write_text(text)

        with pytest.raises(NotACaptureError, match="not dumpstream's"):
            Destination.open(path, force=True)

        assert (path / "manifest.json").read_text() == text

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *((name, 5) for name in ("started", "ended", "outcome", "python", "platform", "acl_library")),
            ("started", None),
            ("started", []),
            *((name, "text") for name in ("run", "config", "profile", "options", "codec", "configured")),
            ("run", 1 << 63),
            ("configured", [{"by": 5, "call": "", "path": "", "first": "", "last": ""}]),
        ],
    )
    def test_manifest_of_what_cannot_be_a_run_is_refused(self, path: Path, name: str, value: object) -> None:
        make_capture(path)
        change_manifest(path, "runs", name, value)

        with pytest.raises(NotACaptureError, match="not dumpstream's"):
            read_manifest(path)

    def test_manifest_of_more_than_64_mib_is_not_read(self, path: Path) -> None:
        make_capture(path)
        (path / "manifest.json").write_bytes(b" " * (64 << 20) + (path / "manifest.json").read_bytes())

        with pytest.raises(NotACaptureError, match="MiB"):
            Destination.open(path, append=True)

    def test_newer_format_is_refused_with_its_number(self, path: Path) -> None:
        make_capture(path)
        (path / "manifest.json").write_text('{"format": 3, "dumpstream": "9.1"}')

        with pytest.raises(NotACaptureError, match=r"format 3 \(dumpstream 9\.1\).*upgrade"):
            Destination.open(path, append=True)

    def test_linked_manifest_is_not_followed(self, path: Path, tmp_path: Path) -> None:
        make_capture(path)
        (path / "manifest.json").rename(tmp_path / "elsewhere.json")
        (path / "manifest.json").symlink_to(tmp_path / "elsewhere.json")

        with pytest.raises(NotACaptureError, match="symbolic"):
            Destination.open(path, append=True)

    def test_linked_lock_is_not_followed(self, path: Path, tmp_path: Path) -> None:
        path.mkdir()
        (path / ".lock").symlink_to(tmp_path / "elsewhere")

        with pytest.raises(DestinationError, match="symbolic"):
            Destination.open(path)

        assert not (tmp_path / "elsewhere").exists()

    def test_file_is_refused(self, path: Path) -> None:
        path.touch()

        with pytest.raises(DestinationError, match="is a file"):
            Destination.open(path)
        with pytest.raises(DestinationError, match="is a file"):
            Destination.open(path / "below")

    def test_place_that_takes_no_directories_is_refused(self) -> None:
        with pytest.raises(DestinationError, match="cannot be written"):
            Destination.open(Path("/proc/nowhere"))

    @pytest.mark.parametrize("below", ["", "deeper/still"])
    def test_place_inside_the_dump_path_is_refused(self, tmp_path: Path, below: str) -> None:
        (tmp_path / "dumps").mkdir()
        (tmp_path / "link").symlink_to("dumps")

        with pytest.raises(DestinationError, match="inside the dump_path"):
            Destination.open(tmp_path / "link" / below, dump_path=tmp_path / "dumps")

        assert list((tmp_path / "dumps").iterdir()) == []


class TestProcesses:
    def test_each_is_written_down_with_a_directory_of_its_own(self, path: Path) -> None:
        destination = Destination.open(path, of_processes=True)
        destination.begin_processes()

        processes = [
            make_process(pid, command=["train", "x"], rank=rank, device=rank)
            for pid, rank in ((10, 0), (11, 1), (12, 0), (13, None), (13, None))
        ]
        for process in processes:
            destination.begin_process(process)
        refused = make_process(14, rank=2)
        destination.begin_process(refused, refused=True)
        destination.end_process(processes[0], "exit code 0")
        destination.close()

        assert [it.directory for it in processes] == ["rank-0", "rank-1", "rank-0.2", "pid-13", "pid-13.2"]
        assert refused.directory == ""
        read = read_manifest(path)
        assert read.processes == [*processes, refused]
        assert read.processes[0].ended is not None
        assert read.runs == []

    def test_directory_that_is_there_already_is_not_taken(self, path: Path) -> None:
        make_processes(path)
        (path / "rank-7").mkdir()

        destination = Destination.open(path, append=True, of_processes=True)
        destination.begin_processes()
        added = make_process(3, rank=7)
        destination.begin_process(added)
        destination.close()

        assert added.directory == "rank-7.2"

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *((name, 5) for name in ("directory", "started", "ended", "ending", "problem", "ring")),
            ("ending", []),
            ("ending", True),
            *((name, "text") for name in ("pid", "rank", "files", "verdicts")),
            ("verdicts", {"complete": 1 << 63}),
            ("verdicts", {"\x1b[2J": 1}),
            ("files", 1 << 63),
            ("ring", "\0"),
        ],
    )
    def test_a_list_of_what_cannot_be_processes_is_refused(
        self, path: Path, name: str, value: object
    ) -> None:
        make_processes(path)
        change_manifest(path, "processes", name, value)

        with pytest.raises(NotACaptureError, match="not dumpstream's"):
            read_manifest(path)

    def test_append_adds_to_those_that_are_there(self, path: Path) -> None:
        make_processes(path)

        destination = Destination.open(path, append=True, of_processes=True)
        destination.begin_processes()
        destination.begin_process(make_process(3, rank=0))
        destination.close()

        assert [it.directory for it in read_manifest(path).processes] == ["rank-0", "pid-2", "rank-0.2"]

    def test_without_append_or_force_they_are_refused(self, path: Path) -> None:
        make_processes(path)

        with pytest.raises(DestinationError, match=r"--append.*--force"):
            Destination.open(path, of_processes=True)

    def test_runs_and_processes_do_not_mix(self, path: Path, tmp_path: Path) -> None:
        make_processes(path)
        make_capture(tmp_path / "runs")

        with pytest.raises(DestinationError, match="no run can be added"):
            Destination.open(path, append=True)
        with pytest.raises(DestinationError, match="no others can be added"):
            Destination.open(tmp_path / "runs", append=True, of_processes=True)

    @pytest.mark.parametrize("of_processes", [False, True])
    def test_force_deletes_their_captures_and_nothing_else(self, path: Path, *, of_processes: bool) -> None:
        make_processes(path)
        (path / "rank-9").mkdir()
        (path / "rank-9/mine").touch()
        (path / "pid-2/notes").touch()

        destination = Destination.open(path, force=True, of_processes=of_processes)
        assert (path / "rank-0/files/a.zst").exists()
        destination.begin_processes() if of_processes else destination.begin_run({})
        destination.close()

        left = sorted(str(entry.relative_to(path)) for entry in path.rglob("*") if entry.is_file())
        assert left == [".lock", "manifest.json", "pid-2/notes", "rank-9/mine"]
        assert read_manifest(path).processes == []

    def test_force_leaves_alone_what_a_planted_link_leads_to(self, path: Path, tmp_path: Path) -> None:
        make_processes(path)
        (path / "rank-0").rename(tmp_path / "elsewhere")
        (path / "rank-0").symlink_to(tmp_path / "elsewhere")

        destination = Destination.open(path, force=True, of_processes=True)
        destination.begin_processes()
        destination.close()

        assert (tmp_path / "elsewhere/files/a.zst").exists()

    @pytest.mark.parametrize("directory", ["..", "rank-0/..", "/etc", "files", "rank-x", "rank-\u0663"])
    def test_directory_of_a_process_leads_nowhere_else(self, path: Path, directory: str) -> None:
        make_processes(path)
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["processes"][0]["directory"] = directory
        (path / "manifest.json").write_text(json.dumps(manifest))

        with pytest.raises(NotACaptureError, match="not dumpstream's"):
            Destination.open(path, force=True, of_processes=True)

    @pytest.mark.parametrize("ring", [7, ["a"], {"a": 1}, "a\0b"])
    def test_ring_of_a_process_is_a_path(self, path: Path, ring: object) -> None:
        make_processes(path)
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["processes"][0]["ring"] = ring
        (path / "manifest.json").write_text(json.dumps(manifest))

        with pytest.raises(NotACaptureError, match="not dumpstream's"):
            read_manifest(path)


class TestLock:
    def test_second_capture_is_refused_with_the_first_ones_process(self, path: Path) -> None:
        first = Destination.open(path)

        with pytest.raises(DestinationInUseError, match=f"process {os.getpid()}"):
            Destination.open(path, force=True)

        first.close()
        Destination.open(path, append=True).close()

    def test_lock_that_its_holder_removed_is_made_anew(self, path: Path) -> None:
        path.mkdir()
        dir_fd = os.open(path, os.O_RDONLY)
        removed = take_lock(path, dir_fd)
        (path / ".lock").unlink()

        taken = take_lock(path, dir_fd)

        assert lock_holder(path) == os.getpid()
        for fd in (removed, taken):
            release_lock(fd)
        os.close(dir_fd)

    def test_holder_is_known_while_it_holds(self, path: Path) -> None:
        destination = Destination.open(path)

        during = lock_holder(path)
        destination.close()
        destination.close()

        assert during == os.getpid()
        assert lock_holder(path) is None

    def test_lock_ends_with_a_killed_process_though_its_forked_child_lives(self, path: Path) -> None:
        code = (
            "import os, pathlib, signal, sys; from dumpstream.archive.destination import Destination\n"
            "destination = Destination.open(pathlib.Path(sys.argv[1]))\n"
            "if not os.fork():\n"
            "    destination.close()  # not the child's to give up\n"
            "    print(os.getpid(), flush=True)\n"
            "signal.pause()"
        )
        with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            child = int(process.stdout.readline())
            during = lock_holder(path)
            process.kill()
        after = lock_holder(path)
        os.kill(child, signal.SIGKILL)

        assert during == process.pid
        assert after is None
