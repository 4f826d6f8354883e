"""Completion for bash."""

from collections.abc import Iterable
from shlex import quote

from dumpstream.cli.grammar.words import Argument, Command, Takes

_SCRIPT = """\
# Completes dumpstream in bash. Put into ~/.bashrc:  source <(dumpstream completion bash)
_dumpstream() {
    local cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD - 1]} at= i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            # What follows is a command line of its own.
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            elif ((i + 1 == COMP_CWORD)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            fi
            return
        fi
        case "$at/${COMP_WORDS[i]}" in
            %(commands)s) at+=/${COMP_WORDS[i]} ;;
        esac
    done
    # bash takes --flag=value for three words.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $flag == = ]]; then
        flag=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case "$at $flag" in
%(values)s
    esac
    case "$at" in
%(words)s
    esac
}
complete -o bashdefault -o default -F _dumpstream dumpstream
"""
#: Words are offered; if none fits, and files may be meant, bash goes on with files.
_OFFER = 'mapfile -t COMPREPLY < <(compgen -W %s -- "$cur")'
_NO_FILES = "compopt +o default +o bashdefault 2>/dev/null"


def bash_script(program: Command) -> str:
    """Return the script that completes *program*."""
    commands = [command for command in program.everything() if command.words]
    return _SCRIPT % {
        "commands": " | ".join(_place(command) for command in commands),
        "values": "\n".join(_values(program)),
        "words": "\n".join(_words(program)),
    }


def _place(command: Command) -> str:
    return "".join(f"/{word}" for word in command.words)


def _values(program: Command) -> Iterable[str]:
    """Yield what to do behind flags that take something."""
    for command in program.everything():
        for flag in command.flags:
            if flag.takes is not Takes.NOTHING:
                patterns = " | ".join(f'"{_place(command)} {name}"' for name in flag.names)
                yield f"        {patterns}) {_offer_value(flag)}; return ;;"


def _offer_value(flag: Argument) -> str:
    if flag.takes is Takes.CHOICE:
        return _OFFER % quote(" ".join(flag.choices))
    return ":" if flag.takes in {Takes.FILE, Takes.DIRECTORY} else _NO_FILES


def _words(program: Command) -> Iterable[str]:
    """Yield what to do where a word may stand."""
    for command in program.everything():
        flags = " ".join(name for flag in command.flags for name in flag.names)
        others = [below.words[-1] for below in command.below]
        others += [choice for it in command.positional for choice in it.choices]
        files = any(it.takes in {Takes.FILE, Takes.DIRECTORY} for it in command.positional)
        yield f'        "{_place(command)}")'
        yield f"            if [[ $cur == -* ]]; then {_OFFER % quote(flags)}"
        if others:
            yield f"            else {_OFFER % quote(' '.join(others))}"
        yield f"            fi{'' if files else f'; {_NO_FILES}'} ;;"
