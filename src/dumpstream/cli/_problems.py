"""Problems of a dump configuration, as `config check` and the commands that capture print them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dumpstream.cli._display import printable, say

if TYPE_CHECKING:
    from dumpstream.config import Problem


def problem_text(problem: Problem, name: Path) -> str:
    """Return the line about a problem of the configuration *name*."""
    severity = "error" if problem.is_error else "warning"
    answer = [str(part) for part in (problem.acl_error, problem.message_class) if part is not None]
    about = f"{problem.rule}{': CANN says ' if answer else ''}{', '.join(answer)}"
    return printable(f"{name}: {severity}: {problem.path}: {problem.text} [{about}]")


def print_problems(problems: Iterable[Problem], name: Path) -> None:
    """Print the problems of the configuration *name* on standard error."""
    for problem in problems:
        say(problem_text(problem, name))
