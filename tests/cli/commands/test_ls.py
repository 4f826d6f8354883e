from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dumpstream.archive.rows import FileRow, LossRow
from dumpstream.cli import main
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder


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
            "path": part.path,
            "parts": 2,
            "bytes": 10,
            "stored_bytes": 2 * part.stored_bytes,
            "chunks": 3,
            "verdict": "gap",
            "cause": None,
            "missing": [[4, 9]],
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


@pytest.mark.parametrize("arguments", [[], ["ls"], ["nothing"], ["extract", "x"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
    assert "usage: dumpstream" in capsys.readouterr().err


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
    assert process.returncode == 1


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
