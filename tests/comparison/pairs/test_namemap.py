"""Maps of names: patterns with groups, in text or JSON, and files that are something else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.comparison.runs import Dumped, both, compared, pairs_of, write

from dumpstream import DumpstreamError
from dumpstream.comparison.pairs.namemap import read_name_map
from dumpstream.comparison.pairs.pairing import PairingOptions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("rule", "name", "golden"),
    [
        ("conv1 -> conv_1", "conv1", "conv_1"),
        ("conv1 -> conv_1", "conv10", None),
        ("layer.*.to_q -> layer.*.q_proj", "layer.12.to_q", "layer.12.q_proj"),
        ("*.*.* -> {3}.{1}.*", "a.b.c", "c.a.a"),
        ("*ab*ab -> *|*", "xababab", "x|ab"),
        ("*x -> *", "x", ""),
        ("a*a -> b", "a", None),
    ],
)
def test_a_rule_changes_the_whole_name(tmp_path: Path, rule: str, name: str, golden: str | None) -> None:
    path = tmp_path / "map.txt"
    path.write_text(f"# what we call it\n\n  {rule}  \n")
    assert read_name_map(path).golden_name(name) == golden


def test_the_first_rule_that_matches_counts(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"conv*": "first*", "*": "other*", "relu": "never"}))
    names = read_name_map(path)
    assert [names.golden_name(name) for name in ("conv1", "relu")] == ["first1", "otherrelu"]
    assert [rule.mine for rule in names.unused()] == ["relu"]


def test_a_hostile_pattern_takes_little_time(tmp_path: Path) -> None:
    path = tmp_path / "map.txt"
    path.write_text("*a" * 200 + "b -> x")
    assert read_name_map(path).golden_name("a" * 4000) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"conv1 conv2", "line 1 is not a rule: write MINE -> GOLDEN"),
        (b"a -> b\nb -> c -> d", "line 2 is not a rule"),
        (b"a -> *", r"has more \* in '\*' than in 'a'"),
        (b"a* -> {2}", r"has \{2\}, and 'a\*' has 1 \*"),
        (b"-> b", "names no operator"),
        (b'{"a": 1}', "is not a map: write an object"),
        (b'["a"]', "is not a map: write an object"),
        (b'{"a": ', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff\xfe", "is not text in UTF-8"),
    ],
)
def test_something_else_is_refused_with_the_place(tmp_path: Path, text: bytes, problem: str) -> None:
    path = tmp_path / "map.txt"
    path.write_bytes(text)
    with pytest.raises(DumpstreamError, match=problem):
        read_name_map(path)


def test_a_map_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(DumpstreamError, match=r"map\.txt cannot be read: No such file"):
        read_name_map(tmp_path / "map.txt")


def test_operators_are_paired_by_a_map_and_rules_without_use_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "map.txt"
    path.write_text("to_* -> *_proj\nnothing -> x\n")
    mine = write(tmp_path / "a", [Dumped(op_name="to_q"), Dumped(op_name="to_k", time=1)])
    golden = write(tmp_path / "b", [Dumped(op_name="k_proj", time=5), Dumped(op_name="q_proj", time=6)])
    executions, notes = compared(mine, golden, PairingOptions(names=read_name_map(path), guess=False))
    assert both(pairs_of(executions)) == [
        ("to_q input 0 at 0", "q_proj input 0 at 6"),
        ("to_q output 0 at 0", "q_proj output 0 at 6"),
        ("to_k input 0 at 1", "k_proj input 0 at 5"),
        ("to_k output 0 at 1", "k_proj output 0 at 5"),
    ]
    assert notes == ["no operator of mine matches the rule nothing -> x"]


def test_of_two_operators_that_stand_for_one_the_first_is_paired(tmp_path: Path) -> None:
    path = tmp_path / "map.txt"
    path.write_text("* -> both")
    mine = write(tmp_path / "a", [Dumped(op_name="x"), Dumped(op_name="y", time=1)])
    golden = write(tmp_path / "b", [Dumped(op_name="both", time=5)])
    pairs = pairs_of(compared(mine, golden, PairingOptions(names=read_name_map(path)))[0])
    assert [pair.reason for pair in pairs] == [None, None, "ran once in the golden", "ran once in the golden"]
