"""What `compare` prints, writes and returns."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet
import pytest
from tests.conftest import CaptureBuilder, CollectionBuilder, DumpBuilder

from dumpstream.cli import main
from dumpstream.comparison.output.msaccucmp import HEADER
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[np.float32]

_OPERATORS = ("a", "b", "c", "d")
_COLUMNS = (
    *("rank", "model", "step", "op_type", "op_name", "io", "index", "occurrence", "mine", "golden", "dtype"),
    *("golden_dtype", "shape", "verdict", "reason", "cosine", "max_abs", "mean_abs", "rmse", "acc_rel"),
    *("max_rel", "mean_rel", "rel_euclidean", "kl", "rel", "max_ulp", "beyond_1_1000", "beyond_5_1000"),
    *("nan_both", "nan_mine", "nan_golden", "inf_differs", "bit_equal", "count", "mean", "std"),
    *("golden_mean", "golden_std", "worst", "input_error", "added"),
)


def _dumps(
    *, steps: int = 2, perturb: str = "", at: int = 0, seed: int = 1, time: int = 1
) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a chain of operators, each of which doubles its input; one may add an error."""
    for step in range(steps):
        array = np.random.default_rng([seed, step]).standard_normal((3, 4)).astype(np.float32)
        for number, name in enumerate(_OPERATORS):
            result = array * np.float32(2)
            if (name, step) == (perturb, at):
                result[1, 2] *= np.float32(1.5)
            built = DumpBuilder(name).input(array).output(result, address=2 + number)
            file = f"/dump/20261118120000/0/net/1/{step}/Double.{name}.{number}.0.{time}{step}{number:02}"
            yield file, built.build()
            array = result


def _directory(path: Path, **facts: Any) -> Path:
    for name, data in _dumps(**facts):
        file = path / name.removeprefix("/dump/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return path


def _fill(builder: CaptureBuilder, **facts: Any) -> CaptureBuilder:
    for name, data in _dumps(**facts):
        builder.add(name, data, Verdict.COMPLETE)
    return builder


def _capture(path: Path, **facts: Any) -> Path:
    return _fill(CaptureBuilder(path), **facts).finish()


@pytest.fixture
def compared(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Return what ``compare --json`` prints, after checking its exit code."""

    def compare(*words: object, code: int = 3) -> dict[str, Any]:
        assert main(["compare", *map(str, words), "--json"]) == code
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return compare


def test_the_answer_names_the_operator_that_added_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = _capture(tmp_path / "mine", perturb="b", at=1)
    golden = _capture(tmp_path / "golden", time=2)

    assert main(["compare", str(mine), str(golden)]) == 3

    out = capsys.readouterr().out
    assert out.startswith(
        "The first operator whose inputs agree and whose outputs do not is b (Double), model net, step 1: "
        "output 0 differs by rel "
    )
    assert "worst at [1, 2]" in out
    assert "Of the other operators that differ, 2 inherit their error." in out
    assert "16 tensors: 11 identical, 5 different" in out


def test_the_worst_rows_come_first_or_those_that_ran_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = _directory(tmp_path / "mine", perturb="b", at=1)
    golden = _directory(tmp_path / "golden")

    assert main(["compare", str(mine), str(golden), "--order", "run", "--rows", "2"]) == 3
    in_order = capsys.readouterr().out
    assert main(["compare", str(mine), str(golden), "--all", "--rows", "0"]) == 3
    everything = capsys.readouterr().out

    lines = [re.split("  +", line.strip()) for line in in_order.splitlines() if "different" in line]
    assert [line[2:6] for line in lines[:2]] == [
        ["b", "output 0", "different", "added here"],
        ["c", "input 0", "different", "-"],
    ]
    assert "3 more are not shown (--rows 0 shows all)" in in_order
    assert everything.count("identical  ") == 11


def test_a_copy_is_identical(tmp_path: Path, compared: Any) -> None:
    mine, golden = _capture(tmp_path / "mine"), _capture(tmp_path / "golden")

    found = compared(mine, golden, code=0)

    assert found["summary"]["sentence"] == "Nothing is different: 16 tensors compared, all identical."
    assert found["summary"]["first"] is None
    assert {row["verdict"] for row in found["rows"]} == {"identical"}
    assert {row["rel"] for row in found["rows"]} == {0.0}


def test_a_name_that_is_not_utf_8_is_a_name_like_others(tmp_path: Path, compared: Any) -> None:
    sides = [_directory(tmp_path / "mine"), _directory(tmp_path / "golden", perturb=_OPERATORS[1])]
    for side in sides:
        for file in [*side.rglob(f"*.{_OPERATORS[0]}.*")]:
            file.rename(file.with_name(file.name.replace(f".{_OPERATORS[0]}.", os.fsdecode(b".\xff."))))
    next(sides[1].rglob(f"1/*.{_OPERATORS[-1]}.*")).unlink()  # so that the sides are not paired file by file

    answer = compared(*sides)

    assert answer["summary"]["unmatched"] == 2
    assert answer["summary"]["first"]["op_name"] == _OPERATORS[1]


def test_quiet_prints_nothing_if_nothing_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, golden = _directory(tmp_path / "mine"), _directory(tmp_path / "golden")

    assert main(["compare", str(mine), str(golden), "--quiet"]) == 0

    assert capsys.readouterr().out == ""


def test_json_has_a_summary_and_flat_rows_with_every_metric(tmp_path: Path, compared: Any) -> None:
    found = compared(_directory(tmp_path / "a", perturb="c"), _directory(tmp_path / "b"))

    assert {*found} == {"summary", "rows"}
    assert {*found["summary"]} == {
        *("identical", "close", "different", "unmatched", "unreadable", "first", "sentence")
    }
    assert all({*row} == {*_COLUMNS} for row in found["rows"])
    first = found["summary"]["first"]
    assert first in found["rows"]
    assert (first["op_name"], first["io"], first["index"], first["step"]) == ("c", "output", 0, 0)
    assert first["worst"]["index"] == [1, 2]
    assert first["worst"]["mine"] == pytest.approx(first["worst"]["golden"] * 1.5)
    assert first["input_error"] == 0.0
    assert first["added"] == first["rel"] > 0
    assert first["reason"].startswith("added here; ")


def test_numbers_that_are_not_finite_are_texts_in_json(tmp_path: Path, compared: Any) -> None:
    for side, value in (("a", math.nan), ("b", math.inf)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "op.0.1700000000000000.npy", np.array([1.0, value], np.float32))

    (row,) = compared(tmp_path / "a", tmp_path / "b")["rows"]

    assert row["worst"] == {"index": [1], "mine": "NaN", "golden": "Infinity"}


def test_csv_and_parquet_have_the_same_rows(
    tmp_path: Path, compared: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [str(_directory(tmp_path / "a", perturb="c")), str(_directory(tmp_path / "b"))]
    table, text = tmp_path / "rows.parquet", tmp_path / "rows.csv"

    assert main(["compare", *sides, "--format", "parquet", "--out", str(table)]) == 3
    assert main(["compare", *sides, "--format", "csv", "--out", str(text)]) == 3

    assert capsys.readouterr().out.count("The first operator whose inputs agree") == 2
    rows = compared(*sides)["rows"]
    stored = pyarrow.parquet.read_table(table).drop(["max_abs_integer"]).to_pylist()
    assert stored == rows
    with text.open() as file:
        lines = [*csv.DictReader(file)]
    assert [line["op_name"] for line in lines] == [row["op_name"] for row in rows]
    assert [json.loads(line["shape"]) for line in lines] == [row["shape"] for row in rows]


def test_integers_are_exact_beyond_what_doubles_can_hold(tmp_path: Path, compared: Any) -> None:
    for side, value in (("a", 2**62 + 1), ("b", 0)):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "op.0.1700000000000000.npy", np.array([value, 5], np.int64))

    (row,) = compared(tmp_path / "a", tmp_path / "b")["rows"]

    assert row["max_abs"] == 2**62 + 1


def test_an_error_on_one_rank_is_found_there(tmp_path: Path, compared: Any) -> None:
    places = []
    for side in ("mine", "golden"):
        collection = CollectionBuilder(tmp_path / side)
        for rank in (0, 1, 2):
            perturb = "c" if (side, rank) == ("mine", 1) else ""
            collection.end(_fill(collection.begin(rank=rank, pid=rank + 1), perturb=perturb, seed=rank))
        places.append(collection.close())

    first = compared(*places)["summary"]["first"]

    assert (first["rank"], first["op_name"], first["step"]) == (1, "c", 0)


def test_a_damaged_file_is_a_row_and_the_rest_is_compared(tmp_path: Path, compared: Any) -> None:
    mine, golden = _directory(tmp_path / "mine"), _directory(tmp_path / "golden")
    damaged = next(mine.rglob("Double.b.*"))
    damaged.write_bytes(damaged.read_bytes()[:-4])

    found = compared(mine, golden)

    (row,) = [row for row in found["rows"] if row["verdict"] == "unreadable"]
    assert (row["op_name"], row["io"]) == ("b", "output")
    assert "ends" in row["reason"]
    assert found["summary"]["identical"] == 15


def test_an_operator_that_only_one_side_has_is_a_row_with_the_reason(tmp_path: Path, compared: Any) -> None:
    mine, golden = _directory(tmp_path / "mine", steps=1), _directory(tmp_path / "golden", steps=1)
    next(golden.rglob("Double.c.*")).unlink()

    found = compared(mine, golden)

    rows = [row for row in found["rows"] if row["verdict"] == "unmatched"]
    assert [(row["op_name"], row["io"], row["golden"]) for row in rows] == [
        ("c", "input", None),
        ("c", "output", None),
    ]
    assert {row["reason"] for row in rows} == {"the golden has no such operator"}
    assert "2 tensors could not be compared (2 unmatched)" in found["summary"]["sentence"]


def test_another_shape_is_a_reason(tmp_path: Path, compared: Any) -> None:
    for side, shape in (("a", (2, 3)), ("b", (3, 2))):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "op.0.1700000000000000.npy", np.zeros(shape, np.float32))

    (row,) = compared(tmp_path / "a", tmp_path / "b")["rows"]

    assert row["verdict"] == "different"
    assert row["reason"].endswith("shape [2, 3] in mine, [3, 2] in the golden")


def test_runs_that_have_nothing_in_common_say_so(tmp_path: Path, compared: Any) -> None:
    for side, name in (("a", "one"), ("b", "other")):
        (tmp_path / side).mkdir()
        array = np.zeros(3 if side == "a" else 4, np.float32)
        np.save(tmp_path / side / f"{name}.0.1700000000000000.npy", array)

    found = compared(tmp_path / "a", tmp_path / "b")

    assert found["summary"]["sentence"] == "Nothing could be compared: of 2 tensors, 2 unmatched."


def test_an_empty_side_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, empty = _directory(tmp_path / "mine"), CaptureBuilder(tmp_path / "golden").finish()

    assert main(["compare", str(mine), str(empty)]) == 3

    said = capsys.readouterr()
    assert said.out.startswith("Nothing could be compared: of 16 tensors, 16 unmatched.")
    assert "the golden is empty" in said.err


def test_a_golden_that_still_grows_is_compared_as_far_as_it_has_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = _capture(tmp_path / "mine")
    growing = CaptureBuilder(tmp_path / "golden")
    for name, data in [*_dumps()][:4]:
        growing.add(name, data, Verdict.COMPLETE)

    assert main(["compare", str(mine), str(growing.path)]) == 3
    said = capsys.readouterr()
    growing.interrupt()

    assert "No difference among 8 tensors compared, all identical" in said.out
    assert "8 tensors could not be compared (8 unmatched)" in said.out


def test_a_side_that_does_not_exist_fails_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(tmp_path / "none"), str(tmp_path)]) == 1

    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--rows", "-1"], "--rows must not be negative"),
        (["--workers", "0"], "--workers must be at least 1"),
        (["--format", "parquet"], "name a file with --out"),
        (["--as", "msaccucmp"], "name it with --out"),
        (["--mesh", "tp"], "is not a mesh"),
        (["--shards", "rules.json"], "say how the ranks are arranged"),
        (["--rank", "first"], "ranks are numbers"),
        (["--step", "1:2,1:3"], "has 1 twice"),
        (["--rtol", "-1"], "the limit -1.0 of rtol is not a number that it can have"),
        (["--atol", "nan"], "the limit nan of atol is not a number that it can have"),
    ],
)
def test_flags_that_do_not_go_together_are_wrong_usage(
    words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(tmp_path), str(tmp_path), *words]) == 2

    assert problem in capsys.readouterr().err


def test_tolerances_and_limits_decide_what_is_close(tmp_path: Path, compared: Any) -> None:
    sides = _directory(tmp_path / "a", perturb="d"), _directory(tmp_path / "b")

    assert compared(*sides, "--rtol", "1", code=0)["summary"]["close"] == 1
    assert compared(*sides, "--limit", "cosine=0.5", code=0)["summary"]["close"] == 1
    rules = tmp_path / "limits.json"
    rules.write_text(json.dumps([{"match": "d", "rtol": 1}]))
    assert compared(*sides, "--limits", rules, code=0)["summary"]["close"] == 1
    rules.write_text(json.dumps([{"match": "c", "rtol": 1}]))
    assert compared(*sides, "--limits", rules)["summary"]["different"] == 1


def test_steps_are_paired_as_told(tmp_path: Path, compared: Any) -> None:
    mine = _directory(tmp_path / "mine", steps=2)

    rows = compared(mine, mine, "--step", "1:0")["rows"]

    assert {row["step"] for row in rows} == {1}
    assert {row["verdict"] for row in rows} == {"different"}


def _msaccucmp(x: Array, y: Array) -> list[str]:
    """Return the cells that CANN's tool writes, by its formulas in float32."""
    error = np.abs(x - y)
    relative = np.where(np.abs(y) > 2.2e-16, np.abs(x / np.where(y == 0, np.float32(1), y) - 1), 0)
    cosine = min(float(np.sum(x / np.linalg.norm(x) * (y / np.linalg.norm(y)))), 1.0)
    eps = np.finfo(np.float32).eps
    p, q = (np.maximum((it - it.min()) / (it.max() - it.min()), eps) for it in (x, y))
    p, q = p / p.sum(), q / q.sum()
    deviations = ",".join(f"({it.mean():.3f};{it.std():.3f})" for it in (x, y))
    before = [
        cosine,
        error.max(),
        relative.sum(),
        np.sqrt(((x - y) ** 2).sum() / (y**2).sum()),
        np.sum(p * np.log(p / q)),
    ]
    behind = [error.mean(), np.sqrt(((x - y) ** 2).mean()), relative.max(), relative.mean()]
    return [*(f"{it:.6f}" for it in before), deviations, *(f"{it:.6f}" for it in behind)]


def test_the_csv_of_msaccucmp_has_its_columns_and_numbers(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    arrays = [random.standard_normal((4, 8)).astype(np.float32) + 3 for _ in range(2)]
    arrays[1] = arrays[0] * np.float32(1.01)
    for side, array in zip("ab", arrays, strict=True):
        data = DumpBuilder("op").input(array).output(array, address=77).build()
        (tmp_path / side).mkdir()
        (tmp_path / side / "Add.op.1.2.1700000000000000").write_bytes(data)
    sides = [str(tmp_path / side) for side in "ab"]

    assert main(["compare", *sides, "--as", "msaccucmp", "--out", str(tmp_path / "out")]) == 3

    (path,) = (tmp_path / "out").iterdir()
    assert re.fullmatch(r"result_[0-9]{14}\.csv", path.name)
    with path.open() as file:
        header, *rows = csv.reader(file)
    assert header == [*HEADER]
    assert ",".join(HEADER) == (
        "Index,OpType,NPUDump,DataType,Address,GroundTruth,DataType,Address,TensorIndex,Shape,CosineSimilarity,"
        "MaxAbsoluteError,AccumulatedRelativeError,RelativeEuclideanDistance,KullbackLeiblerDivergence,"
        "StandardDeviation,MeanAbsoluteError,RootMeanSquareError,MaxRelativeError,MeanRelativeError,"
        "CompareFailReason"
    )
    numbers = _msaccucmp(*arrays)
    assert rows == [
        ["0", "Add", "op", "float32", address, "op", "float32", address, tensor, "[4,8]", *numbers, ""]
        for address, tensor in (("1", "op:input:0"), ("77", "op:output:0"))
    ]


def test_the_csv_of_msaccucmp_has_all_numbers_of_a_copy(tmp_path: Path) -> None:
    array = np.random.default_rng(5).standard_normal((4, 8)).astype(np.float32) + 3
    builder = CaptureBuilder(tmp_path / "mine")
    name = "/dump/20260530164725/0/net/1/0/Add.op.1.2.1700000000000000"
    builder.add(name, DumpBuilder("op").output(array, address=77).build(), Verdict.COMPLETE)
    mine = builder.finish()

    assert main(["compare", str(mine), str(mine), "--as", "msaccucmp", "--out", str(tmp_path / "out")]) == 0

    (path,) = (tmp_path / "out").iterdir()
    with path.open() as file:
        _, row = csv.reader(file)
    assert row[10:-1] == _msaccucmp(array, array)


def test_the_csv_of_msaccucmp_says_why_a_pair_was_not_compared(tmp_path: Path) -> None:
    mine, golden = _directory(tmp_path / "mine", steps=1), _directory(tmp_path / "golden", steps=1)
    next(golden.rglob("Double.c.*")).unlink()

    assert main(["compare", str(mine), str(golden), "--as", "msaccucmp", "--out", str(tmp_path / "out")]) == 3

    (path,) = (tmp_path / "out").iterdir()
    with path.open() as file:
        rows = [row for row in csv.reader(file) if row[2] == "c"]
    assert [row[5:8] for row in rows] == [["*", "NaN", "NaN"]] * 2
    assert {row[-1] for row in rows} == {"the golden has no such operator"}


def test_ranks_of_one_run_are_put_together_before_they_are_compared(tmp_path: Path, compared: Any) -> None:
    random = np.random.default_rng(3)
    split, partial, same = (random.standard_normal((4, 6)).astype(np.float32) for _ in range(3))
    halves = np.split(split, 2, 1)
    collection = CollectionBuilder(tmp_path / "two")
    for rank in (0, 1):
        capture = collection.begin(rank=rank, pid=rank + 1)
        for number, (name, array) in enumerate(
            (
                ("qkv", halves[rank]),
                ("row", partial * (np.float32(0.25), np.float32(0.75))[rank]),
                ("norm", same),
            )
        ):
            data = DumpBuilder(name).output(array).build()
            capture.add(f"/d/20261118120000/0/net/1/0/T.{name}.{number}.0.1{number}", data, Verdict.COMPLETE)
        collection.end(capture)
    single = CaptureBuilder(tmp_path / "one")
    for number, (name, array) in enumerate((("qkv", split), ("row", partial), ("norm", same))):
        data = DumpBuilder(name).output(array).build()
        single.add(f"/d/20261118120000/0/net/1/0/T.{name}.{number}.0.1{number}", data, Verdict.COMPLETE)
    rules = tmp_path / "shards.json"
    rules.write_text(json.dumps([{"match": "qkv", "split": {"tp": 1}}, {"match": "row", "sum": ["tp"]}]))
    sides = collection.close(), single.finish()

    found = compared(*sides, "--mesh", "tp=2", "--shards", rules, code=0)

    assert [(row["op_name"], row["shape"], row["rank"]) for row in found["rows"]] == [
        (name, [4, 6], None) for name in ("qkv", "row", "norm")
    ]


def test_replicas_that_differ_are_said(tmp_path: Path, compared: Any) -> None:
    collection = CollectionBuilder(tmp_path / "two")
    array = np.ones(4, np.float32)
    for rank in (0, 1):
        capture = collection.begin(rank=rank, pid=rank + 1)
        data = DumpBuilder("norm").output(array + np.float32(rank)).build()
        capture.add("/d/20261118120000/0/net/1/0/T.norm.1.0.1", data, Verdict.COMPLETE)
        collection.end(capture)
    np.save(tmp_path / "norm.0.1700000000000000.npy", array)

    (row,) = compared(collection.close(), tmp_path / "norm.0.1700000000000000.npy", "--mesh", "dp=2")["rows"]

    assert row["verdict"] == "different"
    assert "mine: rank 1 should hold what rank 0 does, and differs by max_abs 1" in row["reason"]


def test_a_rank_outside_the_mesh_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collection = CollectionBuilder(tmp_path / "two")
    for rank in (0, 1, 2):
        collection.end(_fill(collection.begin(rank=rank, pid=rank + 1), steps=1))
    golden = _directory(tmp_path / "golden", steps=1)

    assert main(["compare", str(collection.close()), str(golden), "--mesh", "tp=2"]) == 1

    assert "the mesh tp=2 has 2 ranks, and the run has a rank 2" in capsys.readouterr().err


def test_statistics_are_compared_where_nothing_else_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compared: Any
) -> None:
    mine, golden = _directory(tmp_path / "mine", perturb="c"), _directory(tmp_path / "golden")
    table = str(tmp_path / "golden.parquet")
    assert main(["stats", str(golden), "--format", "parquet", "--out", table]) == 0
    capsys.readouterr()

    assert main(["compare", str(mine), table]) == 3
    said = capsys.readouterr()
    first = compared(mine, table)["summary"]["first"]

    assert "the golden has only statistics" in said.err
    assert " is c (Double), model net, step 0: output 0 differs (" in said.out
    assert (first["op_name"], first["rel"], first["input_error"]) == ("c", None, 0.0)


def test_two_empty_sides_are_not_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("a", "b"):
        (tmp_path / side).mkdir()

    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 3

    assert capsys.readouterr().out == "There is nothing to compare: neither side has a tensor.\n"


def test_the_devices_of_a_directory_are_the_ranks_of_a_mesh(tmp_path: Path, compared: Any) -> None:
    whole, same = np.arange(24, dtype=np.float32).reshape(4, 6), np.ones(4, np.float32)
    for directory, devices in (("two", (0, 1)), ("one", (0,))):
        for device, part in zip(devices, np.split(whole, len(devices), 1), strict=True):
            level = tmp_path / directory / f"20261118120000/{device}/net/1/0"
            level.mkdir(parents=True)
            for number, (name, array) in enumerate((("qkv", part), ("norm", same))):
                data = DumpBuilder(name).output(array).build()
                (level / f"T.{name}.{number}.0.178015966000000{number}").write_bytes(data)
    rules = tmp_path / "shards.json"
    rules.write_text(json.dumps([{"match": "qkv", "split": {"tp": 1}}]))
    options = ["--mesh", "tp=2", "--shards", rules]

    found = compared(tmp_path / "two", tmp_path / "one", *options, code=0)

    shapes = [(row["op_name"], row["shape"], row["verdict"]) for row in found["rows"]]
    assert shapes == [("qkv", [4, 6], "identical"), ("norm", [4], "identical")]
    assert found["rows"][0]["mine"].endswith("and those of 1 more rank")


def test_replicas_that_differ_are_the_answer_if_the_first_agrees(tmp_path: Path, compared: Any) -> None:
    array = np.ones(4, np.float32)
    for directory, device, factor in (("two", 0, 1), ("two", 1, 2), ("one", 0, 1)):
        level = tmp_path / directory / f"20261118120000/{device}/net/1/0"
        level.mkdir(parents=True)
        dump = DumpBuilder("norm").input(array, address=1).output(array * np.float32(factor), address=2)
        (level / "T.norm.0.0.1780159660000000").write_bytes(dump.build())

    sentence = compared(tmp_path / "two", tmp_path / "one", "--mesh", "dp=2")["summary"]["sentence"]

    assert sentence == (
        "The first operator whose inputs agree and whose outputs do not is norm (T), model net, step 0: "
        "output 0 differs (mine: rank 1 should hold what rank 0 does, and differs by max_abs 1)."
    )


def test_operators_are_shown_in_printable_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [tmp_path / "mine", tmp_path / "golden"]
    for number, side in enumerate(sides, 1):
        side.mkdir()
        array = np.full((3, 4), number, np.float32)
        data = DumpBuilder("a\x1b[2J\a").input(array).output(array, address=2).build()
        (side / "Double.a\x1b[2J\a.1.0.1000").write_bytes(data)

    assert main(["compare", *map(str, sides)]) == 3

    shown = capsys.readouterr().out
    assert "a\\x1b[2J\\x07 (Double)" in shown
    assert "\x1b" not in shown
    assert "\a" not in shown
