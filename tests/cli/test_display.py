from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from signal import SIGKILL
from typing import TYPE_CHECKING

import pytest
from tests.cli.screen.terminal import TerminalProgram

from dumpstream import SinkError
from dumpstream.cli._display import print_error, print_json, print_json_with_list, sizes_text, told_warnings

if TYPE_CHECKING:
    from pathlib import Path


def test_notes_of_an_error_are_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    error = SinkError("the disk is full")
    error.add_note("3 files wait\x1b[2J")

    print_error(error)

    assert capsys.readouterr().err == "dumpstream: the disk is full\ndumpstream: 3 files wait\\x1b[2J\n"


def test_a_list_that_is_not_kept_is_printed_as_one_that_is(capsys: pytest.CaptureFixture[str]) -> None:
    flat: dict[str, object] = {
        "name": 'a, "b": {}\n\udcff',
        "path": None,
        "missing": [],
        "share": 0.5,
        "whole": True,
    }
    items = [flat, {**flat, "missing": [[0, 1], [7, 9]]}, {}, {"inner": {"a": 1}}, (1, 2), "text"]

    for some in ([], [flat], items):
        print_json({"state": "finished", "files": some, "losses": []})
        kept = capsys.readouterr().out
        print_json_with_list({"state": "finished", "files": [], "losses": []}, "files", iter(some))
        assert capsys.readouterr().out == kept


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line_without_its_place_in_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    with told_warnings():
        warnings.warn("it may be late; begin earlier", UserWarning, stacklevel=1)

    assert capsys.readouterr().err == "dumpstream: warning: it may be late; begin earlier\n"


_WRITES = """
import csv, sys
from dumpstream.cli._display import escaping
csv.writer(escaping(sys.stdout), lineterminator="\\n").writerows([["\\x1b[2J"], ["a\\nb\\x9b"]])
"""


def test_csv_is_printable_on_a_terminal_and_exact_anywhere_else() -> None:
    program = TerminalProgram(["-c", _WRITES], columns=60)
    elsewhere = subprocess.run([sys.executable, "-c", _WRITES], capture_output=True, check=True)

    assert program.finish() == 0
    assert program.plain.split("\r\n") == ["\\x1b[2J", '"a', 'b\\x9b"', ""]
    assert elsewhere.stdout.decode() == '\x1b[2J\n"a\nb\x9b"\n'


def test_what_is_said_on_a_terminal_is_broken_between_words() -> None:
    program = TerminalProgram(["-m", "dumpstream", "verfy"], columns=60)

    assert program.finish() == 2
    assert program.plain.split("\r\n") == [
        "dumpstream: there is no command 'verfy'; did you mean",
        "verify? `dumpstream --help` lists all",
        "",
    ]


def test_encoding_in_which_names_are_not_found_is_told(tmp_path: Path) -> None:
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    arguments = [sys.executable, "-m", "dumpstream", "ls", str(tmp_path / "run")]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False, env=os.environ | locale)

    assert ended.returncode == 1
    assert ended.stderr.startswith("dumpstream: warning: file names are ascii here, ")
    assert ended.stderr.splitlines()[0].endswith("set PYTHONUTF8=1")


def test_job_and_matches_fit_a_narrow_terminal(tmp_path: Path) -> None:
    out = tmp_path / "run"
    job = TerminalProgram(["-m", "dumpstream", "simulate", "--no-dump"], columns=30)
    capture = [sys.executable, "-m", "dumpstream", "capture", "--out", str(out), "--simulate", "--quiet"]
    subprocess.run(capture, check=True)
    matches = TerminalProgram(["-m", "dumpstream", "show", str(out), "*"], columns=60)

    for program, columns in ((job, 30), (matches, 60)):
        assert program.finish() == 0
        assert max(map(len, program.plain.split("\r\n"))) <= columns
    assert "\x1b[32mcomplete\x1b[0m" in matches.shown


def test_killed_process_is_in_the_table_of_processes(tmp_path: Path) -> None:
    job = [sys.executable, "-m", "dumpstream", "simulate", "--ranks", "2", "--crash-at", "0"]
    capture = TerminalProgram(["-m", "dumpstream", "capture", "--out", str(tmp_path / "run"), "--", *job])

    assert capture.finish() == 128 + SIGKILL
    assert re.search(r"^rank-0 +\d+ .* exit code 0\r$", capture.plain, re.MULTILINE)
    assert re.search(r"^rank-1 +\d+ .* killed by SIGKILL\r$", capture.plain, re.MULTILINE)
    assert "\nrank-1: gone without aclFinalize\r\n" in capture.plain


def test_problems_of_a_configuration_break_no_word(tmp_path: Path) -> None:
    file = tmp_path / "acl.json"
    file.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_debug": "on", "dump_list": [{}]}}))
    shown = []
    for action in ("check", "explain"):
        program = TerminalProgram(["-m", "dumpstream", "config", action, str(file)], columns=70)
        assert program.finish() == 0
        shown.append(program.plain.splitlines())

    for lines in shown:
        assert [line for line in lines if " " in line.strip() and len(line) > 70] == []
    check, explanation = shown
    assert re.search(r"some\s+releases\s+refuse\s+dump_list\s+beside\s+dump_debug\s+on", "\n".join(check))
    assert [line for line in explanation if line.startswith(" ") and not line.startswith(" " * 7)] == []


def test_hints_of_an_empty_capture_break_no_word(tmp_path: Path) -> None:
    capture = TerminalProgram(["-m", "dumpstream", "capture", "--out", str(tmp_path / "run"), "--", "true"])

    assert capture.finish() == 0
    assert max(map(len, capture.plain.splitlines())) <= 80
    assert re.search(r"\n  - its environment was cleared, .*\r\n    \w", capture.plain)


def test_bytes_that_no_sink_keeps_are_not_called_stored() -> None:
    assert sizes_text(2000, 1000, 0) == "2.0 kB stored in 1.0 kB"
    assert sizes_text(2000, 1000, 1) == "2.0 kB received, 1.0 kB stored"
    assert sizes_text(2000, 0, 0) == "2.0 kB received, none of it stored"
