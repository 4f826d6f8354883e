"""The man page: ``python -m dumpstream.cli.grammar.manual`` prints it."""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import version

from dumpstream.cli.grammar.words import Argument, Command, read_grammar

_ENVIRONMENT = {
    "NO_COLOR": "If set, nothing is coloured.",
    "FORCE_COLOR, CLICOLOR_FORCE": "If set, lines are coloured in a pipe, too.",
    "CLICOLOR": "If 0, nothing is coloured.",
    "XDG_CACHE_HOME": "Where indexes of large journals are kept.",
    "XDG_STATE_HOME": "Where captures without --spill keep what is not uploaded yet.",
}
_ARGUMENT_START = re.compile(r"(?m)^(?=[.'])")


def man_page(program: Command, release: str) -> str:
    """Return the page about *program* of a *release*, in the language of man."""
    return "\n".join(_lines(program, release)) + "\n"


def _lines(program: Command, release: str) -> Iterator[str]:
    yield f'.TH DUMPSTREAM 1 "" "dumpstream {_text(release)}" "User Commands"'
    yield from (
        ".SH NAME",
        "dumpstream \\- capture the tensors that Ascend operators dump, and find what went wrong in them",
    )
    yield from (".SH SYNOPSIS", ".B dumpstream", "\\fICOMMAND\\fR [\\fIargument\\fR ...]")
    yield from (".SH DESCRIPTION", _text(program.text), ".SH OPTIONS")
    for flag in program.flags:
        yield from (".TP", _title(flag), _text(flag.help))
    yield ".SH COMMANDS"
    for command in program.below:
        yield from (".TP", f".B {_text(command.words[-1])}", _text(command.line))
    for command in program.everything():
        if command.words:
            yield from _section(command)
    yield ".SH ENVIRONMENT"
    for name, meaning in _ENVIRONMENT.items():
        yield from (".TP", f".B {name}", _text(meaning))
    codes, _, examples = program.examples.partition("examples:")
    yield from (".SH EXIT STATUS", *_verbatim(codes.removeprefix("exit codes:")))
    yield from (".SH EXAMPLES", *_verbatim(examples))


def _section(command: Command) -> Iterator[str]:
    yield f".SH DUMPSTREAM {_text(' '.join(command.words).upper())}"
    yield _text(command.text or f"{command.line[:1].upper()}{command.line[1:]}.").replace("\n\n", "\n.PP\n")
    for argument in [*command.positional, *command.flags]:
        if "--help" not in argument.names:
            yield from (".TP", _title(argument), _text(argument.help) or "See above.")
    if command.examples:
        yield from (".PP", *_verbatim(command.examples))


def _title(argument: Argument) -> str:
    if not argument.names:
        return f"\\fI{_text(argument.metavar)}\\fR"
    names = ", ".join(f"\\fB{_text(name)}\\fR" for name in argument.names)
    value = f"{{{','.join(argument.choices)}}}" if argument.choices else argument.metavar
    return f"{names} \\fI{_text(value)}\\fR" if value else names


def _verbatim(text: str) -> Iterator[str]:
    yield from (".nf", _text(text.strip("\n")), ".fi")


def _text(text: str) -> str:
    """Return *text* so that man shows it as it is."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return _ARGUMENT_START.sub(r"\\&", escaped.replace("^", "\\(ha").replace("~", "\\(ti"))


if __name__ == "__main__":
    sys.stdout.write(man_page(read_grammar(), version("dumpstream")))
