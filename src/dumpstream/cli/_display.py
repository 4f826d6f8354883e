"""How the commands show names, numbers and problems."""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from io import StringIO
from textwrap import indent
from typing import Any, TextIO

from dumpstream.cli.screen.area import size_of
from dumpstream.cli.screen.layout import wrap_path, wrap_words
from dumpstream.cli.screen.live import above
from dumpstream.cli.screen.options import is_quiet

_UNITS = ("kB", "MB", "GB", "TB")
_STEP = 1000
_NESTED = (dict, list, tuple)
# Native, which `json.dumps` with an indentation is not.
_encode_flat = json.JSONEncoder(separators=(",\n      ", ": ")).encode


def printable(text: str) -> str:
    """Return *text* with every character escaped that a terminal cannot show or might obey."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


class _Escaping(StringIO):
    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal

    def write(self, text: str) -> int:
        return self._terminal.write("\n".join(map(printable, text.split("\n"))))


def escaping(file: TextIO) -> TextIO:
    """Return *file*, or, if it is a terminal, what writes there in printable characters and lines."""
    return _Escaping(file) if file.isatty() else file


def say(text: str) -> None:
    """Print a line on standard error, behind the name of the program, in printable characters."""
    with above(sys.stderr):
        print(in_words(f"dumpstream: {printable(text)}", sys.stderr), file=sys.stderr)


def summarise(text: str, *, good: bool, file: TextIO | None = None) -> None:
    """Print a summary; with ``--quiet``, only if it is not *good*."""
    if good and is_quiet():
        return
    stream = sys.stdout if file is None else file
    print(in_words(text, stream), file=stream)


def in_words(text: str, stream: TextIO, *, indent: str = "") -> str:
    """Return *text* as *stream* shows it without breaking words: in lines, if it is a terminal.

    *indent* is before all lines but the first.
    """
    if not stream.isatty():
        return text
    return "\n".join(wrap_words(text, size_of(stream).columns, indent=indent))


def print_text(text: str, *, indent: int = 0, file: TextIO | None = None) -> None:
    """Print a line; on a terminal, in lines that break no word, and paths behind a slash.

    *indent* spaces are before all lines but the first.
    """
    stream = sys.stdout if file is None else file
    if stream.isatty():
        text = "\n".join(wrap_path(text, size_of(stream).columns, indent=" " * indent))
    print(text, file=stream)


def print_error(error: Exception) -> None:
    """Say what *error* says, and each of its notes."""
    for line in (str(error), *getattr(error, "__notes__", ())):
        say(line)


@contextmanager
def told_warnings() -> Iterator[None]:
    """Say what Python's warnings say, in one line each and without the place in the source."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
        yield


def print_json(value: Any) -> None:
    """Print *value* as JSON, indented."""
    print(json.dumps(value, indent=2))


def print_json_with_list(value: Mapping[str, Any], name: str, items: Iterable[Any]) -> None:
    """Print the object *value* as `print_json` does, with *items*, which are not kept, as its list *name*."""
    before, _, behind = json.dumps(value, indent=2).partition(f'  "{name}": []')
    sys.stdout.write(f'{before}  "{name}": [')
    separator = "\n"
    for item in items:
        sys.stdout.write(separator + _item_text(item))
        separator = ",\n"
    sys.stdout.write(("]" if separator == "\n" else "\n  ]") + f"{behind}\n")


def _item_text(item: Any) -> str:
    """Return *item* of a list as `print_json` shows it; a flat object takes far less time."""
    if not isinstance(item, dict) or not item or any(it and isinstance(it, _NESTED) for it in item.values()):
        return indent(json.dumps(item, indent=2), "    ")
    return f"    {{\n      {_encode_flat(item)[1:-1]}\n    }}"


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


def sizes_text(size: int, stored_bytes: int, not_stored: int) -> str:
    """Return ``2 MB stored in 1 MB``, or ``2 MB received, 1 MB stored`` if some files were *not_stored*."""
    if size and not stored_bytes:
        return f"{size_text(size)} received, none of it stored"
    if not_stored:
        return f"{size_text(size)} received, {size_text(stored_bytes)} stored"
    return f"{size_text(size)} stored in {size_text(stored_bytes)}"


def not_stored_text(count: int) -> str:
    """Return ``2 files not stored: filtered``."""
    return f"{count_text(count, 'file')} not stored: filtered"


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
