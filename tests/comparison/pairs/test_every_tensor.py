"""Every tensor of either side is in one pair, whatever the runs are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.comparison.runs import Dumped, capture, compared, pairs_of, write

from dumpstream.comparison.pairs.namemap import NameMap, Rule
from dumpstream.comparison.pairs.pairing import PairingOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dumpstream.comparison.sidetensor import SideTensor

files = st.builds(
    Dumped,
    op_type=st.sampled_from(["Add", "Mul", "HcomAllReduce"]),
    op_name=st.sampled_from(["add", "mul", "relu_1"]),
    time=st.integers(0, 30),
    inputs=st.integers(0, 2),
    outputs=st.integers(0, 2),
    model=st.sampled_from([None, "net", "other"]),
    step=st.sampled_from([None, 0, 1]),
    device=st.integers(0, 1),
    shape=st.sampled_from([(2, 3), (4,)]),
    value=st.sampled_from([1.0, 2.0]),
    damaged=st.booleans(),
    task=st.just(1),
)


@st.composite
def calls(draw: st.DrawFn) -> list[Dumped]:
    """Return calls of single operators: a number for each, and inputs and outputs in files of their own."""
    first = draw(st.integers(0, 50))
    found = []
    for number in range(draw(st.integers(0, 6))):
        name = draw(st.sampled_from(["aclnnAdd", "aclnnMul"]))
        kept = draw(st.sampled_from([(True, True), (True, False), (False, True)]))
        halves = [(2, 0), (0, 1)] if draw(st.booleans()) else [(2, 1)]
        for half, (inputs, outputs) in enumerate(halves):
            if kept[half]:
                op_type, time = f"{name}_{first + number}_L2", 2 * number + half
                damaged = draw(st.booleans())
                found.append(Dumped(op_type, name, time, inputs, outputs, model=None, damaged=damaged))
    return found


def unique(run: Iterable[Dumped]) -> list[Dumped]:
    """Return *run* without files of the same name, and without files that have no tensor."""
    return [file for file in {file.name: file for file in run}.values() if file.tensors]


runs = st.one_of(st.lists(files, max_size=8), calls(), st.builds(list.__add__, calls(), st.lists(files))).map(
    unique
)
options = st.builds(
    PairingOptions,
    names=st.sampled_from(
        [None, NameMap([Rule("*", "add")]), NameMap([Rule("mul", "relu_1"), Rule("relu*", "mul*")])]
    ),
    guess=st.booleans(),
)


def check_once(
    run: Iterable[Dumped], tensors: Iterable[SideTensor | None], label: Callable[[str], str]
) -> None:
    """Check that *tensors* are those of *run*, each once; any of a file that cannot be read stands for it."""
    found = Counter((it.file, it.identity.io, it.identity.index) for it in tensors if it is not None)
    for file in run:
        name = label(file.name)
        of_file = {(io, index): count for (of, io, index), count in found.items() if of == name}
        if file.damaged:
            assert of_file
        else:
            assert of_file == dict.fromkeys(file.tensors, 1)
    assert {file for file, *_ in found} == {label(file.name) for file in run}


@given(runs, runs, options)
@settings(max_examples=60)
def test_every_tensor_of_two_directories_is_in_one_pair(
    mine: list[Dumped], golden: list[Dumped], options: PairingOptions
) -> None:
    with TemporaryDirectory() as directory:
        ours, theirs = (write(Path(directory) / name, run) for name, run in (("a", mine), ("b", golden)))
        pairs = pairs_of(compared(ours, theirs, options)[0])
        check_once(mine, (pair.mine for pair in pairs), lambda name: str(ours / name))
        check_once(golden, (pair.golden for pair in pairs), lambda name: str(theirs / name))
        for pair in pairs:
            assert pair.mine is not None or pair.golden is not None
            assert pair.reason is not None or (pair.mine is not None and pair.golden is not None)


@given(runs, runs)
@settings(max_examples=20)
def test_every_tensor_of_two_captures_is_in_one_pair(mine: list[Dumped], golden: list[Dumped]) -> None:
    with TemporaryDirectory() as directory:
        ours, theirs = (capture(Path(directory) / name, run) for name, run in (("a", mine), ("b", golden)))
        pairs = pairs_of(compared(ours, theirs)[0])
        check_once(mine, (pair.mine for pair in pairs), str)
        check_once(golden, (pair.golden for pair in pairs), str)


@given(runs)
@settings(max_examples=20)
def test_a_run_is_paired_with_itself(run: list[Dumped]) -> None:
    with TemporaryDirectory() as directory:
        ours = write(Path(directory) / "a", run)
        executions, _ = compared(ours, ours)
        for pair in pairs_of(executions):
            assert pair.mine is not None
            assert pair.golden is not None
            assert (pair.mine.file, pair.mine.identity) == (pair.golden.file, pair.golden.identity)
            assert not pair.guess


@given(runs)
@settings(max_examples=20)
def test_a_capture_and_its_copy_are_identical_as_far_as_they_can_be_read(run: list[Dumped]) -> None:
    with TemporaryDirectory() as directory:
        ours, theirs = (capture(Path(directory) / name, run) for name in ("a", "b"))
        for pair in pairs_of(compared(ours, theirs)[0]):
            assert pair.mine is not None
            assert pair.golden is not None
            assert pair.known_identical == (pair.mine.problem is None)


@pytest.mark.parametrize("make", [write, capture])
def test_the_files_of_an_execution_are_one(tmp_path: Path, make: Callable[..., Path]) -> None:
    run = [
        Dumped("HcomAllReduce", "sum", 0, inputs=1, outputs=0),
        Dumped("HcomAllReduce", "sum", 9, inputs=0, outputs=1),
        Dumped("HcomAllReduce", "sum", 20, inputs=1, outputs=0),
        Dumped("HcomAllReduce", "sum", 29, inputs=0, outputs=1),
    ]
    ours = make(tmp_path / "a", run)
    executions, _ = compared(ours, make(tmp_path / "b", run))
    assert [(it.op_name, it.occurrence, len(it.pairs)) for it in executions] == [("sum", 0, 2), ("sum", 1, 2)]
