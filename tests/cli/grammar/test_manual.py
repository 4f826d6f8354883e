from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from dumpstream.cli.grammar.manual import man_page
from dumpstream.cli.grammar.words import read_grammar

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def page() -> str:
    return man_page(read_grammar(), "1.2.3")


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_nothing_to_warn_about_and_shows_every_flag(page: str) -> None:
    command = ["groff", "-man", "-ww", "-Tascii", "-P-cbou", "-rLL=200n"]

    shown = subprocess.run(command, input=page, capture_output=True, text=True, check=True)

    assert shown.stderr == ""
    flags = {name for it in read_grammar().everything() for flag in it.flags for name in flag.names}
    assert flags - {"-h", "--help"} <= {*re.findall(r"--?[a-z][a-z-]*", shown.stdout)}
    assert "dumpstream stats run1 --where 'nan > 0'" in shown.stdout


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_man_shows_it_without_a_warning(page: str, tmp_path: Path) -> None:
    path = tmp_path / "dumpstream.1"
    path.write_text(page, "utf-8")

    shown = subprocess.run(
        ["man", "--warnings", "-P", "cat", "-l", str(path)], capture_output=True, text=True, check=True
    )

    assert shown.stderr == ""
    assert "dumpstream - capture the tensors" in re.sub(r"\s+", " ", shown.stdout.replace("\u2010", "-"))
