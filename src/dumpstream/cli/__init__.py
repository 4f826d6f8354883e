"""The command line."""

import argparse
import sys
from contextlib import contextmanager, nullcontext
from importlib import import_module

from dumpstream._errors import ConfigError, DumpstreamError
from dumpstream.cli._display import print_error, say, told_warnings
from dumpstream.cli._exit import BY_PIPE, FAILED, WRONG_USAGE, WrongUsageError
from dumpstream.cli._interrupt import ending_soon, exit_code, raised_interrupts
from dumpstream.cli._problems import print_problems
from dumpstream.cli._streams import output_failure, raise_output_failure
from dumpstream.cli.grammar.parser import READERS, parse
from dumpstream.cli.screen.options import use_screen

from collections.abc import Iterator, Sequence
from types import ModuleType


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that *argv* (the process's arguments) names, and return the exit code."""
    args = parse(sys.argv[1:] if argv is None else argv)
    use_screen(args)
    if (encoding := sys.getfilesystemencoding()) != "utf-8":
        say(f"warning: file names are {encoding} here, and others are not found; set PYTHONUTF8=1")
    command = import_module(f"dumpstream.cli.commands.{args.command}")
    reads = args.command in READERS
    if reads:
        raise_output_failure()
    try:
        with raised_interrupts(), told_warnings(), _reading() if reads else nullcontext():
            return _run(command, args)
    except KeyboardInterrupt as exc:
        return exit_code(exc)


@contextmanager
def _reading() -> Iterator[None]:
    from dumpstream.cli.screen.indexing import shown_indexing  # noqa: PLC0415 - only once a command is chosen

    with ending_soon(), shown_indexing():
        yield


def _run(command: ModuleType, args: argparse.Namespace) -> int:
    try:
        code: int = command.run(args)
    except KeyboardInterrupt as exc:  # caught here, because it holds frames whose cleaning up may take long
        return exit_code(exc)
    except Exception as exc:
        if (failure := output_failure()) is not None:
            return BY_PIPE if isinstance(failure, BrokenPipeError) else FAILED
        if not isinstance(exc, WrongUsageError | DumpstreamError):
            raise
        return _print_failure(exc)
    return code


def _print_failure(exc: WrongUsageError | DumpstreamError) -> int:
    """Print why a command failed, and return its exit code."""
    if isinstance(exc, ConfigError):
        print_problems(exc.problems, exc.path)
    else:
        print_error(exc)
    return WRONG_USAGE if isinstance(exc, WrongUsageError) else FAILED
