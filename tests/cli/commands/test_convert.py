from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.format.blocked import block

from dumpstream.analysis.tensorfiles import FileFormat
from dumpstream.cli import main
from dumpstream.cli.commands import convert as arguments
from dumpstream.format.layouts import PLAIN
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder, DumpBuilder

NAME = "Conv2D.conv1.4.65535.1780159660546556"
FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def file(tmp_path: Path, dump: DumpBuilder) -> Path:
    path = tmp_path / NAME
    path.write_bytes(dump.input(FLOATS).output(FLOATS + 1).build())
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def convert(*arguments: Any, out: Path) -> int:
    return main(["convert", *map(str, arguments), "--out", str(out)])


def test_tensors_of_a_file_are_written_under_their_names(
    file: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = convert(file, out=out)

    assert code == 0
    assert np.array_equal(np.load(out / f"{NAME}.input.0.npy"), FLOATS)
    assert np.array_equal(np.load(out / f"{NAME}.output.0.npy"), FLOATS + 1)
    assert capsys.readouterr() == ("converted 2 tensors, 304 B, of 1 of 1 file\n", "")


def test_several_paths_may_stand_before_and_behind_the_flags(
    file: Path, out: Path, tmp_path: Path, builder: CaptureBuilder
) -> None:
    builder.add("A.a.1.2.3", file.read_bytes(), Verdict.COMPLETE)
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps/B.b.1.2.3").write_bytes(file.read_bytes())

    code = main(["convert", str(file), "--out", str(out), str(builder.finish()), str(tmp_path / "dumps")])

    assert code == 0
    found = {path.name.removesuffix(".input.0.npy") for path in out.glob("*.input.0.npy")}
    assert found == {NAME, "A.a.1.2.3", "B.b.1.2.3"}


@pytest.mark.parametrize("form", FileFormat)
def test_format_is_the_suffix(file: Path, out: Path, form: str) -> None:
    code = convert(file, "--format", form, out=out)

    assert code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        f"{NAME}.{io}.0.{form}" for io in ("input", "output")
    ]


def test_layout_and_shape_undo_a_blocked_format(tmp_path: Path, out: Path, dump: DumpBuilder) -> None:
    path = tmp_path / NAME
    matrix = np.arange(20 * 9, dtype=np.float32).reshape(20, 9)
    path.write_bytes(dump.output(block(matrix, "ND", "FRACTAL_NZ"), form=29).build())

    code = convert(path, "--layout", "nd", "--shape", "20,9", out=out)

    assert code == 0
    assert np.array_equal(np.load(out / f"{NAME}.output.0.npy"), matrix)


def test_damaged_file_is_reported_in_one_line_and_the_others_are_written(
    tmp_path: Path, file: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "A.a\x1b[1m.1.2.3"
    damaged.write_bytes(file.read_bytes()[:-1])
    text = tmp_path / "text"
    text.write_text("no dump")

    code = convert(damaged, file, text, out=out)

    captured = capsys.readouterr()
    assert code == 3
    assert (out / f"{NAME}.output.0.npy").exists()
    first, second = captured.err.splitlines()
    assert "A.a\\x1b[1m.1.2.3: ends inside output 0" in first
    assert f"{text}: " in second
    assert captured.out.endswith("of 3 of 3 files; 2 files with problems\n")


def test_file_that_is_not_a_dump_file_is_counted(
    tmp_path: Path, file: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").write_text("no dump")

    code = convert(tmp_path, out=out)

    assert code == 0
    assert "of 1 of 1 file; skipped 1 that are not dump files" in capsys.readouterr().out


def test_existing_file_is_an_error_without_force(
    file: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    convert(file, out=out)

    assert convert(file, out=out) == 1
    assert "already exists; replace it with --force" in capsys.readouterr().err
    assert convert(file, "--force", out=out) == 0


def test_directory_inside_the_capture_is_refused(
    file: Path, builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.add(NAME, file.read_bytes(), Verdict.COMPLETE)
    path = builder.finish()

    code = convert(path, out=path / "npy")

    assert code == 1
    assert "is inside the capture" in capsys.readouterr().err
    assert not (path / "npy").exists()


def test_missing_path_is_an_error(tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = convert(tmp_path / "nothing", out=out)

    assert code == 1
    assert "nothing does not exist; name a capture" in capsys.readouterr().err


def test_shape_without_layout_is_wrong_usage(file: Path, out: Path) -> None:
    assert convert(file, "--shape", "2,3", out=out) == 2


@pytest.mark.parametrize("arguments", [["--shape", "2,x"], ["--layout", "NC1HWC0"], ["--format", "txt"]])
def test_value_that_means_nothing_is_wrong_usage(file: Path, out: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        convert(file, *arguments, out=out)

    assert caught.value.code == 2


def test_choices_are_those_of_the_library() -> None:
    assert set(arguments._LAYOUTS) == {"ND", *PLAIN}
    assert list(arguments._FORMATS) == list(FileFormat)
