"""Arguments that several commands have, and what their words stand for."""

import os
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Sequence
from itertools import compress
from pathlib import Path

from dumpstream._errors import DumpstreamError
from dumpstream.cli._exit import WrongUsageError
from dumpstream.system.location import Prefix, as_location, as_path, is_meant_as_url

_NAME = "a name as `ls` shows it, or a pattern with * ? [ ]"
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def size(text: str) -> int:
    """Return the bytes that ``4096``, ``64M`` or ``1GiB`` stands for; units are powers of 1024."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a size; write for example 4096, 64M or 1G")
    return int(match[1]) << _UNITS[match[2]]


def size_word(size: int) -> str:
    """Return the shortest word that stands for *size* bytes, such as ``64M``."""
    exponent = max(exponent for exponent in _UNITS.values() if not size % (1 << exponent))
    return f"{size >> exponent}{next(unit for unit in _UNITS if _UNITS[unit] == exponent).upper()}"


def location(text: str) -> Path | Prefix:
    """Return the directory that *text* names, or the prefix in an object store if *text* is a URL."""
    try:
        return as_location(text)
    except DumpstreamError as exc:
        raise ArgumentTypeError(str(exc)) from None


def local_path(text: str) -> Path:
    """Return the path that *text* names, which is not in an object store."""
    try:
        return as_path(text, "it")
    except DumpstreamError as exc:
        raise ArgumentTypeError(str(exc)) from None


def add_capture_argument(parser: ArgumentParser) -> None:
    """Declare ``capture``, the place of a capture."""
    help_text = "its directory, or a URL such as s3://bucket/run"
    parser.add_argument("capture", type=location, metavar="CAPTURE", help=help_text)


def add_names_argument(parser: ArgumentParser) -> None:
    """Declare ``names``, patterns of the names of a capture's files; empty if all are meant."""
    help_text = f"{_NAME} (default: all files)"
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help=help_text)


def add_inputs_argument(parser: ArgumentParser, *, patterns: bool = False) -> None:
    """Declare ``names``, places of captures and dump files; *patterns* may follow, see `split_inputs`."""
    help_text = "a capture (directory or URL), a dump file, or a directory of dump files"
    if patterns:
        help_text += f"; behind the first, what is neither a path nor a URL is {_NAME}"
    parser.add_argument("names", nargs="+", metavar="PATH", help=help_text)


def split_inputs(words: Sequence[str]) -> tuple[list[Path | Prefix], list[str]]:
    """Return the locations among *words*, and the names and patterns of files; the first is a location.

    Raises:
        WrongUsageError: a location is not valid.
    """
    is_place = [
        not number or is_meant_as_url(word) or os.path.lexists(word) for number, word in enumerate(words)
    ]
    names = [word for word, place in zip(words, is_place, strict=True) if not place]
    return locations(compress(words, is_place)), names


def locations(words: Iterable[str]) -> list[Path | Prefix]:
    """Return what *words* name; raises `WrongUsageError` if one is not valid."""
    try:
        return [*map(as_location, words)]
    except DumpstreamError as exc:
        raise WrongUsageError(str(exc)) from None


def add_run_argument(parser: ArgumentParser) -> None:
    """Declare ``path``, the place of a capture or of dump files."""
    help_text = "a capture (directory or URL), or a directory of dump files"
    parser.add_argument("path", type=location, metavar="RUN", help=help_text)


def add_out_argument(parser: ArgumentParser, help_text: str) -> None:
    """Declare ``--out``, where captures go."""
    parser.add_argument("--out", type=location, metavar="DESTINATION", required=True, help=help_text)


def add_members_arguments(parser: ArgumentParser) -> None:
    """Declare ``--host`` and ``--rank``, lists that are empty if the flags are not given."""
    help_text = "only this host, of a job of several; may be repeated"
    parser.add_argument("--host", action="append", default=[], metavar="NAME", help=help_text)
    add_rank_argument(parser)


def add_rank_argument(parser: ArgumentParser) -> None:
    """Declare ``--rank``, a list of numbers that is empty if the flag is not given."""
    help_text = "only the processes of this rank, in a capture of several; may be repeated"
    parser.add_argument("--rank", action="append", default=[], type=int, metavar="N", help=help_text)
