"""docs/promises.md: every promise has a test, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dumpstream import Verdict, _native

_ROOT = Path(__file__).parent.parent
_PAGE = (_ROOT / "docs" / "promises.md").read_text("utf-8")
_GUARANTEES = (_ROOT / "docs" / "guarantees.md").read_text("utf-8")


class Line(NamedTuple):
    promise: str
    test: str


def lines() -> list[Line]:
    rows = re.findall(r"^\| (.+?) \| (.*?) ?\|$", _PAGE, re.MULTILINE)
    return [Line(*row) for row in rows if row != ("promise", "test")]


@cache
def defined_in(path: Path) -> set[str]:
    """Return the names of the tests in a file, with their classes; of a C file, those of its functions."""
    text = path.read_text("utf-8")
    if path.suffix == ".c":
        return set(re.findall(r"^static \w[\w ]*?\**(\w+)\(", text, re.MULTILINE))
    return {name for node in ast.parse(text).body for name in names_of(node)}


def names_of(node: ast.AST, prefix: str = "") -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {f"{prefix}{name}"} if name.startswith("test_") else set()
        case ast.ClassDef(name=name, body=body):
            return {name}.union(*(names_of(child, f"{name}::") for child in body))
        case ast.Assign(targets=[ast.Name(id=name)]):  # a state machine of hypothesis
            return {name}
    return set()


def test_the_page_is_read() -> None:
    assert len(lines()) > 100
    assert len(lines()) == len(re.findall(r"^\| ", _PAGE, re.MULTILINE)) - len(
        re.findall(r"^## ", _PAGE, re.MULTILINE)
    )


def test_every_named_test_exists() -> None:
    named = set(re.findall(r"`(tests/[^`]+?)::([^`]+)`", _PAGE))

    assert [f"{path}::{name}" for path, name in sorted(named) if name not in defined_in(_ROOT / path)] == []


def test_every_promise_has_a_test_or_the_reason_why_not() -> None:
    without = [
        line.promise
        for line in lines()
        if not re.fullmatch(r"(`tests/[^` ]+::[^` ]+` ?)+|none: .{20,}", line.test)
    ]

    assert without == []


def test_every_cause_verdict_and_exit_code_has_its_line() -> None:
    causes = re.findall(r"^\| `(\w+)` \|", _GUARANTEES.split("## Losses")[1].split("\n## ")[0], re.MULTILINE)
    codes = re.findall(r"^\| (\d+) \|", _GUARANTEES.split("## Exit codes")[1].split("\n## ")[0], re.MULTILINE)
    begun = " ".join(line.promise.partition(":")[0] for line in lines())

    assert {*_native.CAUSES} <= {*causes}
    assert codes
    assert [word for word in (*causes, *Verdict) if f"`{word}`" not in begun] == []
    assert [code for code in codes if code not in begun.split()] == []
