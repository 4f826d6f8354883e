"""The code in README.md and docs/: `python` blocks run as printed, `py` blocks need CANN and are compiled."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))]


def _blocks(language: str) -> dict[str, str]:
    """Return the blocks of *language* in all pages, by page and number."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return {
        f"{page.name}-{number}": block
        for page in _PAGES
        for number, block in enumerate(pattern.findall(page.read_text("utf-8")), 1)
    }


_RUN, _COMPILED = _blocks("python"), _blocks("py")


@pytest.mark.parametrize("code", _RUN.values(), ids=_RUN)
def test_a_python_block_runs_as_printed(code: str, tmp_path: Path) -> None:
    (tmp_path / "block.py").write_text(code, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-W", "error", "block.py"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # where processes that profile exclude each other
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert not done.stderr


@pytest.mark.parametrize("code", _COMPILED.values(), ids=_COMPILED)
def test_a_py_block_is_python(code: str) -> None:
    # Blocks may show a part of a function.
    indented = "".join(f"    {line}\n" for line in code.splitlines())

    assert compile(f"async def function():\n{indented}", "block.py", "exec")


def test_the_readme_tells_what_its_first_block_prints(tmp_path: Path) -> None:
    text = (_ROOT / "README.md").read_text("utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]

    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert f"`{printed.stdout.strip()}`" in text
