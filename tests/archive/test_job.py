"""Jobs: the names of hosts, and the file that marks where they capture."""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dumpstream import DestinationError, NotACaptureError
from dumpstream.archive.destination import Destination, join_job
from dumpstream.archive.job import JOB, VARIABLES, choose_host, is_job, job_text, marks_job, safe_host

if TYPE_CHECKING:
    from pathlib import Path


class TestNames:
    @pytest.mark.parametrize("name", VARIABLES)
    def test_auto_takes_the_number_that_a_launcher_gives(self, name: str) -> None:
        assert choose_host("auto", {name: "17"}) == "17"

    def test_auto_asks_slurm_before_the_others(self) -> None:
        environment = {name: str(number) for number, name in enumerate(VARIABLES)}

        assert choose_host("auto", environment) == "0"
        assert choose_host("auto", environment | {"SLURM_NODEID": ""}) == "1"

    def test_auto_takes_the_host_name_if_no_launcher_numbers_hosts(self) -> None:
        assert choose_host("auto", {}) == safe_host(socket.gethostname())

    def test_a_name_that_is_given_is_taken_whatever_a_launcher_says(self) -> None:
        assert choose_host("node-7", {"SLURM_NODEID": "3"}) == "node-7"

    @pytest.mark.parametrize(
        "name", ["", ".", "..", "...", " ", "\t", "auto", "job.json", "x.JSONL", "n" * 201]
    )
    def test_what_cannot_be_a_name_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="name of a host"):
            safe_host(name)

    @given(st.text(min_size=1, max_size=40))
    @example("../../etc")
    @example("/etc/passwd")
    @example(".hidden")
    @example("a\0b")
    @example("\udcff")
    def test_every_name_becomes_one_safe_component_or_is_refused(self, name: str) -> None:
        try:
            safe = safe_host(name)
        except ValueError:
            return

        assert safe.isascii()
        assert "/" not in safe
        assert safe.isprintable()
        assert not safe.startswith(".")
        assert os.path.normpath(safe) == safe
        assert not set(safe) & set("\\*?[] %~")

    @given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
    @example("a/b", "a=2Fb")
    @example("a b", "a_b")
    def test_two_names_never_become_the_same(self, one: str, other: str) -> None:
        try:
            same = safe_host(one) == safe_host(other)
        except ValueError:
            return

        assert same == (one == other)


class TestMark:
    def test_text_is_what_is_read(self, tmp_path: Path) -> None:
        assert marks_job(tmp_path, job_text())

    @given(st.binary(max_size=200))
    def test_a_file_of_another_program_marks_nothing(self, data: bytes) -> None:
        assert not marks_job(None, data)  # type: ignore[arg-type]  # only for the error

    @pytest.mark.parametrize("data", [b'{"job": "train"}', b'{"job": 1}', b"[]", b"[" * 9999, b" " * 5000])
    def test_json_of_another_program_marks_nothing(self, tmp_path: Path, data: bytes) -> None:
        assert not marks_job(tmp_path, data)

    def test_a_newer_format_is_said(self, tmp_path: Path) -> None:
        with pytest.raises(NotACaptureError, match=r"job format 9 \(dumpstream 8\.0\).*upgrade"):
            marks_job(tmp_path, json.dumps({"job": 9, "dumpstream": "8.0"}).encode())

    def test_a_link_marks_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "real").write_bytes(job_text())
        (tmp_path / JOB).symlink_to("real")

        assert not is_job(tmp_path)


class TestJoining:
    def test_an_empty_or_missing_directory_becomes_a_job_and_stays_the_same(self, tmp_path: Path) -> None:
        root = tmp_path / "a" / "job"

        join_job(root, "0")
        marked = (root / JOB).read_bytes()
        join_job(root, "0")

        assert is_job(root)
        assert (root / JOB).read_bytes() == marked
        assert root.stat().st_mode & 0o777 == 0o700

    def test_hosts_that_join_at_once_find_one_mark(self, tmp_path: Path) -> None:
        root = tmp_path / "job"
        errors: list[BaseException] = []
        start = threading.Barrier(16)

        def join(number: int) -> None:
            start.wait()
            try:
                join_job(root, "0")
                Destination.open(root / str(number), of_processes=True).close()
            except BaseException as exc:  # noqa: BLE001 - shown below
                errors.append(exc)

        threads = [threading.Thread(target=join, args=[number]) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert errors == []
        assert [*root.iterdir()] == [root / JOB]

    def test_a_capture_is_refused(self, tmp_path: Path) -> None:
        Destination.open(tmp_path / "run").begin_run({})

        with pytest.raises(DestinationError, match="is itself a capture"):
            join_job(tmp_path / "run", "0")

    def test_what_other_programs_have_written_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "20260101000000").mkdir()
        (tmp_path / JOB).write_text('{"job": "train"}')

        with pytest.raises(DestinationError, match="is not empty, and is not a job"):
            join_job(tmp_path, "0")

        assert (tmp_path / JOB).read_text() == '{"job": "train"}'

    def test_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()

        with pytest.raises(DestinationError, match="is a file"):
            join_job(tmp_path / "file", "0")

    def test_a_link_in_the_place_of_a_host_is_refused(self, tmp_path: Path) -> None:
        job, other = tmp_path / "job", tmp_path / "other"
        Destination.open(other).begin_run({})
        join_job(job, "0")
        (job / "1").symlink_to(other)

        with pytest.raises(DestinationError, match="is a symbolic link, and not followed"):
            join_job(job, "1")

    def test_a_capture_without_a_host_is_refused_in_a_job(self, tmp_path: Path) -> None:
        join_job(tmp_path, "0")

        with pytest.raises(DestinationError, match="job of several hosts; name this one with --host"):
            Destination.open(tmp_path, of_processes=True)
