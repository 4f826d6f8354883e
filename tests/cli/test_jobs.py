"""Jobs of several hosts, as every command reads them: as a whole, one host, or one rank."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import CollectionBuilder

from dumpstream import NotACaptureError, compare
from dumpstream.cli import main
from dumpstream.diagnosis.answer import examine
from dumpstream.diagnosis.limits import limits_of
from dumpstream.diagnosis.subject import read_subject
from dumpstream.format.verdict import Verdict
from dumpstream.reading.collection import Collection
from dumpstream.reading.stored import State, StoredCapture
from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from pathlib import Path

WORKLOAD = Workload(models=1, ops=2, tensor_bytes="64")
NAMES = [os.path.normpath(file.name) for file in WORKLOAD.expected_files("/dump")]
#: The ranks of each host; by name, 10 comes before 9.
HOSTS = {"9": (0, 1), "10": (2, 3)}


def files_of(rank: int) -> dict[str, bytes]:
    files = replace(WORKLOAD, seed=rank).expected_files("/dump")
    return dict(zip(NAMES, (file.data for file in files), strict=True))


def add_host(root: Path, host: str, ranks: tuple[int, ...]) -> CollectionBuilder:
    """Capture on *host* until its collector would end."""
    builder = CollectionBuilder(root, host)
    for rank in ranks:
        capture = builder.begin(rank=rank, pid=100 + rank)
        for name, data in files_of(rank).items():
            capture.add(name, data, Verdict.COMPLETE)
        builder.end(capture)
    return builder


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Leave a job of two hosts with two ranks each, whole."""
    for host, ranks in HOSTS.items():
        add_host(tmp_path / "job", host, ranks).finish()
    return tmp_path / "job"


def output_of(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([*map(str, arguments)]) == code
    return capsys.readouterr().out


def json_of(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    return json.loads(output_of(capsys, *arguments, "--json", code=code))


class TestCollection:
    def test_members_come_by_host_and_rank_with_their_labels(self, job: Path) -> None:
        members = [*Collection.open(job).members()]

        assert [(it.host, it.rank, it.label, it.prefix) for it in members] == [
            (host, rank, f"{host}/rank-{rank}", f"{host}/rank-{rank}/")
            for host, ranks in HOSTS.items()
            for rank in ranks
        ]

    def test_a_host_that_is_named_by_its_path_keeps_its_name(self, job: Path) -> None:
        members = [*Collection.open(job / "10").members()]

        assert [(it.host, it.label) for it in members] == [("10", "rank-2"), ("10", "rank-3")]

    def test_opening_reads_no_journal_and_no_manifest_of_a_rank(self, job: Path) -> None:
        for host, ranks in HOSTS.items():
            for rank in ranks:
                (job / host / f"rank-{rank}/manifest.json").unlink()
                (job / host / f"rank-{rank}/journal.jsonl").unlink()

        collection = Collection.open(job)

        assert [it.rank for it in collection.processes or ()] == [0, 1, 2, 3]
        assert collection.state(()) is State.FINISHED

    def test_one_capture_cannot_be_opened_where_a_job_is(self, job: Path) -> None:
        with pytest.raises(NotACaptureError, match="job of several hosts; name one, such as 10"):
            StoredCapture.open(job)


class TestLs:
    def test_hosts_are_listed_with_their_ranks(self, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
        head, *rows, summary = output_of(capsys, "ls", job).splitlines()

        assert head.split() == ["host", "state", "processes", "ranks", "files", "bytes"]
        assert [row.split()[:4] for row in rows] == [
            ["9", "finished", "2", "0-1"],
            ["10", "finished", "2", "2-3"],
        ]
        assert summary.startswith("2 hosts, 4 processes: ")
        assert "the job is finished" in summary

    def test_json_has_the_processes_of_every_host(
        self, job: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        listed = json_of(capsys, "ls", job)

        assert listed["state"] == "finished"
        assert [(it["host"], [p["rank"] for p in it["processes"]]) for it in listed["hosts"]] == [
            (host, [*ranks]) for host, ranks in HOSTS.items()
        ]

    @pytest.mark.parametrize(
        ("flags", "ranks"),
        [
            (["--host", 10], [2, 3]),
            (["--host", 10, "--host", 9], [0, 1, 2, 3]),
            (["--rank", 1], [1]),
            (["--host", 9, "--rank", 1], [1]),
            (["9/rank-0/*"], [0]),
        ],
    )
    def test_files_are_listed_of_a_host_a_rank_or_a_name(
        self, job: Path, capsys: pytest.CaptureFixture[str], flags: list[object], ranks: list[int]
    ) -> None:
        listed = json_of(capsys, "ls", job, *flags)

        hosts = {rank: host for host, of in HOSTS.items() for rank in of}
        assert [(it["host"], it["rank"], it["name"]) for it in listed["files"]] == [
            (hosts[rank], rank, f"{hosts[rank]}/rank-{rank}/{name}") for rank in ranks for name in NAMES
        ]
        assert all((job / it["path"]).is_file() for it in listed["files"])

    def test_states_of_hosts_that_run_or_died_are_told(
        self, job: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        died = CollectionBuilder(job, "died")
        died.begin(rank=4).interrupt()
        died.close()
        late = CollectionBuilder(job, "late")

        listed = json_of(capsys, "ls", job)
        table = output_of(capsys, "ls", job)
        late.finish()

        assert {it["host"]: it["state"] for it in listed["hosts"]} == {
            "9": "finished",
            "10": "finished",
            "died": "interrupted",
            "late": "running",
        }
        assert listed["state"] == "running"
        assert "what is not counted yet of 5 processes" in table

    def test_a_directory_without_a_manifest_is_a_host_with_a_problem(
        self, job: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (job / "empty").mkdir()

        listed = json_of(capsys, "ls", job)

        assert [it["problem"] is None for it in listed["hosts"]] == [True, True, False]
        assert "no manifest.json" in listed["hosts"][2]["problem"]

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["--host", "11"], "has no host 11; it has 9, 10"),
            (["--host", ".."], "cannot be the name of a host"),
            (["--rank", 7], "has no rank 7; it has 0, 1, 2, 3"),
        ],
    )
    def test_what_is_not_there_is_said(
        self, job: Path, capsys: pytest.CaptureFixture[str], flags: list[object], message: str
    ) -> None:
        assert main(["ls", str(job), *map(str, flags)]) == 1
        assert message in capsys.readouterr().err

    def test_a_capture_that_is_not_a_job_has_no_hosts(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = collection.close()

        assert main(["ls", str(run), "--host", "9"]) == 1
        assert "is not a job of several hosts; leave --host out" in capsys.readouterr().err

    def test_a_job_without_hosts_is_empty(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        CollectionBuilder(tmp_path / "job", "only").finish()
        for path in (tmp_path / "job/only").iterdir():
            path.unlink()
        (tmp_path / "job/only").rmdir()

        assert output_of(capsys, "ls", tmp_path / "job").startswith("0 hosts, 0 processes: 0 files")


class TestVerify:
    def test_every_file_of_every_host_is_read_again(
        self, job: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        result = json_of(capsys, "verify", job)

        assert result["whole"]
        assert result["files"] == 4 * len(NAMES)

    def test_problems_name_the_host_and_the_process(
        self, job: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (job / "10/rank-3/files" / f"{NAMES[0].lstrip('/')}.zst").unlink()
        (job / "10/extra").touch()
        (job / "stray").touch()
        died = CollectionBuilder(job, "died")
        died.begin(rank=4).interrupt()
        died.close()

        result = json_of(capsys, "verify", job, code=3)
        one = json_of(capsys, "verify", job, "--host", "9")

        assert [(it["kind"], it["subject"]) for it in result["problems"]] == [
            ("missing", f"10/rank-3/{NAMES[0]}"),
            ("interrupted", str(job / "died/rank-4")),
            ("extra", "10/extra"),
            ("extra", "stray"),
        ]
        assert one["whole"]

    def test_a_host_that_still_runs_is_a_problem(self, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
        late = CollectionBuilder(job, "late")

        result = json_of(capsys, "verify", job, code=3)
        late.finish()

        assert [(it["kind"], it["subject"]) for it in result["problems"]] == [("running", str(job / "late"))]


class TestReaders:
    def test_rows_of_statistics_have_the_host(self, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
        of_job = json.loads(output_of(capsys, "stats", job, "--format", "json"))
        of_host = json.loads(output_of(capsys, "stats", job / "10", "--format", "json"))
        chosen = json.loads(output_of(capsys, "stats", job, "--host", 10, "--format", "json"))
        table = output_of(capsys, "stats", job)

        assert {(it["host"], it["rank"]) for it in of_job} == {
            (host, rank) for host, ranks in HOSTS.items() for rank in ranks
        }
        assert {it["host"] for it in of_host} == {"10"}
        assert chosen == [it for it in of_job if it["host"] == "10"]
        assert table.splitlines()[0].split()[:3] == ["host", "rank", "model"]

    def test_rows_can_be_chosen_and_sorted_by_host(
        self, job: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        order = ["--sort", "host:desc,rank,file,io,index", "--format", "json"]
        rows = json.loads(output_of(capsys, "stats", job, "--where", "1 <= rank <= 2", *order))

        assert [*dict.fromkeys((it["host"], it["rank"]) for it in rows)] == [("9", 1), ("10", 2)]

    def test_files_are_extracted_below_their_host_and_rank(
        self, job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output_of(capsys, "extract", job, "--out", tmp_path / "out")

        found = {
            str(path.relative_to(tmp_path / "out")): path.read_bytes()
            for path in (tmp_path / "out").rglob("*")
            if path.is_file()
        }
        assert found == {
            f"{host}/rank-{rank}{name}": data
            for host, ranks in HOSTS.items()
            for rank in ranks
            for name, data in files_of(rank).items()
        }

    def test_tensors_are_converted_below_their_host_and_rank(
        self, job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output_of(capsys, "convert", job, "--host", 9, "--out", tmp_path / "out")

        assert {path.name for path in (tmp_path / "out").iterdir()} == {"9"}
        assert {path.name for path in (tmp_path / "out/9").iterdir()} == {"rank-0", "rank-1"}

    def test_a_file_is_shown_by_its_name(self, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
        shown = json_of(capsys, "show", job, f"10/rank-2/{NAMES[0]}")

        assert shown["file"] == f"10/rank-2/{NAMES[0]}"

    def test_tables_of_sql_have_the_host(self, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
        pytest.importorskip("duckdb")
        for table in ("tensors", "files", "processes"):
            query = f"SELECT DISTINCT host, rank FROM {table} ORDER BY rank"
            rows = json.loads(output_of(capsys, "sql", job, query, "--format", "json"))

            assert [(it["host"], it["rank"]) for it in rows] == [
                (host, rank) for host, ranks in HOSTS.items() for rank in ranks
            ]
        [row] = json.loads(
            output_of(
                capsys, "sql", job, "SELECT count(*) AS n FROM processes", "--host", 9, "--format", "json"
            )
        )
        assert row["n"] == 2


class TestRanksThatComeAgain:
    """Launchers may count the ranks of each host from 0."""

    @pytest.fixture
    def local(self, tmp_path: Path) -> Path:
        for number, host in enumerate(("a", "b")):
            builder = CollectionBuilder(tmp_path / "local", host)
            for rank in (0, 1):
                capture = builder.begin(rank=rank)
                for name, data in files_of(2 * number + rank).items():
                    capture.add(name, data, Verdict.COMPLETE)
                builder.end(capture)
            builder.finish()
        return tmp_path / "local"

    @pytest.mark.parametrize(
        ("mode", "key"), [("overflow", "overflows"), ("watch", "watched")], ids=["overflow", "watch"]
    )
    def test_what_the_modes_find_has_its_host(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str, key: str
    ) -> None:
        files = [*Workload.parse(f"{mode},models=1,steps=2").expected_files("/dump")]
        for host in ("a", "b"):
            builder = CollectionBuilder(tmp_path / "job", host)
            capture = builder.begin(rank=0)
            for file in files:
                capture.add(os.path.normpath(file.name), file.data, Verdict.COMPLETE)
            builder.end(capture)
            builder.finish()
        code = {"overflow": 0, "watch": 3}[mode]

        found = json_of(capsys, mode, tmp_path / "job", code=code)[key]
        of_b = json_of(capsys, mode, tmp_path / "job", "--host", "b", code=code)[key]
        text = output_of(capsys, mode, tmp_path / "job", code=code)

        assert [it["host"] for it in found] == ["a", "b"] * len(of_b)
        assert {(it["host"], it["rank"]) for it in of_b} == {("b", 0)}
        assert text.count(", host a, rank 0, ") == text.count(", host b, rank 0, ") == len(of_b)

    def test_diagnose_tells_the_processes_of_two_hosts_apart(self, local: Path) -> None:
        subject = read_subject(local)

        assert [(it.host, it.rank) for it in subject.trace.processes] == [
            ("a", 0),
            ("a", 1),
            ("b", 0),
            ("b", 1),
        ]
        assert not any("sessions" in note for note in limits_of(examine(subject)))
        assert {it.host for it in read_subject(local, hosts=["b"]).trace.processes} == {"b"}

    def test_compare_pairs_by_host_and_rank_and_says_so(self, local: Path, tmp_path: Path) -> None:
        for host, ranks in {"a": (0, 1), "b": (5, 3)}.items():
            builder = CollectionBuilder(tmp_path / "golden", host)
            for rank, seed in enumerate(ranks):
                capture = builder.begin(rank=rank)
                for name, data in files_of(seed).items():
                    capture.add(name, data, Verdict.COMPLETE)
                builder.end(capture)
            builder.finish()

        with compare(local, tmp_path / "golden") as comparison:
            differing = {row.rank: row.mine for row in comparison if row.verdict != "identical"}
            notes = comparison.notes

        assert differing.keys() == {2}
        assert (differing[2] or "").startswith("b/rank-0/")
        assert any("paired by host and rank" in note and "rank 1 of host b is 3" in note for note in notes)

    def test_compare_pairs_ranks_that_are_unique_wherever_they_ran(self, job: Path, tmp_path: Path) -> None:
        for host, ranks in {"x": (3, 1), "y": (0, 2)}.items():
            add_host(tmp_path / "golden", host, ranks).finish()

        with compare(job, tmp_path / "golden") as comparison:
            rows = [*comparison]

        assert {row.verdict for row in rows} == {"identical"}
        assert {row.rank for row in rows} == {0, 1, 2, 3}

    def test_compare_counts_the_hosts_through_beside_a_capture_of_one_host(
        self, local: Path, collection: CollectionBuilder
    ) -> None:
        for rank in range(4):
            capture = collection.begin(rank=rank)
            for name, data in files_of(rank).items():
                capture.add(name, data, Verdict.COMPLETE)
            collection.end(capture)

        with compare(local, collection.close()) as comparison:
            verdicts = {row.verdict for row in comparison}

        assert verdicts == {"identical"}


class TestRepair:
    def test_what_a_killed_host_left_is_removed_and_nothing_of_the_others(
        self, job: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        died = CollectionBuilder(job, "died")
        capture = died.begin(rank=4)
        capture.interrupt()
        died.close()
        unnamed = job / "died/rank-4/files/dump/x.zst"
        unnamed.parent.mkdir(parents=True)
        unnamed.touch()
        (job / "9/rank-0/files/x.zst").touch()

        other = json_of(capsys, "verify", job, "--host", "9", "--repair", code=3)
        result = json_of(capsys, "verify", job, "--repair", code=3)

        assert other["removed"] == []  # no run of it was interrupted
        assert result["removed"] == ["died/rank-4/files/dump/x.zst"]
        assert not unnamed.exists()
        assert (job / "9/rank-0/files/x.zst").exists()


def test_recover_wants_the_host_that_died(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recover", str(job)]) == 1
    assert "is a job of several hosts; name the directory of the one that died" in capsys.readouterr().err
    assert main(["recover", str(job / "9")]) == 0
