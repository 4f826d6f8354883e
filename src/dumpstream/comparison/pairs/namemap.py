"""NameMap: what the golden calls the operators of mine, told by the patterns of a file.

The file has a line ``MINE -> GOLDEN`` for each rule, or is a JSON object with the same. A ``*`` in MINE
stands for any text; in GOLDEN, the first ``*`` is what the first one stood for, and so on, and ``{2}`` is
what the second one stood for, wherever it is wanted. The first rule that matches the whole name of an
operator counts. Empty lines, and lines that begin with ``#``, mean nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from dumpstream._errors import DumpstreamError
from dumpstream.system.nofollow import open_regular

_LONGEST = 64 << 20  #: bytes of a file
_ARROW = "->"
_TAKEN = re.compile(r"\*|\{([0-9]{1,3})\}")
_REMEMBERED = 1 << 16


class Rule(NamedTuple):
    """A pattern of mine, and what the golden has instead."""

    mine: str
    golden: str

    def apply(self, name: str) -> str | None:
        """Return what *name* becomes; None if it does not match."""
        texts = _match(self.mine.split("*"), name)
        if texts is None:
            return None
        following = iter(texts)
        return _TAKEN.sub(lambda it: texts[int(it[1]) - 1] if it[1] else next(following), self.golden)

    def mistake(self) -> str | None:
        """Return what is wrong with it, if anything."""
        stars = self.mine.count("*")
        if not self.mine or not self.golden:
            return "names no operator"
        if self.golden.count("*") > stars:
            return f"has more * in {self.golden!r} than in {self.mine!r}"
        numbers = [int(found[1]) for found in _TAKEN.finditer(self.golden) if found[1]]
        wrong = [number for number in numbers if not 1 <= number <= stars]
        return f"has {{{wrong[0]}}}, and {self.mine!r} has {stars} *" if wrong else None


class NameMap:
    """The rules in order; the names that were asked for are remembered."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._used: set[Rule] = set()
        self._find = lru_cache(_REMEMBERED)(self._find_rule)

    def golden_name(self, name: str) -> str | None:
        """Return what the golden calls the operator *name*; None if no rule tells."""
        return self._find(name)

    def unused(self) -> list[Rule]:
        """Return the rules that have not matched any name."""
        return [rule for rule in self._rules if rule not in self._used]

    def _find_rule(self, name: str) -> str | None:
        for rule in self._rules:
            found = rule.apply(name)
            if found is not None:
                self._used.add(rule)
                return found
        return None


def read_name_map(path: str | os.PathLike[str]) -> NameMap:
    """Return the rules in the file *path*.

    Raises:
        DumpstreamError: it cannot be read, or has something else than rules; the message says where.
    """
    text = read_text(path)
    if text.lstrip().startswith(("{", "[")):
        rules = _rules_of_json(text, path)
    else:
        lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
        rules = [_rule_of_line(line, f"{path}, line {number}") for number, line in lines if _means(line)]
    for rule in rules:
        if mistake := rule.mistake():
            raise DumpstreamError(f"{path}: the rule {rule.mine} {_ARROW} {rule.golden} {mistake}")
    return NameMap(rules)


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a small file that the user named; raises `DumpstreamError`."""
    try:
        with os.fdopen(open_regular(os.path.realpath(path), os.O_RDONLY), "rb") as file:
            data = file.read(_LONGEST + 1)
    except OSError as exc:
        problem = f"cannot be read: {exc.strerror}; name a regular file that this user can read"
        raise DumpstreamError(f"{os.fspath(path)} {problem}") from exc
    if len(data) > _LONGEST:
        raise DumpstreamError(f"{os.fspath(path)} has more than {_LONGEST >> 20} MiB, and is something else")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise DumpstreamError(f"{os.fspath(path)} is not text in UTF-8: {exc.reason} at {exc.start}") from exc


def read_json(text: str, path: str | os.PathLike[str]) -> object:
    """Return what *text*, from the file *path*, holds; raises `DumpstreamError`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise DumpstreamError(f"{os.fspath(path)} is not JSON: {exc}") from exc


def _rules_of_json(text: str, path: str | os.PathLike[str]) -> list[Rule]:
    found = read_json(text, path)
    if not isinstance(found, dict) or not all(isinstance(golden, str) for golden in found.values()):
        raise DumpstreamError(f"{os.fspath(path)} is not a map: write an object of patterns and golden names")
    return [Rule(mine, golden) for mine, golden in found.items()]


def _rule_of_line(line: str, where: str) -> Rule:
    mine, arrow, golden = line.partition(_ARROW)
    if not arrow or _ARROW in golden:
        raise DumpstreamError(f"{where} is not a rule: write MINE {_ARROW} GOLDEN")
    return Rule(mine.strip(), golden.strip())


def _means(line: str) -> bool:
    return bool(line) and not line.startswith("#")


def _match(texts: Sequence[str], name: str) -> list[str] | None:
    """Return what is between *texts* in *name*, which begins with the first and ends with the last."""
    first, *others = texts
    if not others:
        return [] if name == first else None
    *inner, last = others
    end = len(name) - len(last)
    if not name.startswith(first) or not name.endswith(last) or end < len(first):
        return None
    found, position = [], len(first)
    for text in inner:
        at = name.find(text, position, end)
        if at < 0:
            return None
        found.append(name[position:at])
        position = at + len(text)
    return [*found, name[position:end]]
