"""Jobs in processes of their own, captured from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.conftest import LIMIT_S

from dumpstream.archive.manifest import Process, read_manifest
from dumpstream.outside.agent import target_environment
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.verification import verify
from dumpstream.simulation import dump_config, simulated_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_DUMPSTREAM = [sys.executable, "-m", "dumpstream"]
_TARGETS = Path(__file__).parents[1] / "targets"
_NATIVE = Path(__file__).parents[2] / "src" / "dumpstream" / "native"


class Outside:
    """Runs `dumpstream` in processes of their own, and reads back what they left."""

    def __init__(self, directory: Path, programs: Programs) -> None:
        self.directory = directory
        self.programs = programs
        self.out = directory / "run"
        self.dump_path = directory / "dump"
        self.dump_path.mkdir()
        self.config = directory / "acl.json"
        self.config.write_text(dump_config(self.dump_path))
        self._started: list[subprocess.Popen[str]] = []

    @property
    def dumpstream(self) -> list[str]:
        """The command line."""
        return list(_DUMPSTREAM)

    def joined(self, socket: Path, **more: str) -> dict[str, str]:
        """Return the environment of a process that joins the collector at *socket*."""
        return target_environment(socket, {**os.environ, **more})

    @property
    def job(self) -> list[str]:
        """A job that drives its dump itself, of 16 files."""
        return [str(self.programs.linked), "init", f"drive={self.config}", "run=2", "undrive", "finalize"]

    @property
    def simulated(self) -> list[str]:
        """A job that takes its time, once it has flags that say so."""
        return [*_DUMPSTREAM, "simulate"]

    def ranks(self, count: int) -> list[str]:
        """Return the command that runs the job *count* times at once."""
        job = " ".join(self.job)
        return [
            "sh",
            "-c",
            f"for rank in $(seq 0 {count - 1}); do RANK=$rank DEVICE_ID=$rank {job} & done; wait",
        ]

    def python(self, code: str, *arguments: object) -> list[str]:
        """Return the command that runs *code*."""
        return [sys.executable, "-c", code, *map(str, arguments)]

    def start(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        """Start a command."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen([str(word) for word in words], text=True, **{**pipes, **options})
        self._started.append(process)
        return process

    def start_capture(
        self, command: Sequence[object], *flags: object, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start `dumpstream capture -- command`."""
        buffer = () if "--buffer-bytes" in flags else ("--buffer-bytes", "32M")
        words = [*_DUMPSTREAM, "capture", "--out", self.out, *buffer, *flags, "--", *command]
        return self.start(*words, env={**os.environ, **(env or {})})

    def capture(
        self, command: Sequence[object], *flags: object, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `dumpstream capture -- command` to its end."""
        process = self.start_capture(command, *flags, env=env)
        output, errors = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def processes(self) -> list[Process]:
        """Return what the manifest says of the processes, by directory."""
        return sorted(read_manifest(self.out).processes, key=lambda process: process.directory)

    def stored(self, directory: str) -> StoredCapture:
        return StoredCapture.open(self.out / directory)

    def verdicts(self) -> list[str]:
        """Return the verdict of every file of every process."""
        captures = [self.stored(process.directory) for process in self.processes() if process.directory]
        return [str(file.verdict) for capture in captures for file in capture.files]

    def problems(self) -> set[str]:
        """Return the kinds of what `verify` finds in any process's capture."""
        captures = [self.stored(process.directory) for process in self.processes() if process.directory]
        return {str(problem.kind) for capture in captures for problem in verify(capture).problems}

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that has no event of its own."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def journal_lines(self) -> int:
        """Return how many lines the journals have together."""
        return sum(path.read_bytes().count(b"\n") for path in self.out.glob("*/journal.jsonl"))

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


class Programs(NamedTuple):
    """Jobs that reach ACL in different ways."""

    linked: Path
    opened: Path
    called: Path


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Build the jobs that are written in C."""
    out, library = tmp_path_factory.mktemp("programs"), simulated_library()
    link = [str(library), f"-Wl,-rpath,{library.parent}"]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", f"-I{_NATIVE / 'include'}", f"-I{_NATIVE / 'sim'}"]
    for name, options in {"linked": ["-DPROGRAM", *link], "opened": []}.items():
        sources = [str(_TARGETS / f"{name}.c"), str(_TARGETS / "job.c")]
        subprocess.run(["cc", *flags, "-o", str(out / name), *sources, *options], check=True)
    return Programs(out / "linked", out / "opened", _TARGETS / "called.py")


@pytest.fixture
def outside(tmp_path: Path, programs: Programs) -> Iterator[Outside]:
    outside = Outside(tmp_path, programs)
    yield outside
    outside.close()
