"""How the files are written: whole, under their names, nowhere else."""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.conftest import CaptureBuilder

from dumpstream._errors import DestinationError
from dumpstream.archive.rows import FileRow
from dumpstream.format.verdict import Verdict
from dumpstream.names import hashed_component, hashed_name
from dumpstream.reading.outputs import OutputNameError, Outputs
from dumpstream.testing import HOSTILE_NAMES

from .conftest import FLOATS, NAME, PLAIN, Rig, dump, output, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dumpstream.archive.rows import StoredPart


def add_row(builder: CaptureBuilder, name: str, part: StoredPart) -> None:
    """Let the capture have a file of any name."""
    builder.write(FileRow(name, part.bytes, 1, Verdict.COMPLETE, [part]).to_line())


def test_files_are_for_the_user_alone_and_nothing_is_left_beside_them(rig: Rig) -> None:
    rig.add(PLAIN, f"0/{NAME}")

    rig.convert()

    assert [path.stat().st_mode & 0o777 for path in (rig.out, rig.out / "0")] == [0o700, 0o700]
    (file,) = (rig.out / "0").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_existing_file_is_not_replaced(rig: Rig) -> None:
    rig.add(PLAIN)
    rig.out.mkdir()
    (rig.out / f"{NAME}.output.0.npy").write_bytes(b"old")

    with pytest.raises(DestinationError, match=r"output\.0\.npy already exists; replace it with --force"):
        rig.convert()

    assert rig.files() == {f"{NAME}.output.0.npy": b"old"}


def test_existing_file_is_replaced_on_demand(rig: Rig) -> None:
    rig.add(PLAIN)
    rig.convert()
    rig.add(stored(FLOATS + 1, "float32"))

    rig.convert(replace=True)

    assert np.array_equal(np.load(rig.out / f"{NAME}.output.0.npy"), FLOATS + 1)


def test_link_planted_in_the_directory_is_not_followed(rig: Rig, tmp_path: Path) -> None:
    rig.add(PLAIN, f"0/{NAME}")
    (tmp_path / "outside").mkdir()
    rig.out.mkdir()
    (rig.out / "0").symlink_to(tmp_path / "outside")

    (converted,) = rig.convert()

    assert "cannot be written under this name" in (converted.problem or "")
    assert list((tmp_path / "outside").iterdir()) == []


def test_of_small_files_that_are_written_together_only_the_one_in_whose_way_something_is_fails(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{step}/Conv2D.conv{number:02}.4.1.1780159660546556" for step in "01" for number in range(50)]
    for name in names:
        rig.add(PLAIN, name)
    (rig.out / f"1/{names[70][2:]}.output.0.npy").mkdir(parents=True)
    calls: list[int] = []
    write = Outputs.write

    def counted(*args: Any) -> Iterator[OutputNameError | None]:
        calls.append(1)
        yield from write(*args)

    monkeypatch.setattr(Outputs, "write", counted)

    converted = rig.convert(replace=True)

    assert [it.input.name for it in converted] == names
    assert [number for number, it in enumerate(converted) if it.problem] == [70]
    assert "cannot be written under this name" in (converted[70].problem or "")
    assert (converted[70].tensors, converted[71].tensors) == (0, 1)
    assert rig.files().keys() == {f"{name}.output.0.npy" for name in names} - {f"{names[70]}.output.0.npy"}
    assert len(calls) <= 4


@pytest.mark.parametrize("length", [240, 300])
def test_long_name_is_shortened_and_written_down(rig: Rig, builder: CaptureBuilder, length: int) -> None:
    name = "A" * (length - 12) + ".a.1.2.34567"
    part = builder.store("files/a.zst", dump(output("float32", [2, 3], 24) * 1001, FLOATS.tobytes() * 1001))
    add_row(builder, f"0/{name}", part)

    rig.convert(builder.finish())

    mapped = dict(csv.reader((rig.out / "0/mapping.csv").read_text().splitlines()))
    assert mapped[next(iter(mapped))].startswith(name)
    files = {path.name for path in (rig.out / "0").iterdir()} - {"mapping.csv"}
    assert mapped.keys() <= files
    assert {mapped.get(file, file) for file in files} == {
        f"{name}.output.{index}.npy" for index in range(1001)
    }


def test_mapping_grows_and_repeats_nothing(rig: Rig, builder: CaptureBuilder) -> None:
    for letter in "ab":
        add_row(builder, letter * 300, builder.store(f"files/{letter}.zst", PLAIN))
    path = builder.finish()
    rig.convert(path)
    first = (rig.out / "mapping.csv").read_text()

    rig.convert(path, replace=True)

    assert (rig.out / "mapping.csv").read_text() == first
    assert first.count("\n") == 2


@pytest.mark.parametrize("name", ["../../escape", "x/../../escape", 'a\nb,"c"', "a\udcff"])
def test_hostile_name_stays_below_the_directory(
    rig: Rig, builder: CaptureBuilder, tmp_path: Path, name: str
) -> None:
    add_row(builder, name, builder.store("files/a.zst", PLAIN))

    (converted,) = rig.convert(builder.finish())

    assert converted.tensors == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "out", "source"]
    assert any(name.endswith(".output.0.npy") for name in rig.files())


def test_inputs_of_one_name_do_not_collide(rig: Rig) -> None:
    first = rig.add(PLAIN, f"a/{NAME}")
    second = rig.add(stored(FLOATS + 1, "float32"), f"b/{NAME}")

    rig.convert(first, second)

    arrays = [np.load(path)[0, 0] for path in sorted(rig.out.glob("*.npy"))]
    assert sorted(arrays) == [0, 1]
    mapped = list(csv.reader((rig.out / "mapping.csv").read_text().splitlines()))
    assert [original for _, original in mapped] == [f"{NAME}.output.0.npy"]


def test_inputs_of_one_name_in_several_captures_do_not_collide(rig: Rig, tmp_path: Path) -> None:
    captures = []
    for number in range(4):
        builder = CaptureBuilder(tmp_path / f"run{number}")
        builder.add(NAME, stored(FLOATS + number, "float32"), Verdict.COMPLETE)
        captures.append(builder.finish())

    rig.convert(*captures, replace=True)

    assert sorted(np.load(path)[0, 0] for path in rig.out.glob("*.npy")) == [0, 1, 2, 3]


_PARTS = st.sampled_from(
    [
        "",
        ".",
        "..",
        "p",
        "p.output.0.npy",
        "mapping.csv",
        "\n",
        "x" * 250,
        hashed_component(".."),
        hashed_name("p"),
    ]
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.sets(st.lists(_PARTS, min_size=1, max_size=3).map("/".join), max_size=8), replace=st.booleans()
)
@example(names={"p", "p.output.0.npy/p", "p/p"}, replace=False)
@example(names={"mapping.csv/p", "x" * 250}, replace=False)
@example(names={*HOSTILE_NAMES}, replace=True)
def test_every_name_gives_a_file_of_its_own(tmp_path: Path, names: set[str], *, replace: bool) -> None:
    with TemporaryDirectory(dir=tmp_path) as root:
        builder, rig = CaptureBuilder(Path(root) / "capture"), Rig(Path(root))
        for number, name in enumerate(names):
            add_row(builder, name, builder.store(f"files/{number}.zst", stored(FLOATS + number, "float32")))

        converted = rig.convert(builder.finish(), replace=replace)

        assert [it.problem for it in converted] == [None] * len(names)
        arrays = [np.load(path)[0, 0] for path in rig.out.rglob("*.npy") if path.is_file()]
        text = {number for number, name in enumerate(names) if name.endswith(".csv")}
        assert sorted(arrays) == sorted(set(range(len(names))) - text)
        assert {path.name for path in Path(root).iterdir()} <= {"capture", "out", "source"}


def test_place_that_is_a_file_is_refused(rig: Rig) -> None:
    rig.out.write_bytes(b"")

    with pytest.raises(DestinationError, match="choose a directory"):
        rig.convert()


def test_full_disk_leaves_nothing_behind(rig: Rig) -> None:
    def fill(_: int) -> int:
        with Path("/dev/full").open("wb", buffering=0) as full:
            return full.write(b"data")

    with (
        Outputs(rig.out, replace=False) as outputs,
        pytest.raises(DestinationError, match="No space left on device"),
        outputs.drafts(("0", "a"), "a") as drafts,
    ):
        drafts.write(".npy", fill)

    assert rig.files() == {}
