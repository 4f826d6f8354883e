"""Dump files converted to others; their headers are written here byte by byte."""

from __future__ import annotations

import csv
import os
import struct
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import field

from dumpstream._errors import DestinationError
from dumpstream.conversion import ConversionOptions, Converted, convert
from dumpstream.dtypes import DTYPES
from dumpstream.formats import FORMATS
from dumpstream.inputs import find_inputs
from dumpstream.layouts import from_layout
from dumpstream.outputs import Outputs
from dumpstream.rows import file_row
from dumpstream.tensorfiles import FileFormat
from dumpstream.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from tests.conftest import CaptureBuilder

    from dumpstream.rows import StoredPart

NAME = "Conv2D.conv1.4.65535.1780159660546556"
_NUMBERS = {dtype.short: number for number, dtype in DTYPES.items()}
_FORMATS = {form.name: number for number, form in FORMATS.items()}


def output(
    dtype: str, shape: Sequence[int], size: int, *, form: str = "ND", address: int = 1, **more: Any
) -> bytes:
    """An output; *more* are its original_shape and sub_format."""
    original = b"".join(field(1, dim) for dim in more.get("original_shape", ()))
    return field(
        3,
        field(1, _NUMBERS[dtype])
        + field(2, _FORMATS[form])
        + field(3, b"".join(field(1, dim) for dim in shape))
        + field(6, size)
        + field(7, original)
        + field(8, more.get("sub_format", 0))
        + field(9, address),
    )


def dump(message: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(message)) + message + data


def stored(array: NDArray[Any], dtype: str, **more: Any) -> bytes:
    """A dump file with one output."""
    return dump(output(dtype, array.shape, array.nbytes, **more), array.tobytes())


def add_row(builder: CaptureBuilder, name: str, part: StoredPart) -> None:
    """Let the capture have a file of any name."""
    builder.write(file_row(name, part.bytes, 1, Verdict.COMPLETE, [part]))


FLOATS = np.arange(6, dtype="<f4").reshape(2, 3)
PLAIN = stored(FLOATS, "float32")


class Rig:
    def __init__(self, directory: Path) -> None:
        self.source, self.out = directory / "source", directory / "out"
        self.source.mkdir()

    def add(self, data: bytes | bytearray, name: str = NAME) -> Path:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def convert(self, *paths: Path, replace: bool = False, **options: Any) -> list[Converted]:
        with Outputs(self.out, replace=replace) as outputs:
            found = find_inputs(paths or [self.source])
            return list(convert(found, outputs, ConversionOptions(**options)))

    def files(self) -> dict[str, bytes]:
        found = [path for path in self.out.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.out)): path.read_bytes() for path in found}

    def array(self, data: bytes, **options: Any) -> NDArray[Any]:
        """Convert a file with one output, and load it."""
        self.add(data)
        (converted,) = self.convert(**options)
        assert converted.problem is None
        array: NDArray[Any] = np.load(self.out / f"{NAME}.output.0.npy")
        return array


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


class TestElements:
    @pytest.mark.parametrize(
        "short", ["float32", "float16", "float64", "int8", "uint8", "int16", "int64", "uint64", "complex64"]
    )
    def test_types_that_numpy_knows_are_kept(self, rig: Rig, short: str) -> None:
        array = np.arange(6).astype(short).reshape(3, 2)

        loaded = rig.array(stored(array, short))

        assert loaded.dtype == array.dtype
        assert np.array_equal(loaded, array)

    @pytest.mark.parametrize(
        ("short", "numpy"),
        [
            ("bfloat16", ml_dtypes.bfloat16),
            ("float8_e5m2", ml_dtypes.float8_e5m2),
            ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
            ("float8_e8m0", ml_dtypes.float8_e8m0fnu),
        ],
    )
    def test_narrow_floats_become_float32(self, rig: Rig, short: str, numpy: Any) -> None:
        array = np.array([0.5, 1, 2, 4]).astype(numpy)

        loaded = rig.array(stored(array, short))

        assert loaded.dtype == np.float32
        assert loaded.tolist() == [0.5, 1, 2, 4]

    def test_more_than_a_block_of_narrow_floats_is_converted(self, rig: Rig) -> None:
        array = (np.arange(700_001) % 256).astype(ml_dtypes.bfloat16)

        loaded = rig.array(stored(array, "bfloat16"))

        assert np.array_equal(loaded, array.astype(np.float32))

    @pytest.mark.parametrize(
        ("short", "data", "expected"),
        [
            ("int4", b"\x71\xf8", np.array([1, 7, -8, -1], np.int8)),
            ("uint1", b"\x05", np.array([1, 0, 1, 0], np.uint8)),
            ("int2", b"\x1b", np.array([-1, -2, 1, 0], np.int8)),
            ("float4_e2m1", b"\x21\x97", np.array([0.5, 1, 6, -0.5], np.float32)),
            ("float6_e2m3", bytes([8, 16, 24, 40]), np.array([1, 2, 4, -1], np.float32)),
            ("hifloat8", b"\x08\x88\x00\x6f", np.array([1, -1, 0, np.inf], np.float32)),
            ("bool", b"\x00\x01\x02\x00", np.array([False, True, True, False])),
            ("complex32", np.arange(8, dtype="<f2").tobytes(), np.array([1j, 2 + 3j, 4 + 5j, 6 + 7j], "<c8")),
            ("string", b"abcd", np.frombuffer(b"abcd", np.uint8)),
        ],
    )
    def test_coded_elements_become_what_they_stand_for(
        self, rig: Rig, short: str, data: bytes, expected: NDArray[Any]
    ) -> None:
        loaded = rig.array(dump(output(short, [4], len(data)), data))

        assert loaded.dtype == expected.dtype
        assert np.array_equal(loaded, expected)

    def test_data_is_cut_to_the_shape(self, rig: Rig) -> None:
        loaded = rig.array(dump(output("float32", [2, 3], 100), FLOATS.tobytes().ljust(100, b"x")))

        assert np.array_equal(loaded, FLOATS)

    def test_empty_tensor_gives_an_empty_array(self, rig: Rig) -> None:
        assert rig.array(stored(np.zeros((0, 3), "<f4"), "float32")).shape == (0, 3)

    def test_bin_has_the_elements_and_nothing_else(self, rig: Rig) -> None:
        rig.add(stored(FLOATS.astype(ml_dtypes.bfloat16), "bfloat16"))

        rig.convert(format=FileFormat.BIN)

        assert rig.files() == {f"{NAME}.output.0.bin": FLOATS.tobytes()}

    @pytest.mark.parametrize(
        ("array", "short", "text"),
        [
            (np.array([[0.1, 2.5], [np.nan, -np.inf]], "<f4"), "float32", "0.1,2.5\nnan,-inf\n"),
            (np.array([[[1, -2, 3]], [[4, 5, 6]]], "<i4"), "int32", "1,-2,3\n4,5,6\n"),
            (np.array([0, 1], "?"), "bool", "0,1\n"),
            (np.array([2**64 - 1], "<u8"), "uint64", "18446744073709551615\n"),
            (np.zeros(0, "<f4").reshape(2, 0), "float32", "\n"),
        ],
    )
    def test_csv_has_a_line_for_each_run_of_the_last_axis(
        self, rig: Rig, array: NDArray[Any], short: str, text: str
    ) -> None:
        rig.add(stored(array, short))

        rig.convert(format=FileFormat.CSV)

        assert rig.files() == {f"{NAME}.output.0.csv": text.encode()}


class TestTensors:
    def test_every_kind_of_tensor_has_its_own_name(self, rig: Rig) -> None:
        sizes = field(3, 4)
        message = field(4, field(1, 1) + field(5, 4)) + output("float32", [1], 4) * 2
        rig.add(dump(message + field(5, sizes) + field(8, sizes), bytes(20)))

        (converted,) = rig.convert()

        assert converted.tensors == 5
        names = ["buffer.0", "input.0", "output.0", "output.1", "space.0"]
        assert sorted(rig.files()) == [f"{NAME}.{name}.npy" for name in names]

    def test_tensor_without_address_has_no_file(self, rig: Rig) -> None:
        message = output("float32", [2, 3], 24, address=0) + output("float32", [2, 3], 24)
        rig.add(dump(message, FLOATS.tobytes()))

        (converted,) = rig.convert()

        assert converted.problem is None
        assert sorted(rig.files()) == [f"{NAME}.output.1.npy"]

    def test_tensors_before_the_end_of_a_file_cut_short_are_written(self, rig: Rig) -> None:
        whole = dump(output("float32", [2, 3], 24) * 3, FLOATS.tobytes() * 3)
        rig.add(whole[:-30])

        (converted,) = rig.convert()

        assert sorted(rig.files()) == [f"{NAME}.output.0.npy"]
        assert converted.problem is not None
        assert converted.problem.startswith("ends inside output 1, which needs 6 bytes more")
        assert converted.problem.endswith(", and 1 more")

    def test_shape_that_does_not_fit_is_a_problem_of_that_tensor(self, rig: Rig) -> None:
        rig.add(dump(output("float32", [9, 9], 24) + output("float32", [2, 3], 24), FLOATS.tobytes() * 2))

        (converted,) = rig.convert()

        assert sorted(rig.files()) == [f"{NAME}.output.1.npy"]
        assert "output 0" in (converted.problem or "")

    def test_file_longer_than_its_header_says_is_written_and_told(self, rig: Rig) -> None:
        rig.add(PLAIN + b"more")

        (converted,) = rig.convert()

        assert sorted(rig.files()) == [f"{NAME}.output.0.npy"]
        assert "4 bytes more than its header says" in (converted.problem or "")

    def test_file_of_version_1_is_converted(self, rig: Rig) -> None:
        rig.add(field(1, b"1.0") + field(3, field(1, 1) + field(5, FLOATS.tobytes())))

        rig.convert()

        assert np.load(rig.out / f"{NAME}.output.0.npy").tolist() == [0, 1, 2, 3, 4, 5]

    @given(st.data())
    @settings(max_examples=150, deadline=None)
    def test_damage_is_a_problem_of_the_file_and_never_an_error(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        rig = Rig(tmp_path_factory.mktemp("damaged"))
        blocked = np.zeros((1, 1, 1, 1, 8), "<f4")
        original = bytearray(stored(blocked, "float32", form="NC1HWC0", original_shape=(1, 5, 1, 1)))
        for _ in range(data.draw(st.integers(1, 4))):
            original[data.draw(st.integers(0, len(original) - 1))] = data.draw(st.integers(0, 255))
        path = rig.add(original[: data.draw(st.integers(0, len(original)))])

        (converted,) = rig.convert(path, layout="NCHW", workers=1)

        assert converted.problem is not None or len(rig.files()) == converted.tensors


class TestLayouts:
    @pytest.mark.parametrize("original", ["NCHW", "NHWC"])
    def test_blocked_tensor_is_rearranged_by_its_original_shape(self, rig: Rig, original: str) -> None:
        nchw = np.arange(2 * 19 * 3 * 4, dtype="<f2").reshape(2, 19, 3, 4)
        blocked = from_layout(nchw, "NCHW", "NC1HWC0")
        shape = {"NCHW": nchw.shape, "NHWC": (2, 3, 4, 19)}[original]

        loaded = rig.array(stored(blocked, "float16", form="NC1HWC0", original_shape=shape), layout="NCHW")

        assert np.array_equal(loaded, nchw)

    def test_groups_come_from_the_sub_format(self, rig: Rig) -> None:
        weights = np.arange(12 * 5 * 2 * 3, dtype="<f2").reshape(12, 5, 2, 3)
        blocked = from_layout(weights, "NCHW", "FRACTAL_Z", groups=4)

        loaded = rig.array(
            stored(blocked, "float16", form="FRACTAL_Z", original_shape=weights.shape, sub_format=4),
            layout="NCHW",
        )

        assert np.array_equal(loaded, weights)

    def test_shape_that_is_given_replaces_the_original_one(self, rig: Rig) -> None:
        matrix = np.arange(20 * 35, dtype="<f2").reshape(20, 35)

        loaded = rig.array(
            stored(from_layout(matrix, "ND", "FRACTAL_NZ"), "float16", form="FRACTAL_NZ"),
            layout="ND",
            shape=(20, 35),
        )

        assert np.array_equal(loaded, matrix)

    def test_narrow_elements_are_rearranged_by_their_own_width(self, rig: Rig) -> None:
        nchw = (np.arange(70 * 2 * 2) % 7).astype(np.int8).reshape(1, 70, 2, 2)
        codes = from_layout(nchw, "NCHW", "NC1HWC0", c0=64).reshape(-1)
        data = (codes[::2] | codes[1::2] << 4).astype(np.uint8).tobytes()
        message = output("int4", [codes.size], len(data), form="NC1HWC0", original_shape=nchw.shape)

        loaded = rig.array(dump(message, data), layout="NHWC")

        assert np.array_equal(loaded, nchw.transpose(0, 2, 3, 1))

    @pytest.mark.parametrize(("form", "shape"), [("ND", (2, 3)), ("NCHW", (6,)), ("NHWC", (1, 1, 2, 3))])
    def test_tensor_without_axes_to_rearrange_is_written_as_it_lies(
        self, rig: Rig, form: str, shape: tuple[int, ...]
    ) -> None:
        loaded = rig.array(stored(FLOATS.reshape(shape), "float32", form=form), layout="NHWC")

        assert np.array_equal(loaded, FLOATS.reshape(shape))

    def test_tensor_that_cannot_be_rearranged_is_left_out_and_told(self, rig: Rig) -> None:
        message = output("float32", [2, 3], 24, form="FRACTAL_ZZ") + output("float32", [2, 3], 24)
        rig.add(dump(message, FLOATS.tobytes() * 2))

        (converted,) = rig.convert(layout="NCHW")

        assert sorted(rig.files()) == [f"{NAME}.output.1.npy"]
        assert "output 0: FRACTAL_ZZ cannot be rearranged to NCHW" in (converted.problem or "")

    @pytest.mark.parametrize("shape", [(2**64 - 1, 0, 5), (0, 2**63)])
    def test_original_shape_that_no_array_has_is_a_problem_of_that_tensor(
        self, rig: Rig, shape: tuple[int, ...]
    ) -> None:
        rig.add(stored(np.zeros(0, "<f4"), "float32", form="FRACTAL_NZ", original_shape=shape))

        (converted,) = rig.convert(layout="ND")

        assert (converted.problem or "").startswith("output 0: ")


class TestInputs:
    def test_directories_keep_their_shape(self, rig: Rig) -> None:
        rig.add(PLAIN, "0/1/A.a.1.2.3")
        rig.add(zstandard.compress(PLAIN), "0/B.b.1.2.3.zst")

        converted = rig.convert()

        assert [item.problem for item in converted] == [None, None]
        assert sorted(rig.files()) == ["0/1/A.a.1.2.3.output.0.npy", "0/B.b.1.2.3.output.0.npy"]

    def test_what_is_no_dump_file_is_skipped_in_a_directory(self, rig: Rig) -> None:
        rig.add(b"Input/Output,Index", "A.a.1.2.3.csv")
        rig.add(b"{}", "notes.json")
        rig.add(PLAIN, ".hidden")
        (rig.source / "link").symlink_to(rig.add(PLAIN))

        converted = rig.convert()

        assert {item.input.name: item.skipped for item in converted} == {
            NAME: False,
            "A.a.1.2.3.csv": True,
            "notes.json": True,
        }
        assert all(item.problem is None for item in converted)

    def test_file_with_the_name_of_a_dump_is_damaged_if_it_is_none(self, rig: Rig) -> None:
        rig.add(b"garbage")

        (converted,) = rig.convert()

        assert not converted.skipped
        assert "no dump file" in (converted.problem or "")

    def test_file_that_was_asked_for_is_not_skipped(self, rig: Rig) -> None:
        (converted,) = rig.convert(rig.add(b"{}", "notes.json"))

        assert not converted.skipped
        assert converted.problem is not None

    def test_name_that_cann_shortened_is_looked_up(self, rig: Rig) -> None:
        rig.add(PLAIN, "17213")
        rig.add(f"17213,{NAME}\n".encode(), "mapping.csv")

        rig.convert()

        assert sorted(rig.files()) == [f"{NAME}.output.0.npy"]

    def test_results_come_in_the_order_of_the_inputs(self, rig: Rig) -> None:
        names = [f"A.a.{number}.2.3" for number in range(100, 300)]
        for name in names:
            rig.add(PLAIN, name)

        converted = rig.convert(workers=4)

        assert [item.input.name for item in converted] == names
        assert len(rig.files()) == 200

    def test_capture_is_converted_below_its_names(self, rig: Rig, builder: CaptureBuilder) -> None:
        builder.add(f"/dump//0/{NAME}", PLAIN, Verdict.COMPLETE)
        builder.add("A.a.1.2.3.csv", b"text", Verdict.UNPARSED)

        converted = rig.convert(builder.finish())

        assert sorted(rig.files()) == [f"dump/0/{NAME}.output.0.npy"]
        assert [item.skipped for item in converted] == [False, True]

    def test_nothing_of_a_file_that_does_not_match_its_checksum_is_written(
        self, rig: Rig, builder: CaptureBuilder
    ) -> None:
        builder.add(NAME, stored(np.frombuffer(os.urandom(1000), np.uint8), "uint8"), Verdict.COMPLETE)
        damaged = bytearray((builder.path / f"files/{NAME}.zst").read_bytes())
        damaged[500] ^= 1
        (builder.path / f"files/{NAME}.zst").write_bytes(damaged)

        (converted,) = rig.convert(builder.finish())

        assert rig.files() == {}
        assert "does not match its checksum" in (converted.problem or "")

    def test_file_that_came_incomplete_is_told_with_its_verdict(
        self, rig: Rig, builder: CaptureBuilder
    ) -> None:
        builder.add(NAME, PLAIN[:-1], Verdict.SHORT)
        builder.add("B.b.1.2.3", PLAIN, Verdict.NEVER_CLOSED)

        first, second = rig.convert(builder.finish())

        assert (first.problem or "").startswith("is not whole (short); ends inside output 0")
        assert second.problem == "is not whole (never_closed)"
        assert sorted(rig.files()) == ["B.b.1.2.3.output.0.npy"]


class TestOutputs:
    def test_files_are_for_the_user_alone_and_nothing_is_left_beside_them(self, rig: Rig) -> None:
        rig.add(PLAIN, f"0/{NAME}")

        rig.convert()

        assert [path.stat().st_mode & 0o777 for path in (rig.out, rig.out / "0")] == [0o700, 0o700]
        (file,) = (rig.out / "0").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600

    def test_existing_file_is_not_replaced(self, rig: Rig) -> None:
        rig.add(PLAIN)
        rig.out.mkdir()
        (rig.out / f"{NAME}.output.0.npy").write_bytes(b"old")

        with pytest.raises(DestinationError, match=r"output\.0\.npy already exists; replace it with --force"):
            rig.convert()

        assert rig.files() == {f"{NAME}.output.0.npy": b"old"}

    def test_existing_file_is_replaced_on_demand(self, rig: Rig) -> None:
        rig.add(PLAIN)
        rig.convert()
        rig.add(stored(FLOATS + 1, "float32"))

        rig.convert(replace=True)

        assert np.array_equal(np.load(rig.out / f"{NAME}.output.0.npy"), FLOATS + 1)

    def test_link_planted_in_the_directory_is_not_followed(self, rig: Rig, tmp_path: Path) -> None:
        rig.add(PLAIN, f"0/{NAME}")
        (tmp_path / "outside").mkdir()
        rig.out.mkdir()
        (rig.out / "0").symlink_to(tmp_path / "outside")

        with pytest.raises(DestinationError):
            rig.convert()

        assert list((tmp_path / "outside").iterdir()) == []

    @pytest.mark.parametrize("length", [240, 300])
    def test_long_name_is_shortened_and_written_down(
        self, rig: Rig, builder: CaptureBuilder, length: int
    ) -> None:
        name = "A" * (length - 12) + ".a.1.2.34567"
        part = builder.store(
            "files/a.zst", dump(output("float32", [2, 3], 24) * 1001, FLOATS.tobytes() * 1001)
        )
        add_row(builder, f"0/{name}", part)

        rig.convert(builder.finish())

        mapped = dict(csv.reader((rig.out / "0/mapping.csv").read_text().splitlines()))
        assert mapped[next(iter(mapped))].startswith(name)
        files = {path.name for path in (rig.out / "0").iterdir()} - {"mapping.csv"}
        assert mapped.keys() <= files
        assert {mapped.get(file, file) for file in files} == {
            f"{name}.output.{index}.npy" for index in range(1001)
        }

    def test_mapping_grows_and_repeats_nothing(self, rig: Rig, builder: CaptureBuilder) -> None:
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
        self, rig: Rig, builder: CaptureBuilder, tmp_path: Path, name: str
    ) -> None:
        add_row(builder, name, builder.store("files/a.zst", PLAIN))

        (converted,) = rig.convert(builder.finish())

        assert converted.tensors == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "out", "source"]
        assert any(name.endswith(".output.0.npy") for name in rig.files())

    def test_inputs_of_one_name_do_not_collide(self, rig: Rig) -> None:
        first = rig.add(PLAIN, f"a/{NAME}")
        second = rig.add(stored(FLOATS + 1, "float32"), f"b/{NAME}")

        rig.convert(first, second)

        arrays = [np.load(path)[0, 0] for path in sorted(rig.out.glob("*.npy"))]
        assert sorted(arrays) == [0, 1]
        mapped = list(csv.reader((rig.out / "mapping.csv").read_text().splitlines()))
        assert [original for _, original in mapped] == [f"{NAME}.output.0.npy"]

    def test_place_that_is_a_file_is_refused(self, rig: Rig) -> None:
        rig.out.write_bytes(b"")

        with pytest.raises(DestinationError, match="choose a directory"):
            rig.convert()

    def test_full_disk_leaves_nothing_behind(self, rig: Rig) -> None:
        def fill(_: int) -> int:
            with Path("/dev/full").open("wb", buffering=0) as full:
                return full.write(b"data")

        with (
            Outputs(rig.out, replace=False) as outputs,
            outputs.folder() as folder,
            pytest.raises(DestinationError, match="No space left on device"),
            folder.drafts(("0", "a"), "a") as drafts,
        ):
            drafts.write(".npy", fill)

        assert rig.files() == {}


@pytest.mark.parametrize("file_format", FileFormat)
@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "float6_e3m2"])
def test_a_compressed_file_gives_what_the_plain_one_does(
    rig: Rig, dtype: str, file_format: FileFormat
) -> None:
    shape, bits = (7, 300_001), DTYPES[_NUMBERS[dtype]].bits
    raw = np.random.default_rng(1).bytes(-(-7 * 300_001 * bits // 8))
    data = dump(output(dtype, shape, len(raw)), raw)
    rig.add(data, "plain.a.1.2.3")
    rig.add(zstandard.compress(data, 1), "small.a.1.2.3.zst")

    assert [it.problem for it in rig.convert(format=file_format)] == [None, None]

    plain, small = (data for _, data in sorted(rig.files().items()))
    assert plain == small


def test_what_is_compressed_does_not_have_to_fit_into_memory(rig: Rig) -> None:
    size = 64 << 20
    data = dump(output("float64", [size // 8], size), bytes(size))
    rig.add(zstandard.compress(data, 1), f"{NAME}.zst")
    del data

    tracemalloc.start()
    rig.convert()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < size // 4
    assert (rig.out / f"{NAME}.output.0.npy").stat().st_size == size + 128


def test_a_compressed_tensor_that_ends_early_is_left_out(rig: Rig) -> None:
    message = output("float32", [2, 3], 24) + output("float32", [9], 36)
    rig.add(zstandard.compress(dump(message, FLOATS.tobytes() + bytes(20))), f"{NAME}.zst")

    (converted,) = rig.convert()

    assert converted.problem is not None
    assert "ends inside output 1" in converted.problem
    assert [path.name for path in rig.out.iterdir()] == [f"{NAME}.output.0.npy"]
