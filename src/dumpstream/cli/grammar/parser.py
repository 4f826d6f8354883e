"""The parser of the command line."""

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn

from dumpstream.cli._exit import WRONG_USAGE
from dumpstream.cli.grammar.formatter import HelpFormatter
from dumpstream.cli.screen.options import add_screen_arguments

#: The commands by what they are for, with the first lines of their help. Only the module of the chosen one
#: is imported: its docstring is the help, its `add_arguments` declares the flags, and its `run` does the work
#: and returns the exit code.
GROUPS = {
    "capture": {
        "capture": "Capture dump files into a directory.",
        "collect": "Capture every process that joins, as a service.",
        "upload": "Upload the files that captures could not upload to their object store.",
        "recover": "Store the data that a dead collector left in its rings.",
    },
    "find the answer": {
        "diagnose": "Find the operator that made the first NaN of a run.",
        "compare": "Compare two runs: where they first differ, and which operator added the error.",
        "view": "Show a run in the browser, while it is captured or afterwards.",
        "stats": "Print the statistics of every tensor in captures, dump files and directories of them.",
        "sql": "Ask the tables of a run in SQL.",
        "overflow": "List the operators that overflowed.",
        "watch": "Find the operators that trample on the outputs of watched ones.",
        "merge": "Put the parts of all shards together, and print what the command prints without --shard.",
    },
    "read the files": {
        "ls": "List the files of a capture.",
        "verify": "Read every file of a capture again and compare it with the journal.",
        "show": "Show what is in a dump file.",
        "extract": "Write the original files of a capture.",
        "convert": "Write the tensors of dump files as npy, bin or csv.",
        "export": "Write a run in a format that other programs open.",
    },
    "prepare": {
        "config": "Check, explain and write dump configurations (acl.json).",
        "simulate": "Run a training job on the simulated runtime.",
        "completion": "Print what completes commands and flags in a shell.",
    },
}
COMMANDS = {name: line for commands in GROUPS.values() for name, line in commands.items()}

#: The commands that only read; while a store does not answer, Python cannot interrupt them.
READERS = {
    *("ls", "verify", "extract", "stats", "compare", "merge", "convert", "show", "diagnose"),
    *("view", "sql", "export", "overflow", "watch"),
}

#: The commands that may take long, and show their progress.
_LONG = READERS | {"capture", "collect", "upload", "recover"}

_KINDS: dict[object, str] = {int: "a whole number", float: "a number"}

_EPILOG = """\
exit codes:
  0    done, and everything is whole
  1    failed
  2    wrong usage
  3    done, but not everything is whole
  130  interrupted by Ctrl-C (143 by SIGTERM)

examples:
  dumpstream capture --out run1 -- COMMAND  capture every process of a command
  dumpstream capture --out run1 --simulate  capture from the simulated runtime
  dumpstream ls run1                        list its files
  dumpstream verify run1                    read and check everything again
  dumpstream extract run1 --out dumps       write the original files
  dumpstream stats run1 --where 'nan > 0'   which tensors have NaNs
  dumpstream compare run1 run0              where two runs first differ
  dumpstream diagnose run1                  which operator made the first NaN
  dumpstream overflow run1                  which operators overflowed
  dumpstream watch run1                     what tramples on watched tensors
"""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return what *argv* says; ends the process if it is not understood, or asks for help."""
    parser = make_parser([word for word in argv if word in COMMANDS][:1])
    _refuse_mistyped(parser, argv)
    args, rest = parser.parse_known_args(argv)
    # argparse takes positional arguments only side by side; a list of names may go on behind a flag.
    if rest and (not hasattr(args, "names") or any(text.startswith("-") for text in rest)):
        subcommands(parser)[args.command].error(f"{' '.join(rest)} is too much")
    if rest:
        args.names += rest
    return args


def _refuse_mistyped(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """End the process if *argv* has no command, or a command or a flag that does not exist."""
    for word in argv:
        below = subcommands(parser)
        if word == "--":
            break
        if below and not word.startswith("-"):
            if word not in below:
                _refuse(parser, f"there is no command {word!r}", word, below)
            parser = below[word]
        elif word.startswith("--") and " " not in word:
            name = word.partition("=")[0]
            flags = parser._option_string_actions  # noqa: SLF001 - argparse has no public way to them
            if not any(flag.startswith(name) for flag in flags):
                _refuse(parser, f"there is no flag {name}", name, flags)
    if subcommands(parser) and not any(word in {"-h", "--help", "--version"} for word in argv):
        parser.print_help()
        sys.exit(WRONG_USAGE)


def _refuse(parser: argparse.ArgumentParser, problem: str, word: str, known: Iterable[str]) -> NoReturn:
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    from dumpstream.cli._display import say  # noqa: PLC0415

    likely = get_close_matches(word, known, n=1)
    meant = f"; did you mean {likely[0]}?" if likely else ";"
    say(f"{problem}{meant} `{parser.prog} --help` lists all")
    sys.exit(WRONG_USAGE)


class _Parser(argparse.ArgumentParser):
    """Refuses in one line: a list of all flags would hide what is wrong."""

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:  # it would say the names of Python's types
            if action.choices is not None:
                _refuse_choice(action, arg_string)
            if action.type not in _KINDS:
                raise
            raise argparse.ArgumentError(action, f"{arg_string!r} is not {_KINDS[action.type]}") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            _refuse_choice(action, value)

    def error(self, message: str) -> NoReturn:
        from dumpstream.cli._display import say  # noqa: PLC0415 - only a mistake needs it

        say(f"{message}; `{self.prog} --help` explains")
        sys.exit(WRONG_USAGE)


def _refuse_choice(action: argparse.Action, word: str) -> NoReturn:
    choices = ", ".join(map(str, action.choices or ()))
    raise argparse.ArgumentError(action, f"there is no {word!r}; choose from {choices}") from None


class _ProgramFormatter(HelpFormatter):
    """Sets the commands below the titles of their groups."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no public name
            return super()._format_action(action)
        titles = {next(iter(commands)): f"\n  {title}:\n" for title, commands in GROUPS.items()}
        below = self._iter_indented_subactions(action)
        return "".join(titles.get(it.dest, "") + self._format_action(it) for it in below).removeprefix("\n")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - slower than everything else that --help loads

        parser.exit(message=f"{parser.prog} {version('dumpstream')}\n")


def make_parser(complete: Collection[str] = COMMANDS.keys()) -> argparse.ArgumentParser:
    """Return the parser, with the flags of the commands in *complete*."""
    parser = _Parser(
        prog="dumpstream",
        description="Capture the tensors that Ascend operators dump, and find what went wrong in them.",
        epilog=_EPILOG,
        formatter_class=_ProgramFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, help_line in COMMANDS.items():
        command = commands.add_parser(name, help=help_line, formatter_class=HelpFormatter)
        if name in complete:
            module = import_module(f"dumpstream.cli.commands.{name}")
            command.description, title, examples = (module.__doc__ or "").partition("Examples:\n")
            command.epilog = title.lower() + examples
            module.add_arguments(command)
            for leaf in _leaves(command):
                add_screen_arguments(leaf, is_long=name in _LONG)
    return parser


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers that have no commands below them: *parser*, or those below it."""
    below = subcommands(parser)
    for command in below.values():
        yield from _leaves(command)
    if not below:
        yield parser


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands directly below *parser* by their names."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}
