"""Problems of a dump configuration, as `config check` and the commands that capture print them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dumpstream.cli._display import printable, say

if TYPE_CHECKING:
    from dumpstream.config import Problem


def severity_of(problem: Problem) -> str:
    """Return ``error`` or ``warning``."""
    return "error" if problem.is_error else "warning"


def problem_text(problem: Problem) -> str:
    """Return where a problem of a configuration is, what it is, and what CANN says to it."""
    answer = [str(part) for part in (problem.acl_error, problem.message_class) if part is not None]
    about = f"{problem.rule}{': CANN says ' if answer else ''}{', '.join(answer)}"
    return printable(f"{problem.path}: {problem.text} [{about}]")


def print_problems(problems: Iterable[Problem], name: Path) -> None:
    """Print the problems of the configuration *name* on standard error."""
    for problem in problems:
        say(f"{name}: {severity_of(problem)}: {problem_text(problem)}")
