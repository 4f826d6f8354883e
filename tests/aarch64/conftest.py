"""The same commands on two machines: this one, and an emulated one with another processor."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dumpstream.simulation import dump_config

ROOT = Path(__file__).parents[2]
SYSROOT = ROOT / "build/aarch64/sysroot"
#: For a command. An emulated one takes ten times as long as others, and longer on a busy machine.
_LIMIT_S = 600


class Machine(NamedTuple):
    """A processor that dumpstream runs on, and the directory in which its commands run.

    Commands name their files relative to it, so that the same command prints the same text on both machines.
    """

    environment: Path
    directory: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin/python"

    @property
    def program(self) -> str:
        return str(self.environment / "bin/dumpstream")

    def run(self, *command: str, code: int = 0) -> str:
        """Run *command*, and return what it printed."""
        settings = {"XDG_CACHE_HOME": str(self.directory / "cache"), "COLUMNS": "200"}
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def dumpstream(self, *arguments: str, code: int = 0) -> str:
        return self.run(self.program, *arguments, code=code)

    def statistics(self, *arguments: str, code: int = 0) -> list[str]:
        """Return the rows of `dumpstream stats`, to the last digit, in an order of their own."""
        rows: list[Any] = json.loads(self.dumpstream("stats", *arguments, "--format", "json", code=code))
        return sorted(json.dumps(row, sort_keys=True) for row in rows)


class Machines(NamedTuple):
    """The two machines."""

    here: Machine
    emulated: Machine

    def dumpstream(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run the same command on both, and return what they printed."""
        return self.here.dumpstream(*arguments, code=code), self.emulated.dumpstream(*arguments, code=code)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Machines:
    """Return both machines, each with an empty directory that has a configuration which dumps everything."""
    assert SYSROOT.exists(), "run `make test-aarch64`, which prepares everything"
    made = []
    for environment in (ROOT / ".venv", ROOT / "build/aarch64/venv"):
        directory = tmp_path_factory.mktemp("machine")
        (directory / "npu").mkdir()
        (directory / "acl.json").write_text(dump_config("npu"))
        made.append(Machine(environment, directory))
    return Machines(*made)
