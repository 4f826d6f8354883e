"""Small plain dump files, which native code converts: it makes the same files as Python does."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.conftest import field
from typing_extensions import Buffer

from dumpstream._errors import DestinationError
from dumpstream._native import new_npy_files
from dumpstream.analysis import conversion, npyfiles
from dumpstream.analysis.tensorfiles import npy_header
from dumpstream.format.dtypes import DTYPES, DYNAMIC
from dumpstream.reading.outputs import Outputs

from .conftest import FLOATS, NAME, PLAIN, Rig, dump, output

DIMS = st.sampled_from([0, 1, 2, 3, 7, 1000, 2**40, 2**63, DYNAMIC])
TENSORS = st.lists(
    st.tuples(
        st.sampled_from([3, 4, 5, 8]),  # output, input, buffer, space
        st.sampled_from([*DTYPES, 63, 64, 99]),
        st.lists(DIMS, max_size=4),
        st.integers(0, 40),  # bytes
        st.booleans(),  # has an address
    ),
    max_size=4,
)


def segment(kind: int, dtype: int, shape: list[int], size: int, *, address: bool) -> bytes:
    if kind in {5, 8}:
        return field(kind, field(3, size))
    dims = field(3, b"".join(field(1, dim) for dim in shape))
    numbers = (6, 9) if kind == 3 else (5, 8)
    return field(kind, field(1, dtype) + dims + field(numbers[0], size) + field(numbers[1], int(address)))


def outcome(directory: Path, data: list[bytes], *, native: bool) -> tuple[object, dict[str, bytes]]:
    """Return the results of a conversion and the files that it made, by native code or without."""
    rig = Rig(directory / str(native))
    for number, content in enumerate(data):
        rig.add(content, f"{NAME}{number}")
    chosen = npyfiles.write_npy_files if native else lambda batch, *_: [None] * len(batch)
    with mock.patch.object(conversion, "write_npy_files", chosen):
        results = rig.convert()
    return [it._replace(input=None) for it in results], rig.files()  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(
    files=st.lists(st.tuples(TENSORS, st.binary(max_size=100), st.sampled_from([0, 0, 0, -1, 1])), max_size=3)
)
@example(files=[([(3, 1, [2, 3], 24, True), (4, 27, [2], 4, True)], b"", 0)])  # bfloat16 becomes float32
@example(files=[([(3, 1, [2], 24, True), (3, 2, [9, 9], 24, True)], b"", 0)])  # padded, and too small
@example(files=[([(3, 1, [0, 2**63], 0, True)], b"", 0)])
def test_both_ways_make_the_same_files(files: list[tuple[list[tuple[int, ...]], bytes, int]]) -> None:
    data = []
    for tensors, noise, surplus in files:
        message = b"".join(segment(*it[:-1], address=bool(it[-1])) for it in tensors)  # type: ignore[arg-type]
        size = sum(it[3] for it in tensors if it[-1] or it[0] in {5, 8} or not any(t[-1] for t in tensors))
        content = (noise + bytes(range(200)))[:size].ljust(size, b"\x7f")
        whole = dump(message, content)
        data.append(whole + b"\0" if surplus > 0 else whole[: len(whole) + surplus])
    with TemporaryDirectory() as directory:
        for native in (True, False):
            (Path(directory) / str(native)).mkdir()
        assert outcome(Path(directory), data, native=True) == outcome(Path(directory), data, native=False)


@pytest.mark.parametrize("dims", [(), (1,), (5,), (12345,), (2, 3), (1,) * 32, (20_000, 1)])
@pytest.mark.parametrize("name", ["float32", "int8", "complex64"])
def test_the_header_is_that_of_numpy(tmp_path: Path, dims: tuple[int, ...], name: str) -> None:
    dtype = np.dtype(name)
    number = next(it for it, known in DTYPES.items() if known.short == name)
    count = int(np.prod(dims)) if dims else 3
    size = count * dtype.itemsize
    data = dump(segment(3, number, list(dims), size, address=True), bytes(size))
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        (result,) = new_npy_files(fd, [data], ["x"], npyfiles._TYPES)
    finally:
        os.close(fd)
    written = (tmp_path / "x.output.0.npy").read_bytes()
    assert written == npy_header(dtype, dims or (count,)) + bytes(size)
    assert result == (1, len(written), 0, 0, 0)


def test_a_file_in_the_way_is_the_one_that_is_named(rig: Rig) -> None:
    rig.add(dump(output("float32", [2, 3], 24) * 2, FLOATS.tobytes() * 2))
    rig.out.mkdir()
    (rig.out / f"{NAME}.output.1.npy").write_bytes(b"mine")

    with pytest.raises(DestinationError, match=r"output\.1\.npy already exists"):
        rig.convert()
    assert (rig.out / f"{NAME}.output.1.npy").read_bytes() == b"mine"


def test_a_link_in_the_way_is_not_followed(rig: Rig) -> None:
    rig.add(PLAIN)
    rig.out.mkdir()
    (rig.out / f"{NAME}.output.0.npy").symlink_to("elsewhere")

    with pytest.raises(DestinationError):
        rig.convert()
    assert not (rig.out / "elsewhere").exists()


def test_a_name_that_the_file_system_refuses_stops_no_other_file(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        rig.add(PLAIN, f"{name}.{NAME}")
    calls: list[int] = []

    def refused(fd: int, files: list[str | Buffer], stems: list[str], types: object) -> list[object]:
        calls.append(len(stems))
        if len(calls) == 1:
            return [*new_npy_files(fd, files[:1], stems[:1], npyfiles._TYPES), (0, 0, errno.EILSEQ, 1, 0)]
        return [*new_npy_files(fd, files, stems, npyfiles._TYPES)]

    monkeypatch.setattr(npyfiles, "new_npy_files", refused)

    first, second, third = rig.convert()

    assert calls == [3, 1]
    assert (first.tensors, second.tensors, third.tensors) == (1, 0, 1)
    assert "cannot be written under this name" in (second.problem or "")


def test_a_directory_gets_files_as_soon_as_it_is_there(rig: Rig) -> None:
    for number in range(300):
        rig.add(PLAIN, f"deep/down/{NAME}{number}")

    assert sum(it.tensors for it in rig.convert(workers=1)) == 300
    assert len(rig.files()) == 300


def test_a_system_without_nameless_files_has_another_way(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.add(PLAIN)
    monkeypatch.setattr(npyfiles, "new_npy_files", lambda *_: [None])

    (converted,) = rig.convert()

    assert converted.tensors == 1
    assert len(rig.files()) == 1


def test_arguments_are_checked(tmp_path: Path) -> None:
    with Outputs(tmp_path / "out", replace=False) as outputs, outputs.existing(()) as fd:
        assert fd is not None
        for stems in ([], ["x" * 221], [b"x"]):
            with pytest.raises(ValueError, match="stem"):
                new_npy_files(fd, [PLAIN], stems, [])  # type: ignore[arg-type]
        for kind in ((64, "<f4", 4, True), (1, "<f4", 0, True), (1, "too long", 4, True)):
            with pytest.raises(ValueError, match="data type"):
                new_npy_files(fd, [], [], [kind])
        assert new_npy_files(fd, [PLAIN, struct.pack("<Q", 9)], ["a", "b"], []) == [None, None]
        with outputs.existing(("missing",)) as missing:
            assert missing is None
