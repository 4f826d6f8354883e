"""Dump files of small devices: read as any other, and never trusted."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.format.smalldevice import TYPES, SmallTensor, small_dump, small_tensor

from dumpstream import DumpFile, DumpFormatError
from dumpstream._native import read_header
from dumpstream.cli import main
from dumpstream.format.header import HeaderCollector
from dumpstream.format.verdict import WHOLE_HEADER, Verdict, judge
from dumpstream.statistics.engine import measure_whole
from dumpstream.statistics.files import origin_of, whole_file

if TYPE_CHECKING:
    from pathlib import Path

NAME = "ConcatV2.concat.4.2.1780159660546556"
FIRST = np.linspace(-1, 1, 14652, dtype=np.float16).reshape(1, -1)
SECOND = np.arange(30, dtype=np.float16).reshape(1, -1)
JOINED = np.concatenate([FIRST, SECOND], axis=1)
#: As long, and with the same tensors, as a file that a device wrote.
GENUINE = small_dump([small_tensor(FIRST), small_tensor(SECOND)], [small_tensor(JOINED, name=b"original")])


def test_a_file_like_a_genuine_one_is_read_in_full() -> None:
    with DumpFile.open(GENUINE) as dump:
        dump.read_to_end()
        assert len(GENUINE) == 59060
        assert GENUINE[:32].hex(" ", 4) == (
            "44010000 00000000 5a5a5a5a 00000000 04000000 b4000000 02000000 01000000"
        )
        assert dump.version == "nano 0"
        assert [tensor.label for tensor in dump.tensors] == ["input 0", "input 1", "output 0"]
        assert [str(tensor.dtype.short) for tensor in dump.tensors] == ["float16"] * 3
        assert dump.tensors[2].original_shape == (1, 14682)
        original = dump.tensors[2].original_op
        assert original is not None
        assert (original.name, original.output_index, original.dtype, original.format) == (
            "original",
            5,
            1,
            0,
        )
        arrays_of_it = [dump.array(tensor) for tensor in dump.tensors]
    assert np.array_equal(np.concatenate(arrays_of_it[:2], axis=1), arrays_of_it[2])


def tensors() -> st.SearchStrategy[SmallTensor]:
    shapes = arrays.array_shapes(min_dims=0, max_dims=4, max_side=3)
    kinds = st.sampled_from(sorted(TYPES))
    whole = kinds.flatmap(lambda kind: arrays.arrays(kind, shapes)).map(small_tensor)
    more = st.fixed_dictionaries(
        {"format": st.integers(0, 49), "address": st.sampled_from([0, 4096])},
        optional={"original_shape": st.none() | shapes, "name": st.none() | st.binary(max_size=5)},
    )
    return st.builds(lambda tensor, changes: tensor._replace(**changes), whole, more)


FILES = st.builds(small_dump, st.lists(tensors(), max_size=3), st.lists(tensors(), max_size=3))


@settings(deadline=None)
@given(st.lists(tensors(), max_size=3), st.lists(tensors(), max_size=3))
def test_every_tensor_comes_back(inputs: list[SmallTensor], outputs: list[SmallTensor]) -> None:
    data = small_dump(inputs, outputs)

    with DumpFile.open(data) as dump:
        dump.read_to_end()
        found = [(str(it.io), it.shape, it.format.number, bytes(dump.bytes(it))) for it in dump.tensors]

    assert judge(len(data), read_header(data)) is Verdict.COMPLETE
    assert found == [
        (io, given.shape or (), given.format, given.data)
        for io, group in (("input", inputs), ("output", outputs))
        for given in group
    ]


@settings(deadline=None)
@given(FILES, st.data())
def test_a_file_that_ends_early_is_short(data: bytes, drawn: st.DataObject) -> None:
    length = drawn.draw(st.integers(8, len(data) - 1))

    assert judge(length, read_header(data[:length])) is Verdict.SHORT


@settings(deadline=None)
@given(FILES, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=6))
def test_damage_is_an_error_or_another_file(data: bytes, damage: list[tuple[int, int]]) -> None:
    damaged = bytearray(data)
    for place, value in damage:
        damaged[place % len(damaged)] = value

    whole = read_header(damaged)[0] == WHOLE_HEADER
    try:
        with DumpFile.open(bytes(damaged)) as dump:
            for tensor in dump.tensors:
                assert tensor.size >= 0
    except DumpFormatError:
        assert not whole
    measure_whole([(NAME, bytes(damaged))])


@settings(deadline=None)
@given(FILES, st.integers(1, 64))
def test_pieces_of_any_length_give_the_same_header(data: bytes, step: int) -> None:
    collector = HeaderCollector()
    for start in range(0, len(data), step):
        if collector.add(data[start : start + step]) is not None:
            break

    assert collector.header == DumpFile.open(data).header


@pytest.mark.parametrize(
    ("place", "value"), [(12, 1), (20, 2**32 - 1), (24, 2**32 - 1)], ids=["version", "length", "count"]
)
def test_hostile_numbers_are_damage(place: int, value: int) -> None:
    data = bytearray(GENUINE)
    struct.pack_into("<I", data, place, value)

    assert read_header(data)[0] != WHOLE_HEADER
    with pytest.raises(DumpFormatError):
        DumpFile.open(bytes(data))


def test_sizes_beyond_every_file_do_not_wrap() -> None:
    huge = small_tensor(SECOND)._replace(size=2**64 - 1)
    data = small_dump([huge, huge], [])

    assert read_header(data)[1] == 2**64 - 1
    assert judge(len(data), read_header(data)) is Verdict.SHORT


@pytest.mark.parametrize("number", [5, 99, -1, 2**31 - 1])
def test_an_unknown_type_is_not_mistaken_for_one_of_large_devices(number: int) -> None:
    with DumpFile.open(small_dump([SmallTensor(b"abcd", dtype=number)], [])) as dump:
        assert dump.tensors[0].dtype.short.startswith("unknown_")
        assert bytes(dump.array(dump.tensors[0])) == b"abcd"


@pytest.mark.parametrize(
    ("number", "short"), [(28, "undefined"), (23, "resource"), (30, "uint1"), (27, "bfloat16")]
)
def test_types_are_numbered_as_the_graph_engine_does(number: int, short: str) -> None:
    with DumpFile.open(small_dump([SmallTensor(b"\0" * 8, dtype=number)], [])) as dump:
        assert dump.tensors[0].dtype.short == short


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(GENUINE)
    return path


def test_show_describes_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["show", str(path)])

    shown = capsys.readouterr().out
    assert code == 0
    assert "3 tensors, version nano 0" in shown
    assert "output 0: float16 [1, 14682]" in shown


def test_convert_writes_its_tensors(path: Path, tmp_path: Path) -> None:
    code = main(["convert", str(path), "--out", str(tmp_path / "npy")])

    assert code == 0
    assert np.array_equal(np.load(tmp_path / "npy" / f"{NAME}.output.0.npy"), JOINED)


def test_stats_measures_its_tensors(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["stats", str(path), "--select", "op_name,io,count,max"])

    assert code == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert rows == [
        ["concat", "input", "14652", "1"],
        ["concat", "input", "30", "29"],
        ["concat", "output", "14682", "29"],
    ]


@settings(deadline=None)
@given(FILES)
def test_native_rows_are_those_of_one_file_by_itself(data: bytes) -> None:
    measured = measure_whole([(NAME, data)]).by_file()

    # As text, since NaN equals nothing.
    assert repr(measured.get(0, [])) == repr([*whole_file(origin_of(NAME), memoryview(data))])


def test_native_code_measures_them_many_at_a_time() -> None:
    assert measure_whole([(NAME, GENUINE)]).numbers == [0]
