"""How the commands show names, numbers, problems and progress."""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from textwrap import indent
from typing import Any, Self

_UNITS = ("kB", "MB", "GB", "TB")
_STEP = 1000
_PROGRESS_S = 0.1


def printable(text: str) -> str:
    """Return *text* with every character escaped that a terminal cannot show or might obey."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def say(text: str) -> None:
    """Print a line on standard error, behind the name of the program, in printable characters."""
    print(f"dumpstream: {printable(text)}", file=sys.stderr)


def print_error(error: Exception) -> None:
    """Say what *error* says, and each of its notes."""
    for line in (str(error), *getattr(error, "__notes__", ())):
        say(line)


def print_json(value: Any) -> None:
    """Print *value* as JSON, indented."""
    print(json.dumps(value, indent=2))


def print_json_with_list(value: Mapping[str, Any], name: str, items: Iterable[Any]) -> None:
    """Print the object *value* as `print_json` does, with *items*, which are not kept, as its list *name*."""
    before, _, behind = json.dumps(value, indent=2).partition(f'  "{name}": []')
    sys.stdout.write(f'{before}  "{name}": [')
    separator = "\n"
    for item in items:
        sys.stdout.write(separator + indent(json.dumps(item, indent=2), "    "))
        separator = ",\n"
    sys.stdout.write(("]" if separator == "\n" else "\n  ]") + f"{behind}\n")


def attributes(thing: object, *names: str) -> dict[str, Any]:
    """Return those attributes of *thing* by their names, as JSON has them."""
    return {name: getattr(thing, name) for name in names}


def operator_text(name: str, op_type: str | None, origin: Mapping[str, Any]) -> str:
    """Return ``name (type), model m, iteration 0``, with everything in *origin* that is known."""
    known = [f"{key.replace('_', ' ')} {value}" for key, value in origin.items() if value is not None]
    return ", ".join([f"{name} ({op_type})" if op_type else name, *known])


@lru_cache(4096)
def size_text(size: int) -> str:
    """Return *size* bytes in at most four digits and a unit."""
    if size < _STEP:
        return f"{size} B"
    exponent = min((len(str(size)) - 1) // 3, len(_UNITS))
    return f"{size / _STEP**exponent:.1f} {_UNITS[exponent - 1]}"


def count_text(count: int, noun: str) -> str:
    """Return ``1 file``, ``2 files``, ``2 processes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def time_text(microseconds: int) -> str:
    """Return the date and time that are *microseconds* after the beginning of 1970."""
    try:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds} us since 1970"
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def number_text(value: Any) -> str:
    """Return a number as text: a float in six digits, a complex one in two parts."""
    if isinstance(value, complex):
        value = [value.real, value.imag]
    if isinstance(value, list):
        return "+".join(map(number_text, value)) + "j"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class ProgressLine:
    """A line that is rewritten in place, and removed at the end; only if standard error is a terminal.

    Not *wanted*, it is never shown.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self._shown = False
        self._next = 0.0 if wanted and sys.stderr.isatty() else float("inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Replace the line, at most ten times a second."""
        if (now := time.monotonic()) >= self._next:
            self._next = now + _PROGRESS_S
            self._shown = True
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
