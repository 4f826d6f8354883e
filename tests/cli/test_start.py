"""What a command loads, and what it does without."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from dumpstream.cli.grammar.parser import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

#: What may not be installed,
_OPTIONAL = {"obstore", "pyarrow"}
#: and takes long to load, as these do.
_SLOW = _OPTIONAL | {"numpy", "ml_dtypes", "pydantic", "zstandard"}

_MAIN = """
import sys
from dumpstream.cli import main
try:
    main(sys.argv[1:])
finally:
    print("\\n".join(sys.modules), file=sys.stderr)
"""


def modules_after(*arguments: str) -> set[str]:
    """Return the names of the modules that a process with *arguments* has loaded at its end."""
    ended = subprocess.run(
        [sys.executable, "-c", _MAIN, *arguments], capture_output=True, text=True, check=True
    )
    return set(ended.stderr.split())


def test_help_loads_no_command() -> None:
    modules = modules_after("--help")

    assert not _SLOW & modules
    assert not {"anyio", "asyncio", "importlib.metadata"} & modules
    assert {name for name in modules if name.startswith("dumpstream.cli.commands")} == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_no_other_command(command: str) -> None:
    modules = modules_after(command, "--help")

    assert not _OPTIONAL & modules
    assert {name for name in modules if name.startswith("dumpstream.cli.commands.")} == {
        f"dumpstream.cli.commands.{command}"
    }


def test_reading_a_capture_loads_no_other_command(tmp_path: Path) -> None:
    modules = modules_after("ls", str(tmp_path))

    assert {name for name in modules if name.startswith("dumpstream.cli.commands.")} == {
        "dumpstream.cli.commands.ls"
    }
    assert not {"pydantic", "obstore", "pyarrow"} & modules


@pytest.mark.parametrize("command", COMMANDS)
def test_first_line_of_the_help_of_a_command_is_the_line_about_it(command: str) -> None:
    text = import_module(f"dumpstream.cli.commands.{command}").__doc__ or ""

    assert text.partition("\n")[0] == COMMANDS[command]
