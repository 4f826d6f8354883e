"""The command line."""

import argparse
import io
import os
import sys
from contextlib import nullcontext
from importlib import import_module

from dumpstream._errors import ConfigError, DumpstreamError
from dumpstream.cli._display import print_error
from dumpstream.cli._exit import FAILED, WRONG_USAGE, WrongUsageError
from dumpstream.cli._interrupt import INTERRUPTED, ending_soon, raised_interrupts
from dumpstream.cli._problems import print_problems

from collections.abc import Collection, Sequence
from types import ModuleType

#: The commands, with the first lines of their help. Only the module of the chosen one is imported: its
#: docstring is the help, its `add_arguments` declares the flags, and its `run` does the work and returns the
#: exit code.
_COMMANDS = {
    "capture": "Capture dump files into a directory.",
    "collect": "Capture every process that joins, as a service.",
    "upload": "Upload the files that captures could not upload to their object store.",
    "ls": "List the files of a capture.",
    "verify": "Read every file of a capture again and compare it with the journal.",
    "extract": "Write the original files of a capture.",
    "stats": "Print the statistics of every tensor in captures, dump files and directories of them.",
    "convert": "Write the tensors of dump files as npy, bin or csv.",
    "show": "Show what is in a dump file.",
    "overflow": "List the operators that overflowed.",
    "watch": "Find the operators that trample on the outputs of watched ones.",
    "config": "Check, explain and write dump configurations (acl.json).",
    "recover": "Store the data that a dead collector left in its rings.",
    "simulate": "Run a training job on the simulated runtime.",
}

#: The commands that only read; while a store does not answer, Python cannot interrupt them.
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
  dumpstream ls run1                           list its files
  dumpstream verify run1                       read and check everything again
  dumpstream extract run1 --out dumps          write the original files
  dumpstream stats run1 --where 'nan > 0'      which tensors have NaNs
  dumpstream overflow run1                     which operators overflowed
  dumpstream watch run1                        which operators trample on watched tensors
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that *argv* (the process's arguments) names, and return the exit code."""
    _tolerate_any_character()
    args = _parse(sys.argv[1:] if argv is None else argv)
    command = import_module(f"dumpstream.cli.commands.{args.command}")
    try:
        with raised_interrupts(), ending_soon() if args.command in _READERS else nullcontext():
            return _run(command, args)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(command: ModuleType, args: argparse.Namespace) -> int:
    try:
        code: int = command.run(args)
        sys.stdout.flush()
    except WrongUsageError as exc:
        print_error(exc)
        return WRONG_USAGE
    except ConfigError as exc:
        print_problems(exc.problems, exc.path)
    except DumpstreamError as exc:
        print_error(exc)
    except BrokenPipeError:
        # The interpreter flushes once more as it exits; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except KeyboardInterrupt:  # caught here, because it holds frames whose cleaning up may take long
        return INTERRUPTED
    else:
        return code
    return FAILED


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser([word for word in argv if word in _COMMANDS][:1])
    args, rest = parser.parse_known_args(argv)
    # argparse takes positional arguments only side by side; a list of names may go on behind a flag.
    if rest and (not hasattr(args, "names") or any(text.startswith("-") for text in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        args.names += rest
    return args


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - slower than everything else that --help loads

        parser.exit(message=f"{parser.prog} {version('dumpstream')}\n")


def _parser(complete: Collection[str] = _COMMANDS.keys()) -> argparse.ArgumentParser:
    """Return the parser, with the flags of the commands in *complete*."""
    parser = argparse.ArgumentParser(
        prog="dumpstream",
        description="Stream Ascend operator dumps to whole, compressed, verifiable files; read them back.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, help_line in _COMMANDS.items():
        command = commands.add_parser(
            name, help=help_line, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in complete:
            module = import_module(f"dumpstream.cli.commands.{name}")
            command.description, title, examples = (module.__doc__ or "").partition("Examples:\n")
            command.epilog = title.lower() + examples
            module.add_arguments(command)
    return parser


def _tolerate_any_character() -> None:
    """Have the code of a character shown where the terminal cannot show the character."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
