"""Sides: captures, directories, files and tables, also damaged, unfinished and empty ones."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.comparison.runs import Dumped, both, capture, compared, pairing, pairs_of, write
from tests.conftest import CaptureBuilder, CollectionBuilder

from dumpstream import DumpstreamError
from dumpstream.archive.rows import FileRow
from dumpstream.comparison.sides.side import open_side
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from dumpstream.comparison.execution import Pair

RUN = [Dumped("Add", "add", 0), Dumped("Mul", "mul", 1), Dumped("Add", "add", 2)]


def problems(pairs: list[Pair]) -> list[str | None]:
    return [None if pair.golden is None else pair.golden.problem for pair in pairs]


def test_a_file_that_was_lost_is_a_problem_of_each_tensor_that_mine_has(tmp_path: Path) -> None:
    mine = capture(tmp_path / "a", RUN[:1])
    builder = CaptureBuilder(tmp_path / "b")
    row = FileRow(RUN[0].name, 0, 1, Verdict.LOST, [], "full", 120)
    builder.write(row.to_line())
    pairs = pairs_of(compared(mine, builder.finish())[0])
    assert both(pairs) == [
        ("add input 0 at 0", "add input 0 at 0"),
        ("add output 0 at 0", "add output 0 at 0"),
    ]
    assert problems(pairs) == ["lost: bytes of it were lost; 120 bytes (full)"] * 2


def test_a_file_that_is_lost_on_both_sides_is_one_pair(tmp_path: Path) -> None:
    builders = [CaptureBuilder(tmp_path / name) for name in ("a", "b")]
    for builder in builders:
        builder.write(FileRow(RUN[0].name, 0, 1, Verdict.LOST, [], "full", 120).to_line())
    mine, golden = (builder.finish() for builder in builders)
    (pair,) = pairs_of(compared(mine, golden)[0])
    assert pair.mine is not None
    assert pair.golden is not None
    assert pair.mine.problem == pair.golden.problem == "lost: bytes of it were lost; 120 bytes (full)"
    assert not pair.known_identical


def test_of_a_file_that_is_cut_off_only_what_is_missing_has_a_problem(tmp_path: Path) -> None:
    whole = Dumped("Add", "add", 0, inputs=1, outputs=1)
    for name in ("a", "b"):
        builder = CaptureBuilder(tmp_path / name)
        data = whole.data if name == "a" else whole.data[:-4]
        builder.add(whole.name, data, Verdict.COMPLETE if name == "a" else Verdict.SHORT)
        builder.finish()
    pairs = pairs_of(compared(tmp_path / "a", tmp_path / "b")[0])
    assert problems(pairs) == [None, "its file ends 4 bytes before it does; dump it again"]


def test_a_file_that_was_not_to_be_stored_says_so(tmp_path: Path) -> None:
    mine = capture(tmp_path / "a", RUN[:1])
    builder = CaptureBuilder(tmp_path / "b")
    builder.write(FileRow(RUN[0].name, 100, 1, Verdict.COMPLETE, [], not_stored="filtered").to_line())
    pairs = pairs_of(compared(mine, builder.finish())[0])
    assert problems(pairs) == ["was not stored: filtered (the capture had --only)"] * 2


def test_a_stored_file_that_is_damaged_is_a_problem_and_the_rest_is_paired(tmp_path: Path) -> None:
    mine, golden = (
        capture(tmp_path / "a", RUN[:2]),
        capture(tmp_path / "b", [RUN[0]._replace(value=2), RUN[1]]),
    )
    next(golden.glob("files/**/Add.*")).write_bytes(b"no zstd")
    pairs = pairs_of(compared(mine, golden)[0])
    assert [pair.known_identical for pair in pairs] == [False, False, True, True]
    assert [problem is not None for problem in problems(pairs)] == [True, True, False, False]


def test_a_damaged_file_in_a_directory_is_a_problem(tmp_path: Path) -> None:
    mine, golden = write(tmp_path / "a", RUN[:1]), write(tmp_path / "b", [RUN[0]._replace(damaged=True)])
    pairs = pairs_of(compared(mine, golden)[0])
    assert len(pairs) == 2
    assert all("is damaged" in (problem or "") for problem in problems(pairs))


def test_a_capture_and_its_copy_are_known_to_be_identical_without_their_files(tmp_path: Path) -> None:
    mine = capture(tmp_path / "a", RUN)
    shutil.copytree(mine, tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "files")
    executions, notes = compared(mine, tmp_path / "b")
    assert all(execution.identical for execution in executions)
    assert [len(execution.pairs) for execution in executions] == [2, 2, 2]
    assert all(pair.known_identical for pair in pairs_of(executions))
    assert notes == []


def test_the_pairs_of_an_identical_execution_are_those_of_any_other(tmp_path: Path) -> None:
    mine, golden = capture(tmp_path / "a", RUN), capture(tmp_path / "b", [*RUN, Dumped("Mul", "mul", 9)])
    executions, _ = compared(mine, golden)
    assert [execution.identical for execution in executions] == [True, True, True, False]
    assert both(executions[0].pairs) == [
        ("add input 0 at 0", "add input 0 at 0"),
        ("add output 0 at 0", "add output 0 at 0"),
    ]
    assert both(executions[0].pairs[1:]) == [("add output 0 at 0", "add output 0 at 0")]
    assert executions[3].pairs[0].reason == "ran once in mine"


def test_elements_are_read_from_where_they_are(tmp_path: Path) -> None:
    mine, golden = capture(tmp_path / "a", RUN), write(tmp_path / "b", RUN)
    for pair in pairs_of(compared(mine, golden)[0]):
        for tensor in (pair.mine, pair.golden):
            assert tensor is not None
            assert tensor.open is not None
            with tensor.open() as elements:
                assert elements.shape == (2, 3)
                assert b"".join(map(bytes, elements.blocks())) == np.ones((2, 3), np.float32).tobytes()


def test_a_golden_that_is_still_growing_is_compared_as_far_as_it_is(tmp_path: Path) -> None:
    mine = capture(tmp_path / "a", RUN[:2])
    growing = CaptureBuilder(tmp_path / "b")
    growing.add(RUN[0].name, RUN[0].data, Verdict.COMPLETE)
    executions, notes = compared(mine, growing.path)
    growing.finish()
    assert [len(it.pairs) for it in executions] == [2, 2]
    (note,) = notes
    assert note.startswith(f"the golden: {growing.path}: ")
    assert note.endswith("is still capturing; what is finished by now is compared")
    assert {pair.reason for pair in executions[1].pairs} == {"the golden has no such operator"}


def test_a_capture_that_was_interrupted_is_compared_as_far_as_it_is(tmp_path: Path) -> None:
    mine = capture(tmp_path / "a", RUN[:1])
    builder = CaptureBuilder(tmp_path / "b")
    builder.add(RUN[0].name, RUN[0].data, Verdict.COMPLETE)
    executions, notes = compared(mine, builder.interrupt())
    assert all(pair.known_identical for pair in pairs_of(executions))
    assert notes == [
        f"the golden: {builder.path}: a run was stopped before its end; what it had not finished is not there"
    ]


def test_a_process_without_a_capture_is_noted(tmp_path: Path, collection: CollectionBuilder) -> None:
    member = collection.begin(rank=0)
    member.add(RUN[0].name, RUN[0].data, Verdict.COMPLETE)
    collection.end(member)
    collection.refuse(pid=7)
    mine = collection.close()
    executions, notes = compared(mine, capture(tmp_path / "b", RUN[:1]))
    assert len(pairs_of(executions)) == 2
    assert notes[0] == "mine: process 7: no room is left"


@pytest.mark.parametrize("make", [write, capture])
def test_an_empty_side_is_noted_and_the_other_is_all_there(tmp_path: Path, make: object) -> None:
    assert callable(make)
    mine, golden = capture(tmp_path / "a", RUN), make(tmp_path / "b", [])
    executions, notes = compared(mine, golden)
    assert len(pairs_of(executions)) == 6
    assert notes == [f"the golden is empty: {golden} has no dump files"]


def test_two_runs_that_have_nothing_in_common_are_told_apart(tmp_path: Path) -> None:
    mine, golden = write(tmp_path / "a", RUN[:1]), write(tmp_path / "b", [Dumped("Sub", "sub", shape=(5,))])
    executions, notes = compared(mine, golden)
    assert {pair.reason for pair in pairs_of(executions)} == {
        "the golden has no such operator",
        "mine has no such operator",
    }
    assert notes == ["mine and the golden have no operator in common; --map FILE says which belong together"]


def test_a_location_without_anything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DumpstreamError, match="nowhere does not exist; the golden is a capture, a directory"):
        open_side(tmp_path / "nowhere", "the golden")


def test_other_files_in_a_directory_are_counted(tmp_path: Path) -> None:
    mine = write(tmp_path / "a", RUN[:1])
    (mine / "README").write_text("what we ran")
    (mine / "notes.csv").write_text("a,b\n1,2\n")
    executions, notes = compared(mine, write(tmp_path / "b", RUN[:1]))
    assert len(pairs_of(executions)) == 2
    assert notes == ["mine: 2 files are not dump files, and left out"]
    (mine / "README").unlink()
    assert compared(mine, tmp_path / "b")[1] == ["mine: 1 file is not a dump file, and left out"]


def test_two_files_that_the_user_names_are_paired_whatever_they_are_called(tmp_path: Path) -> None:
    first, second = tmp_path / "before.bin", tmp_path / "after.bin"
    first.write_bytes(Dumped(op_name="a").data)
    second.write_bytes(Dumped(op_name="b", value=2).data)
    pairs = pairs_of(compared(first, second)[0])
    assert [(pair.mine is not None, pair.golden is not None, pair.guess) for pair in pairs] == [
        (True, True, False),
        (True, True, False),
    ]


def test_npy_files_are_outputs_of_operators_and_pair_with_dump_files(tmp_path: Path) -> None:
    mine = write(tmp_path / "a", [Dumped("Conv2D", "scope_conv1", 0)])
    golden = tmp_path / "golden"
    golden.mkdir()
    np.save(golden / "scope_conv1.0.1780159660000007.npy", np.zeros((2, 3), np.float64))
    pairs = pairs_of(compared(mine, golden)[0])
    assert [(pair.mine is not None, pair.golden is not None) for pair in pairs] == [
        (True, False),
        (True, True),
    ]
    assert pairs[0].reason == "the golden has no input 0 of this execution"
    tensor = pairs[1].golden
    assert tensor is not None
    assert (tensor.dtype, tensor.shape, tensor.count, tensor.size) == ("float64", (2, 3), 6, 48)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: data[:-5], "ends 5 bytes before its last element does; copy it again"),
        (lambda data: b"PK" + data, "is not an NPY file that can be read"),
        (lambda data: data[:30], "is not an NPY file that can be read"),
        (lambda _: b"", "is not an NPY file that can be read"),
    ],
)
def test_an_npy_file_that_is_damaged_is_a_problem(tmp_path: Path, damage: object, problem: str) -> None:
    assert callable(damage)
    mine, golden = write(tmp_path / "a", [Dumped("Conv2D", "conv", 0, inputs=0)]), tmp_path / "golden"
    golden.mkdir()
    np.save(golden / "conv.0.1780159660000007.npy", np.zeros((2, 3)))
    path = next(golden.iterdir())
    path.write_bytes(damage(path.read_bytes()))
    (found,) = problems(pairs_of(compared(mine, golden)[0]))
    assert problem in (found or "")


def test_python_objects_in_an_npy_file_are_not_loaded(tmp_path: Path) -> None:
    golden = tmp_path / "golden"
    golden.mkdir()
    np.save(golden / "conv.0.1780159660000007.npy", np.array([{}]), allow_pickle=True)
    mine = write(tmp_path / "a", [Dumped("Conv2D", "conv", 0, inputs=0)])
    (found,) = problems(pairs_of(compared(mine, golden)[0]))
    assert "it holds Python objects" in (found or "")


def test_what_is_on_the_disk_is_removed_when_the_caller_stops_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    mine = capture(tmp_path / "a", RUN)
    with pairing(mine, mine) as found:
        next(found)
        assert [*scratch.iterdir()]
    assert [*scratch.iterdir()] == []
