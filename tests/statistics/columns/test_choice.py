"""Which files are measured together, and the native call that does it."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.conftest import field

from dumpstream import _native
from dumpstream.sinks import WholeFile
from dumpstream.statistics.engine import measure_whole

from .conftest import DTYPES, FLOAT8, Tensor, dump, one_by_one, segment, together

PLAIN = Tensor("output", DTYPES[0], 2, (2,), (2,), struct.pack("<2f", 1, 2))


def is_measured(data: Any, name: str = "Add.add.1.2.3") -> bool:
    return measure_whole([WholeFile(name, data)]).numbers == [0]


@pytest.mark.parametrize(
    ("data", "measured"),
    [
        (dump([PLAIN]), True),
        (dump([PLAIN._replace(shape=())]), True),
        (dump([PLAIN._replace(shape=(2**64 - 1, 3))]), True),
        (dump([PLAIN])[:-1], False),
        (dump([PLAIN]) + b"\0", False),
        (dump([PLAIN._replace(shape=(3,))]), False),
        (dump([PLAIN._replace(shape=(2**63, 2, 0))]), False),
        (dump([PLAIN, PLAIN._replace(dtype=FLOAT8)]), False),
        (dump([PLAIN._replace(data=bytes(256 << 10), shape=(1 << 16,))]), False),
        (dump([]), False),
        (b"", False),
    ],
    ids=[
        *("plain", "no-shape", "dynamic", "cut", "too-long", "misfit", "huge-shape", "by-table", "large"),
        *("no-tensor", "empty"),
    ],
)
def test_files_that_are_exactly_what_they_promise_are_measured(data: bytes, *, measured: bool) -> None:
    assert is_measured(data) == measured
    if measured:
        file = WholeFile("Add.add.1.2.3", data)
        assert repr(together(file)) == repr(one_by_one(file))


def test_a_name_of_statistics_text_is_believed() -> None:
    assert not is_measured(dump([PLAIN]), "Add.add.1.2.3.csv")


def test_any_contiguous_buffer_is_a_file() -> None:
    data = dump([PLAIN._replace(data=bytes(64), shape=(16,))])
    padded = dump([PLAIN._replace(data=bytes(64), padding=bytes(-len(data) % 4), shape=(16,))])

    file = WholeFile("Add.add.1.2.3", memoryview(padded).cast("I"))

    assert repr(together(file)) == repr(together(WholeFile("Add.add.1.2.3", padded)))


@pytest.mark.parametrize("skip", [False, True], ids=["dumped", "left-out"])
def test_a_tensor_without_address_may_lack_its_bytes(*, skip: bool) -> None:
    unknown = PLAIN._replace(io="input", address=0, dtype=(99, "unknown_99", None) if skip else DTYPES[0])
    file = WholeFile("Add.add.1.2.3", dump([unknown, PLAIN], skip=skip))

    first, second = together(file)

    assert repr([first, second]) == repr(one_by_one(file))
    assert (first["bytes"], first["hash"] is None) == ((0, True) if skip else (8, False))
    assert second["max"] == 2.0


def test_a_size_of_more_than_63_bits_is_unknown() -> None:
    size = field(5, 2**63)
    absent = field(4, field(1, 1) + size)
    message = field(1, "2.0") + absent + segment(PLAIN)
    file = WholeFile("Add.add.1.2.3", struct.pack("<Q", len(message)) + message + PLAIN.data)

    first, _ = together(file)

    assert first["size"] is None
    assert repr(together(file)) == repr(one_by_one(file))


def test_the_header_names_the_operator_if_the_file_name_does_not() -> None:
    data = dump([PLAIN], op_name="model/conv1")

    named, nameless, unnamed = together(
        WholeFile("Add.add.1.2.3", data), WholeFile("x", data), WholeFile("y", dump([PLAIN]))
    )

    assert (named["op_name"], nameless["op_name"], unnamed["op_name"]) == ("add", "model/conv1", None)


def test_a_type_that_cannot_be_read_so_is_refused() -> None:
    for reading in ((64, "f4", 1), (1, "f5", 1), (1, "byte", 1), (1, "f4", 3), (1, "f4", 0)):
        with pytest.raises(ValueError, match="cannot be read as"):
            _native.measure_files([], [reading])


def test_what_is_no_buffer_is_refused_and_the_others_are_let_go() -> None:
    data = bytearray(dump([PLAIN]))

    with pytest.raises(TypeError):
        _native.measure_files([data, None], [(1, "f4", 1)])  # type: ignore[list-item]

    data.append(0)  # raises if somebody still had a view
