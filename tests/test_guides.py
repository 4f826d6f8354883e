"""The commands in the guides, run as printed; where they print something, it is in the document."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
NOT_WHOLE = 3  #: of `watch` and `compare`, if they found what the guide is about


def commands(page: str) -> list[tuple[str, str]]:
    """Return every command, and the lines that follow it."""
    text = (DOCS / page).read_text("utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        (command, output)
        for block in blocks
        for command, output in re.findall(r"^\$ (.+)\n((?:[^$].*\n)*)", block, re.MULTILINE)
    ]


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("compare.md", 4),
        ("find-the-nan.md", 12),
        ("many-hosts.md", 6),
        ("modes.md", 15),
        ("npu.md", 9),
        ("sizing.md", 3),
    ],
)
def test_the_commands_print_what_the_document_says(tmp_path: Path, page: str, count: int) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    found = commands(page)

    for command, output in found:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

        allowed = (0, NOT_WHOLE) if command.startswith(("dumpstream watch", "dumpstream compare")) else (0,)
        assert done.returncode in allowed, done.stderr
        assert not output or done.stdout == output, command
    assert len(found) == count
