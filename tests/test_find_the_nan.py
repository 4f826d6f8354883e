"""The commands in docs/find-the-nan.md, run as printed; where they print something, it is in the document."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "find-the-nan.md"


def commands() -> list[tuple[str, str]]:
    """Return every command, and the lines that follow it."""
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [
        (command, output)
        for block in blocks
        for command, output in re.findall(r"^\$ (.+)\n((?:[^$].*\n)*)", block, re.MULTILINE)
    ]


def test_the_commands_print_what_the_document_says(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    for command, output in commands():
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

        assert done.returncode == 0, done.stderr
        assert not output or done.stdout == output, command
    assert len(commands()) == 6
    assert (tmp_path / "run1.parquet").is_file()
