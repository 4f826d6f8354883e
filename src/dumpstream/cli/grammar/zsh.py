"""Completion for zsh."""

from collections.abc import Iterator

from dumpstream.cli.grammar.words import Argument, Command, Takes

_SCRIPT = """\
#compdef dumpstream
# Completes dumpstream in zsh. Put into ~/.zshrc, behind compinit:  source <(dumpstream completion zsh)
%(functions)s
if [[ $funcstack[1] == _dumpstream ]]; then
    _dumpstream "$@"
else
    compdef _dumpstream dumpstream
fi
"""
_WITH_COMMANDS = """\
%(name)s() {
    local context state state_descr line
    typeset -A opt_args
    _arguments -C %(flags)s '1: :->command' '*:: :->arguments'
    case $state in
        command)
            local -a commands=(%(commands)s)
            _describe -t commands command commands ;;
        arguments)
            case $line[1] in
%(cases)s
            esac ;;
    esac
}
"""
_ACTIONS = {Takes.FILE: "_files", Takes.DIRECTORY: "_files -/", Takes.COMMAND: "_normal", Takes.VALUE: " "}


def zsh_script(program: Command) -> str:
    """Return the script that completes *program*."""
    return _SCRIPT % {"functions": "\n".join(map(_function, program.everything()))}


def _name(command: Command) -> str:
    return "_".join(["_dumpstream", *command.words])


def _function(command: Command) -> str:
    flags = " \\\n        ".join(_quoted(spec) for flag in command.flags for spec in _specs(flag))
    if command.below:
        return _WITH_COMMANDS % {
            "name": _name(command),
            "flags": flags,
            "commands": " ".join(_quoted(f"{it.words[-1]}:{it.line}") for it in command.below),
            "cases": "\n".join(f"                {it.words[-1]}) {_name(it)} ;;" for it in command.below),
        }
    specs = [_quoted(_positional(it)) for it in command.positional]
    return f"{_name(command)}() {{\n    _arguments {' '.join([flags, *specs])}\n}}\n"


def _specs(flag: Argument) -> Iterator[str]:
    """Yield what `_arguments` takes for each name of *flag*."""
    others = "" if flag.repeats else f"({' '.join(flag.names)})"
    for name in flag.names:
        text = f"{'*' if flag.repeats else others}{name}[{_escaped(flag.help)}]"
        if flag.takes is not Takes.NOTHING:
            colon = "::" if flag.number == "?" else ":"
            text += "".join(f"{colon}{_escaped(word)}:{_action(flag)}" for word in flag.metavar.split(" "))
        yield text


def _positional(argument: Argument) -> str:
    start = "*::" if argument.takes is Takes.COMMAND else "*:" if argument.repeats else ":"
    start += ":" if argument.number == "?" else ""
    return f"{start}{_escaped(argument.metavar)}:{_action(argument)}"


def _action(argument: Argument) -> str:
    return f"({' '.join(argument.choices)})" if argument.choices else _ACTIONS[argument.takes]


def _escaped(text: str) -> str:
    for char in "\\[]:":
        text = text.replace(char, f"\\{char}")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
