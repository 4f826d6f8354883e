"""The command line. A command is a module; its docstring is its help."""

from __future__ import annotations

import argparse
import io
import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

from dumpstream._errors import DumpstreamError
from dumpstream.cli._display import print_error
from dumpstream.cli._interrupt import INTERRUPTED, ending_soon
from dumpstream.cli.commands import (
    capture,
    collect,
    config,
    convert,
    extract,
    ls,
    overflow,
    recover,
    show,
    simulate,
    stats,
    upload,
    verify,
    watch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class Command(Protocol):
    """What a module of this package offers. It imports what is slow to import only when it runs."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's flags, and its examples as the epilog."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code."""


_COMMANDS: dict[str, Command] = {
    "capture": capture,
    "collect": collect,
    "upload": upload,
    "ls": ls,
    "verify": verify,
    "extract": extract,
    "stats": stats,
    "convert": convert,
    "show": show,
    "overflow": overflow,
    "watch": watch,
    "config": config,
    "recover": recover,
    "simulate": simulate,
}

#: Those that only read captures, of which some are in stores.
_READERS = {"ls", "verify", "extract", "stats", "convert", "show", "overflow", "watch"}

_EPILOG = """\
exit codes:
  0    done, and everything is whole
  1    failed
  2    wrong usage
  3    done, but not everything is whole
  130  interrupted by Ctrl-C

examples:
  dumpstream capture --out run1 -- COMMAND     capture every process of a command
  dumpstream capture --out run1 --simulate     capture from the simulated runtime
  dumpstream ls run1                           which files it has
  dumpstream verify run1                       read everything again
  dumpstream extract run1 --out dumps          the original files
  dumpstream stats run1 --where 'nan > 0'      which tensors have NaNs
  dumpstream overflow run1                     which operators overflowed
  dumpstream watch run1                        who tramples on the watched tensors
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that *argv* (the process's arguments) names, and return the exit code."""
    _tolerate_any_character()
    try:
        args = _parse(argv)
        with ending_soon() if args.command in _READERS else nullcontext():
            return _run(args)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(args: argparse.Namespace) -> int:
    try:
        code = _COMMANDS[args.command].run(args)
        sys.stdout.flush()
    except DumpstreamError as exc:
        print_error(exc)
    except BrokenPipeError:
        # The interpreter flushes once more as it exits; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except KeyboardInterrupt:  # here: forgetting it closes what it has cut short, which may take long
        return INTERRUPTED
    else:
        return code
    return 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    # argparse takes positional arguments in one stretch only; a list of names may go on behind a flag.
    if rest and (not hasattr(args, "names") or any(text.startswith("-") for text in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        args.names += rest
    return args


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - as slow to import as all the rest together

        parser.exit(message=f"{parser.prog} {version('dumpstream')}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dumpstream",
        description="Stream Ascend operator dumps to whole, compressed, verifiable files; read them back.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in _COMMANDS.items():
        text = command.__doc__ or ""
        command.add_arguments(
            commands.add_parser(
                name,
                help=text.partition("\n")[0],
                description=text,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
        )
    return parser


def _tolerate_any_character() -> None:
    """Let a terminal that cannot show a character show its code instead."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
