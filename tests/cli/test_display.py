from __future__ import annotations

from typing import TYPE_CHECKING

from dumpstream import SinkError
from dumpstream.cli._display import print_error

if TYPE_CHECKING:
    import pytest


def test_notes_of_an_error_are_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    error = SinkError("the disk is full")
    error.add_note("3 files wait\x1b[2J")

    print_error(error)

    assert capsys.readouterr().err == "dumpstream: the disk is full\ndumpstream: 3 files wait\\x1b[2J\n"
