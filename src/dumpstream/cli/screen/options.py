"""The flags that say how much is drawn, which all commands share, and what was asked for."""

import os
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from enum import StrEnum
from typing import TextIO


class Colour(StrEnum):
    """When lines are coloured."""

    AUTO = "auto"  #: on a terminal, unless the environment says otherwise
    ALWAYS = "always"
    NEVER = "never"


class Drawing(StrEnum):
    """How progress is shown."""

    AUTO = "auto"  #: as bars on a terminal, as lines elsewhere
    BAR = "bar"
    LOG = "log"  #: a line from time to time
    NONE = "none"


@dataclass(slots=True)
class _Asked:
    colour: Colour = Colour.AUTO
    drawing: Drawing = Drawing.AUTO
    quiet: bool = False


_asked = _Asked()


def add_screen_arguments(parser: ArgumentParser, *, is_long: bool) -> None:
    """Declare the flags that `use_screen` reads; those of progress only if a command *is_long*."""
    add = parser.add_argument_group("screen").add_argument
    help_text = "colours: on a terminal, unless NO_COLOR is set; always; never (default: auto)"
    add("--color", choices=[*map(str, Colour)], default="auto", help=help_text)
    if is_long:
        help_text = "progress on standard error: bars on a terminal and a line every 30 s elsewhere; "
        help_text += "always bars; always lines; nothing (default: auto)"
        add("--progress", choices=[*map(str, Drawing)], default="auto", help=help_text)
        add("--quiet", action="store_true", help="no progress, and no summary unless something is wrong")


def use_screen(args: Namespace) -> None:
    """Draw from now on as *args* ask for."""
    _asked.colour = Colour(getattr(args, "color", "auto"))
    _asked.drawing = Drawing(getattr(args, "progress", "auto"))
    _asked.quiet = bool(getattr(args, "quiet", False))


def is_quiet() -> bool:
    """Return whether summaries that report no problem are not wanted."""
    return _asked.quiet


def drawing() -> Drawing:
    """Return how progress is to be shown, which is never `Drawing.AUTO`."""
    if _asked.quiet:
        return Drawing.NONE
    if _asked.drawing is not Drawing.AUTO:
        return _asked.drawing
    return Drawing.BAR if sys.stderr.isatty() and _obeys() else Drawing.LOG


def is_coloured(stream: TextIO) -> bool:
    """Return whether lines on *stream* are to be coloured."""
    if _asked.colour is not Colour.AUTO:
        return _asked.colour is Colour.ALWAYS
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in {"", "0"} for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and _obeys() and os.environ.get("CLICOLOR") != "0"


def _obeys() -> bool:
    """Whether the terminal obeys escape sequences, as far as its name tells."""
    return os.environ.get("TERM", "dumb") not in {"", "dumb"}
