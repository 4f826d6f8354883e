from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dumpstream.archive.rows import FileRow, LossRow
from dumpstream.cli import main
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder, CollectionBuilder


def test_json_has_a_row_per_name(builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]) -> None:
    part = builder.add("/x//a.\udcff", b"data", Verdict.COMPLETE)
    builder.write(FileRow("/x//a.\udcff", 6, 2, Verdict.GAP, [part], missing=[(4, 9)]).to_line())
    builder.write(LossRow("full", 1, 10).to_line())

    code = main(["ls", "--json", str(builder.finish())])

    assert code == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["state"] == "finished"
    assert listed["losses"] == [{"cause": "full", "chunks": 1, "bytes": 10}]
    assert listed["files"] == [
        {
            "name": "/x//a.\udcff",
            "step": None,
            "path": part.path,
            "parts": 2,
            "bytes": 10,
            "stored_bytes": 2 * part.stored_bytes,
            "chunks": 3,
            "verdict": "gap",
            "cause": None,
            "missing": [[4, 9]],
            "not_stored": None,
        }
    ]


def test_table_shows_names_without_control_characters(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.write(FileRow("a\x1b[31m\n\u202e\udcff\u00e9", 0, 1, Verdict.LOST, []).to_line())

    main(["ls", str(builder.finish())])

    assert "a\\x1b[31m\\n\\u202e\\udcff\u00e9\n" in capsys.readouterr().out


def test_summary_counts_files_verdicts_and_losses(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.add("a", bytes(1500), Verdict.COMPLETE)
    builder.add("b", b"", Verdict.SHORT)
    builder.write(LossRow("full", 1, 10).to_line())
    builder.write("garbage")

    main(["ls", str(builder.interrupt())])

    summary = capsys.readouterr().out.splitlines()[-1]
    assert summary.startswith("2 files (1 complete, 1 short), 1.5 kB stored in ")
    assert "the capture is interrupted" in summary
    assert "1 chunk, 10 B (full)" in summary
    assert "1 journal line unreadable" in summary


def test_place_that_is_not_a_capture_is_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["ls", str(tmp_path)])

    assert code == 1
    error = capsys.readouterr().err
    assert error.startswith(f"dumpstream: {tmp_path} holds no capture")
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [["ls"], ["extract", "x"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
    assert "--help` explains" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ls", "verify", "extract"])
def test_help_of_a_command_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])

    assert caught.value.code == 0
    assert f"examples:\n  dumpstream {command} run1" in capsys.readouterr().out


def test_reader_that_goes_away_causes_no_traceback(builder: CaptureBuilder) -> None:
    for number in range(5000):
        builder.write(FileRow(f"name {number}", 0, 1, Verdict.LOST, []).to_line())

    command = [sys.executable, "-m", "dumpstream", "ls", str(builder.finish())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()

    assert errors == b""
    assert process.returncode == -signal.SIGPIPE


def test_terminal_that_knows_only_ascii_shows_codes(builder: CaptureBuilder) -> None:
    builder.add("\u00e9", b"data")

    command = [sys.executable, "-m", "dumpstream", "ls", str(builder.finish())]
    listed = subprocess.run(
        command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=True
    )

    assert b"\\xe9" in listed.stdout


@pytest.mark.parametrize("command", ["ls", "verify"])
def test_interrupt_ends_without_a_traceback(builder: CaptureBuilder, command: str, tmp_path: Path) -> None:
    path = builder.finish()
    (path / "journal.jsonl").unlink()
    (path / "journal.jsonl").touch()
    hook = tmp_path / "hook"
    hook.mkdir()
    # The signal comes as the command opens the journal.
    (hook / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "def hook(event, args):\n"
        "    if event == 'open' and str(args[0]).endswith('journal.jsonl'):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.addaudithook(hook)\n"
    )

    process = subprocess.run(
        [sys.executable, "-m", "dumpstream", command, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(hook), *sys.path])},
        capture_output=True,
        check=False,
    )

    assert process.returncode == 130
    assert process.stderr == b""


class TestNames:
    def test_names_and_patterns_choose_files(
        self, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name in ("x/MatMul.1", "x/Relu.2", "y/MatMul.3", "odd[1]"):
            builder.add(name, b"data")
        path = str(builder.finish())

        def listed(*names: str) -> list[str]:
            assert main(["ls", path, *names, "--json"]) == 0
            return [file["name"] for file in json.loads(capsys.readouterr().out)["files"]]

        assert listed() == ["x/MatMul.1", "x/Relu.2", "y/MatMul.3", "odd[1]"]
        assert listed("x/Relu.2") == ["x/Relu.2"]
        assert listed("*MatMul*") == ["x/MatMul.1", "y/MatMul.3"]
        assert listed("*MatMul*", "x/*", "odd[1]") == ["x/MatMul.1", "x/Relu.2", "y/MatMul.3", "odd[1]"]
        assert listed("odd[1]") == ["odd[1]"]

    def test_summary_is_of_the_files_that_are_chosen(
        self, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        builder.add("a", bytes(1500), Verdict.COMPLETE)
        builder.add("b", bytes(7), Verdict.SHORT)

        main(["ls", str(builder.finish()), "b"])

        shown = capsys.readouterr().out.splitlines()
        assert len(shown) == 3
        assert shown[-1].startswith("1 file (1 short), 7 B stored in ")

    def test_name_that_no_file_has_is_refused(
        self, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        builder.add("a", b"data")

        assert main(["ls", str(builder.finish()), "a", "c*"]) == 1

        assert capsys.readouterr() == (
            "",
            "dumpstream: no file matches 'c*'; `dumpstream ls` shows the names\n",
        )

    def test_processes_are_part_of_the_names(
        self, collection: CollectionBuilder, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for rank in (0, 1):
            capture = collection.begin(rank=rank, pid=10 + rank)
            capture.add("a", b"data")
            collection.end(capture)
        path = str(collection.close())

        main(["ls", path, "rank-1/a", "--json"])
        (file,) = json.loads(capsys.readouterr().out)["files"]
        assert (file["name"], file["rank"]) == ("rank-1/a", 1)

        main(["ls", path, "*/a", "--json"])
        assert len(json.loads(capsys.readouterr().out)["files"]) == 2


def test_json_of_a_capture_without_files_is_an_empty_list(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["ls", str(builder.finish()), "--json"])

    assert '  "files": [],\n' in capsys.readouterr().out
