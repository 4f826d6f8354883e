"""Completion for fish."""

from collections.abc import Iterator

from dumpstream.cli.grammar.words import Argument, Command, Takes

_SCRIPT = """\
# Completes dumpstream in fish:  dumpstream completion fish > ~/.config/fish/completions/dumpstream.fish
set -g __dumpstream_commands %(commands)s

function __dumpstream_at --description 'Whether the words so far call this command; -- is what follows it'
    set -l at
    for word in (commandline -opc)[2..-1]
        if test "$word" = --
            set at --
            break
        end
        set -l next (string trim -- "$at $word")
        contains -- "$next" $__dumpstream_commands; and set at $next
    end
    test "$at" = "$argv[1]"
end

function __dumpstream_behind --description 'Complete the command line behind --'
    set -l words (commandline -opc)
    set -l place (contains -i -- -- $words)
    complete -C (string join ' ' -- (string escape -- $words[(math $place + 1)..-1]) (commandline -ct))
end

complete -c dumpstream -f
complete -c dumpstream -n '__dumpstream_at --' -a '(__dumpstream_behind)'
%(completions)s
"""
_TAKES = {
    Takes.FILE: "-r -F",
    Takes.DIRECTORY: "-x -a '(__fish_complete_directories)'",
    Takes.COMMAND: "",
    Takes.VALUE: "-x",
    Takes.NOTHING: "",
}


def fish_script(program: Command) -> str:
    """Return the script that completes *program*."""
    commands = [command for command in program.everything() if command.words]
    return _SCRIPT % {
        "commands": " ".join(_quoted(" ".join(command.words)) for command in commands),
        "completions": "\n".join(line for command in program.everything() for line in _lines(command)),
    }


def _lines(command: Command) -> Iterator[str]:
    place = _quoted(" ".join(command.words))
    start = f"complete -c dumpstream -n {_quoted(f'__dumpstream_at {place}')}"
    for below in command.below:
        yield f"{start} -a {below.words[-1]} -d {_quoted(below.line)}"
    for flag in command.flags:
        names = " ".join(f"-l {it[2:]}" if it.startswith("--") else f"-s {it[1:]}" for it in flag.names)
        yield f"{start} {names} {_taken(flag)} -d {_quoted(flag.help)}"
    for argument in command.positional:
        if argument.choices:
            yield f"{start} -a {_quoted(' '.join(argument.choices))}"
        elif argument.takes in {Takes.FILE, Takes.DIRECTORY}:
            yield f"{start} -F"


def _taken(flag: Argument) -> str:
    return f"-x -a {_quoted(' '.join(flag.choices))}" if flag.choices else _TAKES[flag.takes]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
