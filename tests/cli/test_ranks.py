"""Captures of several processes, as every command reads them: as a whole, or one rank."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dumpstream import NotACaptureError
from dumpstream.archive.rows import LossRow
from dumpstream.cli import main
from dumpstream.format.verdict import Verdict
from dumpstream.reading.stored import StoredCapture
from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CollectionBuilder

WORKLOAD = Workload(models=1, ops=2, tensor_bytes="64")
NAMES = [os.path.normpath(file.name) for file in WORKLOAD.expected_files("/dump")]
NAME = NAMES[0]


def data_of(rank: int) -> dict[str, bytes]:
    """Return the same names for every rank, with other bytes."""
    files = replace(WORKLOAD, seed=rank).expected_files("/dump")
    return dict(zip(NAMES, (file.data for file in files), strict=True))


FILES = {rank: data_of(rank) for rank in (0, 1)}


@pytest.fixture
def run(collection: CollectionBuilder) -> Path:
    """Leave a capture of two ranks, whole."""
    for rank, files in FILES.items():
        capture = collection.begin(rank=rank, pid=100 + rank)
        for name, data in files.items():
            capture.add(name, data, Verdict.COMPLETE)
        collection.end(capture)
    return collection.close()


def output_of(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([*map(str, arguments)]) == code
    return capsys.readouterr().out


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


class TestLs:
    def test_files_have_their_process_before_their_name(
        self, run: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        listed = json.loads(output_of(capsys, "ls", run, "--json"))

        assert [(file["name"], file["rank"]) for file in listed["files"]] == [
            (f"rank-{rank}/{name}", rank) for rank in FILES for name in NAMES
        ]
        assert all((run / file["path"]).is_file() for file in listed["files"])
        assert listed["state"] == "finished"
        assert "runs" not in listed

    def test_processes_are_reported_with_how_they_ended(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first, second = collection.begin(rank=3, pid=7), collection.begin(rank=None, pid=8)
        first.add("a", b"data", Verdict.COMPLETE)
        second.add("a", b"", Verdict.NEVER_CLOSED)
        second.write(LossRow("full", 2, 20).to_line())
        collection.end(first)
        collection.end(second, "killed by SIGKILL")
        collection.refuse(pid=9)
        run = collection.close()

        listed = json.loads(output_of(capsys, "ls", run, "--json"))
        *_, head, one, two, three, problem, summary = output_of(capsys, "ls", run).splitlines()

        assert [(it["directory"], it["rank"], it["pid"], it["ending"]) for it in listed["processes"]] == [
            ("rank-3", 3, 7, "exit code 0"),
            ("pid-8", None, 8, "killed by SIGKILL"),
            ("", None, 9, None),
        ]
        assert listed["processes"][1]["losses"] == [{"cause": "full", "chunks": 2, "bytes": 20}]
        assert [it["problem"] for it in listed["processes"]] == [None, None, "no room is left"]
        assert problem == "process 9: no room is left"
        assert listed["losses"] == listed["processes"][1]["losses"]
        assert listed["state"] == "finished"
        assert head.split() == ["process", "rank", "device", "pid", "ended", "files", "command"]
        assert one.split()[:7] == ["rank-3", "3", "3", "7", "exit", "code", "0"]
        assert "1 complete" in one
        assert one.endswith("train fast --slow")
        assert "killed by SIGKILL" in two
        assert "1 never_closed" in two
        assert three.startswith("refused")
        assert summary.startswith("2 files (1 complete, 1 never_closed) of 3 processes, 4 B stored in ")
        assert "lost 2 chunks, 20 B (full)" in summary

    def test_processes_come_by_rank_however_they_began(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for rank in (None, 10, 2, 0):
            collection.end(collection.begin(rank=rank))

        listed = json.loads(output_of(capsys, "ls", collection.close(), "--json"))

        assert [process["rank"] for process in listed["processes"]] == [0, 2, 10, None]

    def test_one_rank_is_listed_alone(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        listed = json.loads(output_of(capsys, "ls", run, "--rank", 1, "--json"))

        assert {file["rank"] for file in listed["files"]} == {1}
        assert [it["rank"] for it in listed["processes"]] == [1]

    def test_running_capture_is_listed_and_said_to_run(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ended, running = collection.begin(rank=0), collection.begin(rank=1)
        for capture in (ended, running):
            capture.add("a", b"data", Verdict.COMPLETE)
        collection.end(ended)

        listed = json.loads(output_of(capsys, "ls", collection.path, "--json"))
        table = output_of(capsys, "ls", collection.path)
        running.interrupt()
        collection.close()
        after = json.loads(output_of(capsys, "ls", collection.path, "--json"))

        assert [it["state"] for it in listed["processes"]] == ["finished", "running"]
        assert listed["state"] == "running"
        assert len(listed["files"]) == 2
        assert "  running  " in table
        assert after["state"] == "interrupted"

    def test_process_whose_end_was_not_written_down_makes_it_interrupted(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        collection.begin(rank=0).finish()

        listed = json.loads(output_of(capsys, "ls", collection.close(), "--json"))

        assert listed["processes"][0]["state"] == "finished"
        assert listed["state"] == "interrupted"

    def test_capture_without_a_process_is_empty(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        table = output_of(capsys, "ls", collection.close())

        assert table.splitlines()[-1] == "0 files of 0 processes, 0 B stored in 0 B; the capture is finished"


class TestVerify:
    def test_every_file_of_every_process_is_read_again(
        self, run: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        result = json.loads(output_of(capsys, "verify", run, "--json"))

        assert result["whole"]
        assert (result["files"], result["parts"]) == (4, 4)
        assert result["bytes"] == sum(len(data) for files in FILES.values() for data in files.values())

    def test_problems_name_the_process(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (run / f"rank-1/files{NAME}.zst").unlink()
        (run / "rank-0/extra").touch()
        (run / "elsewhere").mkdir()
        (run / "elsewhere/extra").touch()

        result = json.loads(output_of(capsys, "verify", run, "--json", code=3))
        one = json.loads(output_of(capsys, "verify", run, "--json", "--rank", 1, code=3))

        problems = [(problem["kind"], problem["subject"]) for problem in result["problems"]]
        assert problems == [
            ("extra", "rank-0/extra"),
            ("missing", f"rank-1/{NAME}"),
            ("extra", "elsewhere/extra"),
        ]
        assert [problem["subject"] for problem in one["problems"]] == [f"rank-1/{NAME}"]

    def test_refused_process_and_one_without_a_capture_are_problems(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lost = collection.begin(rank=5)
        collection.end(lost)
        (lost.path / "manifest.json").unlink()
        collection.refuse(pid=9)

        result = json.loads(output_of(capsys, "verify", collection.close(), "--json", code=3))

        assert [(it["kind"], it["subject"]) for it in result["problems"]] == [
            ("interrupted", "rank-5"),
            ("refused", "process 9"),
        ]
        assert result["problems"][1]["detail"] == "no room is left"

    def test_running_capture_is_not_whole(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        collection.end(collection.begin(rank=0))

        result = json.loads(output_of(capsys, "verify", collection.path, "--json", code=3))
        collection.close()

        assert [(it["kind"], it["subject"]) for it in result["problems"]] == [
            ("running", str(collection.path))
        ]

    def test_losses_and_torn_journals_are_those_of_their_process(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        capture = collection.begin(rank=2)
        capture.write("garbage")
        capture.write(LossRow("full", 1, 10).to_line())
        collection.end(capture)

        result = json.loads(output_of(capsys, "verify", collection.close(), "--json", code=3))

        assert {it["subject"] for it in result["problems"]} == {"rank-2/journal.jsonl", "rank-2/full"}

    def test_planted_link_is_not_followed(
        self, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (run / "rank-0").rename(tmp_path / "elsewhere")
        (run / "rank-0").symlink_to(tmp_path / "elsewhere")

        result = json.loads(output_of(capsys, "verify", run, "--json", code=3))

        assert result["problems"][0]["subject"] == "rank-0"
        assert "symbolic link" in result["problems"][0]["detail"]


class TestExtract:
    def test_every_process_has_a_directory(
        self, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output_of(capsys, "extract", run, "--out", tmp_path / "out")

        assert contents(tmp_path / "out") == {
            f"rank-{rank}{name}": data for rank, files in FILES.items() for name, data in files.items()
        }

    @pytest.mark.parametrize(
        "arguments", [["--rank", 1, f"*{NAME}"], [f"rank-1/{NAME}"], ["rank-1/*.*", "--rank", 1]]
    )
    def test_ranks_and_names_select(
        self, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[Any]
    ) -> None:
        output_of(capsys, "extract", run, *arguments, "--out", tmp_path / "out")

        found = contents(tmp_path / "out")
        assert FILES[1][NAME] in found.values()
        assert {name.partition("/")[0] for name in found} == {"rank-1"}

    @pytest.mark.parametrize("command", ["extract", "convert"])
    def test_nothing_is_written_into_the_capture(
        self, run: Path, capsys: pytest.CaptureFixture[str], command: str
    ) -> None:
        code = main([command, str(run), "--out", str(run / "out")])

        assert code == 1
        assert "is inside the capture" in capsys.readouterr().err
        assert not (run / "out").exists()


class TestTensors:
    def test_statistics_say_which_rank(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rows = json.loads(output_of(capsys, "stats", run, "--format", "json"))
        one = json.loads(output_of(capsys, "stats", run, "--format", "json", "--rank", 1))
        head, first, *_ = output_of(capsys, "stats", run).splitlines()

        assert {(row["rank"], row["file"]) for row in rows} == {
            (rank, f"rank-{rank}/{name}") for rank in FILES for name in NAMES
        }
        assert {row["rank"] for row in one} == {1}
        assert len(rows) == 2 * len(one)
        assert head.split()[0] == "rank"
        assert first.split()[0] == "0"

    def test_conditions_compare_ranks(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rows = json.loads(output_of(capsys, "stats", run, "--format", "json", "--where", "rank == 1"))

        assert {row["rank"] for row in rows} == {1}

    def test_problem_of_a_file_names_the_process(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (run / f"rank-1/files{NAME}.zst").unlink()

        code = main(["stats", str(run)])

        assert code == 3
        assert capsys.readouterr().err.startswith(f"dumpstream: rank-1/{NAME}: ")

    def test_tensors_of_every_process_are_converted(
        self, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output_of(capsys, "convert", run, "--out", tmp_path / "all")
        output_of(capsys, "convert", run, "--rank", 1, "--out", tmp_path / "one")

        everything, one = contents(tmp_path / "all"), contents(tmp_path / "one")
        assert {name: data for name, data in everything.items() if name.startswith("rank-1/")} == one
        assert len(everything) == 2 * len(one)
        assert np.load(next((tmp_path / "one").rglob("*.npy"))).nbytes == 64

    def test_file_is_shown_by_its_name_with_the_process(
        self, run: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shown = json.loads(output_of(capsys, "show", run, f"rank-1/{NAME}", "--json"))
        by_rank = json.loads(output_of(capsys, "show", run, f"*{NAME}", "--rank", 1, "--json"))

        assert shown == by_rank
        assert shown["file"] == f"rank-1/{NAME}"
        assert shown["bytes"] == len(FILES[1][NAME])


class TestModes:
    """Every rank dumps the same, at the same time, and only its own belongs together."""

    def capture(self, collection: CollectionBuilder, workload: str) -> Path:
        for rank in (0, 1):
            capture = collection.begin(rank=rank)
            for file in Workload.parse(workload).expected_files("/dump"):
                capture.add(os.path.normpath(file.name), file.data, Verdict.COMPLETE)
            collection.end(capture)
        return collection.close()

    def test_overflows_are_those_of_their_rank(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = self.capture(collection, "overflow")

        found = json.loads(output_of(capsys, "overflow", run, "--json"))["overflows"]
        one = json.loads(output_of(capsys, "overflow", run, "--rank", 1, "--json"))["overflows"]

        assert found
        assert all(it["record"] and it["tensors"] for it in found)
        for it in found:
            files = [it["record"]["file"], *(tensor["file"] for tensor in it["tensors"])]
            assert {file.partition("/")[0] for file in files} == {f"rank-{it['rank']}"}
        assert [it for it in found if it["rank"] == 1] == one

    def test_record_without_files_does_not_get_those_of_another_rank(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = self.capture(collection, "overflow")
        for rank in (0, 1):  # the records of one, the files of the other
            journal = run / f"rank-{rank}/journal.jsonl"
            lines = journal.read_text().splitlines(keepends=True)
            journal.write_text("".join(line for line in lines if ("Opdebug" in line) == (rank == 0)))

        found = json.loads(output_of(capsys, "overflow", run, "--json"))["overflows"]

        assert {(it["rank"], bool(it["record"]), bool(it["tensors"])) for it in found} == {
            (0, True, False),
            (1, False, True),
        }

    def test_record_without_files_does_not_get_those_of_another_process_of_no_rank(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for pid in (7, 8):
            capture = collection.begin(rank=None, pid=pid)
            for file in Workload.parse("overflow").expected_files("/dump"):
                if ("Opdebug" in file.name) == (pid == 7):
                    capture.add(os.path.normpath(file.name), file.data, Verdict.COMPLETE)
            collection.end(capture)

        found = json.loads(output_of(capsys, "overflow", collection.close(), "--json"))["overflows"]

        assert {bool(it["record"]) + bool(it["tensors"]) for it in found} == {1}

    def test_watched_operators_are_those_of_their_rank(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = self.capture(collection, "watch")

        found = json.loads(output_of(capsys, "watch", run, "--json", code=3))["watched"]
        one = json.loads(output_of(capsys, "watch", run, "--rank", 1, "--json", code=3))["watched"]

        assert [it for it in found if it["rank"] == 1] == one
        assert len(found) == 2 * len(one)
        assert {it["state"] for it in one} == {"clean", "trampled"}


@pytest.mark.parametrize(
    "command", ["ls", "verify", "extract", "stats", "convert", "show", "overflow", "watch"]
)
class TestRanksThatAreNotThere:
    def arguments(self, command: str, path: Path, tmp_path: Path) -> list[str]:
        out = ["--out", str(tmp_path / "out")]
        more = {"extract": out, "convert": out, "show": ["*"]}
        return [command, str(path), *more.get(command, []), "--rank", "7"]

    def test_unknown_rank_is_an_error_with_the_known_ones(
        self, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
    ) -> None:
        code = main(self.arguments(command, run, tmp_path))

        assert code == 1
        assert capsys.readouterr().err == f"dumpstream: {run} has no rank 7; it has 0, 1\n"

    def test_capture_of_one_process_has_none(
        self, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
    ) -> None:
        code = main(self.arguments(command, run / "rank-0", tmp_path))

        assert code == 1
        assert "is the capture of one process; leave --rank out" in capsys.readouterr().err


def test_capture_of_a_process_is_a_capture_like_any_other(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = json.loads(output_of(capsys, "ls", run / "rank-1", "--json"))

    assert [file["name"] for file in listed["files"]] == NAMES


def test_opening_several_captures_as_one_says_where_they_are(run: Path) -> None:
    with pytest.raises(NotACaptureError, match="several processes; name one, such as rank-0"):
        StoredCapture.open(run)


def test_capture_of_processes_is_found_below_a_directory(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(output_of(capsys, "stats", run.parent, "--format", "json"))

    assert {row["rank"] for row in rows} == {0, 1}
