"""What names do not tell is guessed by type, dtype and shape, in order, and marked as a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.comparison.runs import Dumped, both, compared, pairs_of, write

from dumpstream.comparison.pairs.pairing import PairingOptions

if TYPE_CHECKING:
    from pathlib import Path


def output(op_type: str, op_name: str, time: int, **more: object) -> Dumped:
    return Dumped(op_type, op_name, time, inputs=0, **more)  # type: ignore[arg-type]


MINE = [output("MatMul", "to_q", 0), output("Add", "bias", 1), output("MatMul", "to_k", 2, shape=(7,))]


def test_operators_of_other_names_are_paired_by_type_and_shape(tmp_path: Path) -> None:
    golden = [
        output("MatMul", "q_proj", 5),
        output("Relu", "act", 6),
        output("MatMul", "k_proj", 7, shape=(7,)),
    ]
    executions, _ = compared(write(tmp_path / "a", MINE), write(tmp_path / "b", golden))
    pairs = pairs_of(executions)
    assert both(pairs) == [
        ("to_q output 0 at 0", "q_proj output 0 at 5"),
        (None, "act output 0 at 6"),
        ("bias output 0 at 1", None),
        ("to_k output 0 at 2", "k_proj output 0 at 7"),
    ]
    assert [pair.guess for pair in pairs] == [True, False, False, True]
    assert pairs[0].reason == "a guess by type and shape: q_proj in the golden"


def test_nothing_is_guessed_if_the_caller_does_not_want_it(tmp_path: Path) -> None:
    golden = write(tmp_path / "b", [output("MatMul", "q_proj", 5)])
    executions, _ = compared(write(tmp_path / "a", MINE[:1]), golden, PairingOptions(guess=False))
    # What only the golden has, and nothing ran before, comes first.
    assert both(pairs_of(executions)) == [(None, "q_proj output 0 at 5"), ("to_q output 0 at 0", None)]


def test_a_name_counts_more_than_the_type(tmp_path: Path) -> None:
    golden = write(tmp_path / "b", [output("MatMulV2", "to_q", 5), output("MatMul", "other", 6)])
    (first, *_), _ = compared(write(tmp_path / "a", MINE[:1]), golden)
    assert both(first.pairs) == [("to_q output 0 at 0", "to_q output 0 at 5")]
    assert not first.pairs[0].guess


def test_calls_of_another_run_have_other_numbers_and_the_same_order(tmp_path: Path) -> None:
    runs = [
        [output(f"aclnnAdd_{first + it}_L2", "aclnnAdd", 10 - it, model=None, step=None) for it in range(3)]
        for first in (4, 90)
    ]
    executions, _ = compared(write(tmp_path / "a", runs[0]), write(tmp_path / "b", runs[1]))
    # The number of a call counts, not the time of its dump.
    assert [both(it.pairs)[0][0] for it in executions] == [
        f"aclnnAdd output 0 at {10 - it}" for it in range(3)
    ]
    assert all(mine == golden for mine, golden in both(pairs_of(executions)))
    assert [it.occurrence for it in executions] == [0, 1, 2]
