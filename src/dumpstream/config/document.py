"""Document: the bytes of ``acl.json`` as plain Python values, within CANN's limits."""

import json
import math
import os
import re
import stat
from collections import Counter
from typing import Any, Final, NamedTuple

from dumpstream.config.problem import Finding, Location

MAX_FILE_BYTES: Final = 10 << 20
MAX_DEPTH: Final = 10


class Document(NamedTuple):
    """The values of a file, and the keys it has more than once."""

    root: Any
    repeated: tuple[Location, ...] = ()


class Unreadable(NamedTuple):
    """Why a file has no values: the id of a rule, and the finding."""

    rule: str
    finding: Finding


def read_bytes(path: str | os.PathLike[str]) -> bytes | Unreadable:
    """Read a file as CANN would: a regular one of at most 10 MiB."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return _unreadable("file.path", problem="it is not a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as exc:
        return _unreadable("file.path", problem=getattr(exc, "strerror", None) or str(exc))
    return data if len(data) <= MAX_FILE_BYTES else _unreadable("file.size")


def parse(data: bytes) -> Document | Unreadable:
    """Return the values in *data*; an empty file is an empty object."""
    if len(data) > MAX_FILE_BYTES:
        return _unreadable("file.size")
    if _is_too_deep(data, b"{", b"}") or _is_too_deep(data, b"[", b"]"):
        return _unreadable("file.depth")
    if not data:
        return Document({})
    try:
        root = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_int=_whole_number,
            parse_float=_number,
        )
    except RecursionError:
        return _unreadable("file.depth")
    except ValueError as exc:
        return _unreadable("file.json", problem=str(exc))
    return _examined(root)


class _Repeating(dict[str, Any]):
    """An object that has keys more than once; the last one counts."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.repeated = [key for key, count in counts.items() if count > 1]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else _Repeating(pairs)


def _examined(root: Any) -> Document | Unreadable:
    """Return the document at *root*; works without recursion, which a file could exhaust."""
    repeated: list[Location] = []
    waiting: list[tuple[Location, Any]] = [((), [root])]
    while waiting:
        place, container = waiting.pop()
        if len(place) > 2 * MAX_DEPTH:
            return _unreadable("file.depth")
        if isinstance(container, _Repeating):
            repeated += [(*place[1:], key) for key in container.repeated]
        pairs = container.items() if isinstance(container, dict) else enumerate(container)
        for key, value in pairs:
            if not (_is_text(key) and _is_text(value)):
                return _unreadable("file.json", problem="a string has half of a surrogate pair")
            if isinstance(value, dict | list) and value:
                waiting.append(((*place, key), value))
    return Document(root, tuple(repeated))


def _is_too_deep(data: bytes, opening: bytes, closing: bytes) -> bool:
    """Whether brackets nest too deeply, counted as CANN does: also inside strings."""
    others = bytes(set(range(256)) - {*opening, *closing})
    depth = 0
    for bracket in data.translate(None, others):
        if bracket == opening[0]:
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif depth:
            depth -= 1
    return False


def _is_text(value: object) -> bool:
    """Whether *value* can be written as UTF-8, if it is a string at all."""
    return not isinstance(value, str) or value.isascii() or not re.search("[\ud800-\udfff]", value)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _number(text: str) -> float:
    if math.isfinite(number := float(text)):
        return number
    raise ValueError("a number is too large")


def _whole_number(text: str) -> int:
    # What fits into a double has few enough digits for int(), which refuses thousands of them.
    _number(text)
    return int(text)


def _unreadable(rule: str, **words: object) -> Unreadable:
    return Unreadable(rule, Finding((), words))
