"""Completion in real shells."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from functools import cache
from typing import TYPE_CHECKING

import pytest

from dumpstream.cli.grammar.words import read_grammar

if TYPE_CHECKING:
    from pathlib import Path

_SHELLS = ("bash", "zsh", "fish")
_DEADLINE_S = 60


@pytest.fixture(params=_SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@cache
def _printed_for(shell: str) -> bytes:
    command = [sys.executable, "-m", "dumpstream", "completion", shell]
    return subprocess.run(command, capture_output=True, check=True).stdout


@pytest.fixture
def script(shell: str, tmp_path: Path) -> Path:
    path = tmp_path / f"completion.{shell}"
    path.write_bytes(_printed_for(shell))
    (tmp_path / "some-run").mkdir()
    return path


class Terminal:
    """A shell that a user types into."""

    def __init__(self, command: list[str], directory: Path) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "TERM": "xterm"}
        self._child, self._fd = pty.fork()
        if not self._child:
            os.chdir(directory)
            os.execvpe(command[0], command, environment)

    def read_until(self, pattern: str) -> str:
        """Return what the shell prints until it has printed *pattern*."""
        shown, until = "", time.monotonic() + _DEADLINE_S
        while not re.search(pattern, shown):
            assert time.monotonic() < until, shown
            if select.select([self._fd], [], [], 1)[0]:
                shown += os.read(self._fd, 4096).decode(errors="replace")
        return shown

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def close(self) -> None:
        os.close(self._fd)
        os.waitpid(self._child, 0)


def _offered_by_bash(script: Path, line: str) -> set[str]:
    words = [*line.split()] + ([""] if line.endswith(" ") else [])
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _dumpstream; "
    code += 'printf "%s\\n" "${COMPREPLY[@]}"'
    command = ["bash", "--norc", "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stderr == ""
    return {*found.stdout.split()}


def _offered_by_fish(script: Path, line: str) -> set[str]:
    command = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=script.parent)
    assert found.stderr == ""
    return {offer.partition("\t")[0] for offer in found.stdout.splitlines()}


def _offered_by_zsh(script: Path, line: str) -> set[str]:
    """Return what zsh lists; the line is typed in a terminal, because only its editor completes."""
    settings = f"autoload -U compinit; compinit -u -D; source {script}; LISTMAX=9999; PROMPT='READY '\n"
    (script.parent / ".zshrc").write_text(settings)
    terminal = Terminal(["zsh", "-i"], script.parent)
    try:
        terminal.read_until("READY ")
        terminal.type(f"{line}\x04\x15print E''ND\n")  # Ctrl-D lists, and Ctrl-U deletes the line
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.read_until(r"END\r"))
        return {*re.findall(r"[\w./-]+", text)}
    finally:
        terminal.close()


_OFFERED = {"bash": _offered_by_bash, "zsh": _offered_by_zsh, "fish": _offered_by_fish}


def test_commands_are_offered(shell: str, script: Path) -> None:
    offered = _OFFERED[shell](script, "dumpstream ")

    assert {command.words[0] for command in read_grammar().below} <= offered


def test_actions_of_a_command_are_offered(shell: str, script: Path) -> None:
    assert {"check", "explain", "new", "schema"} <= _OFFERED[shell](script, "dumpstream config ")


def test_flags_of_the_chosen_command_are_offered(shell: str, script: Path) -> None:
    offered = _OFFERED[shell](script, "dumpstream verify --")

    assert {"--deep", "--repair", "--json", "--color", "--progress"} <= offered
    assert "--simulate" not in offered


def test_words_that_a_flag_takes_are_offered(shell: str, script: Path) -> None:
    offered = _OFFERED[shell](script, "dumpstream capture --on-full ")

    assert {"block", "drop"} <= offered
    assert "--out" not in offered


def test_shells_are_offered(shell: str, script: Path) -> None:
    assert {*_SHELLS} <= _OFFERED[shell](script, "dumpstream completion ")


def test_bash_goes_on_with_files_where_a_path_is_wanted(tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    command = [sys.executable, "-m", "dumpstream", "completion", "bash"]
    script.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    (tmp_path / "some-run").mkdir()
    settings = (
        f"source {script}; bind 'set bell-style none'; dumpstream() {{ echo \"got $*\"; }}; PS1='READY '\n"
    )
    (tmp_path / ".bashrc").write_text(settings)
    terminal = Terminal(["bash", "-i"], tmp_path)
    try:
        terminal.read_until("READY ")
        terminal.type("dumpstream verify so\t --de\t\n")

        assert "got verify some-run/ --deep" in terminal.read_until(r"got [^\n]*\n")
    finally:
        terminal.close()
