"""The commands and flags of the command line as values, read from its parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from enum import StrEnum, auto
from typing import NamedTuple

from dumpstream.cli.grammar.parser import make_parser, subcommands

_FILES = {"FILE", "PATH", "CAPTURE", "RUN", "DESTINATION", "WORKLOAD"}
_DIRECTORIES = {"DIR"}


class Takes(StrEnum):
    """What an argument is."""

    NOTHING = auto()
    FILE = auto()
    DIRECTORY = auto()
    CHOICE = auto()
    COMMAND = auto()  #: a command of the system, with its arguments
    VALUE = auto()


class Argument(NamedTuple):
    """A flag, or a positional argument, which has no names."""

    names: Sequence[str]
    takes: Takes
    choices: Sequence[str]
    metavar: str  #: empty if it takes nothing
    help: str
    number: str | int | None  #: how many words it takes, as argparse has it
    repeats: bool
    required: bool


class Command(NamedTuple):
    """A command, or one below it."""

    words: Sequence[str]  #: by which it is called, behind the name of the program
    line: str  #: what it does
    text: str
    examples: str
    arguments: Sequence[Argument]
    below: Sequence[Command]

    @property
    def flags(self) -> list[Argument]:
        """The arguments that have names."""
        return [it for it in self.arguments if it.names]

    @property
    def positional(self) -> list[Argument]:
        """The arguments that have none."""
        return [it for it in self.arguments if not it.names]

    def everything(self) -> Iterator[Command]:
        """Yield it and all commands below it."""
        yield self
        for command in self.below:
            yield from command.everything()


def read_grammar() -> Command:
    """Return the program itself, with all its commands."""
    return _command(make_parser(), (), "")


def _command(parser: argparse.ArgumentParser, words: Sequence[str], line: str) -> Command:
    actions = [it for it in parser._actions if not isinstance(it, argparse._SubParsersAction)]  # noqa: SLF001
    lines = _lines(parser)
    return Command(
        words,
        line,
        (parser.description or "").strip(),
        (parser.epilog or "").strip(),
        [_argument(action, parser) for action in actions if action.help != argparse.SUPPRESS],
        [_command(below, (*words, name), lines.get(name, "")) for name, below in subcommands(parser).items()],
    )


def _lines(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the lines about the commands directly below *parser*."""
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return {it.dest: it.help or "" for it in action._choices_actions}  # noqa: SLF001
    return {}


def _argument(action: argparse.Action, parser: argparse.ArgumentParser) -> Argument:
    metavar = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if action.nargs == 0:
        metavar = ""
    text = " ".join(metavar) if isinstance(metavar, tuple) else metavar
    values = {**vars(action), "prog": parser.prog}
    return Argument(
        names=action.option_strings,
        takes=_takes(action, text),
        choices=[str(choice) for choice in action.choices or ()],
        metavar=text,
        help=(action.help or "") % values,
        number=action.nargs,
        repeats=isinstance(action, argparse._AppendAction) or action.nargs in {"*", "+"},  # noqa: SLF001
        required=action.required,
    )


def _takes(action: argparse.Action, metavar: str) -> Takes:
    if action.nargs == 0:
        return Takes.NOTHING
    if action.choices:
        return Takes.CHOICE
    if metavar == "COMMAND":
        return Takes.COMMAND
    if metavar in _FILES:
        return Takes.FILE
    return Takes.DIRECTORY if metavar in _DIRECTORIES else Takes.VALUE
