"""Print what completes commands and flags in a shell.

The script knows all commands, their flags, and the words that flags take. It does not change by itself: print
it again after an update.

Examples:
  source <(dumpstream completion bash)             in ~/.bashrc
  source <(dumpstream completion zsh)              in ~/.zshrc, behind compinit
  dumpstream completion fish > ~/.config/fish/completions/dumpstream.fish
"""

import sys
from argparse import ArgumentParser, Namespace

from dumpstream.cli.grammar.bash import bash_script
from dumpstream.cli.grammar.fish import fish_script
from dumpstream.cli.grammar.words import read_grammar
from dumpstream.cli.grammar.zsh import zsh_script

_SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SCRIPTS, metavar="SHELL", help="bash, zsh or fish")


def run(args: Namespace) -> int:
    sys.stdout.write(_SCRIPTS[args.shell](read_grammar()))
    return 0
