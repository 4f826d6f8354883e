"""Files named as CANN's own tool names them."""

from __future__ import annotations

import csv
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.conftest import field
from tests.format.blocked import block

from dumpstream.analysis.tensorfiles import FileFormat
from dumpstream.analysis.tensornames import Naming
from dumpstream.cli import main

from .conftest import FLOATS, NAME, PLAIN, Rig, dump, output, stored

if TYPE_CHECKING:
    from pathlib import Path


def names(rig: Rig, data: bytes, **options: Any) -> list[str]:
    rig.add(data)
    (converted,) = rig.convert(names=Naming.CANN, **options)
    assert converted.problem is None
    return sorted(rig.files())


def buffer(number: int, size: int, *, kind: int = 0) -> bytes:
    return field(number, field(1, kind) + field(3, size))


def test_buffers_and_spaces_are_their_bytes(rig: Rig) -> None:
    message = output("float32", [2, 3], 24) + buffer(5, 3) + buffer(5, 2, kind=4) + buffer(8, 5)

    found = names(rig, dump(message, FLOATS.tobytes() + b"abc" + b"de" + b"space"))

    assert found == [
        f"{NAME}.4buffer.1.bin",
        f"{NAME}.l1buffer.0.bin",
        f"{NAME}.output.0.npy",
        f"{NAME}.space.0.bin",
    ]
    files = rig.files()
    assert files[f"{NAME}.l1buffer.0.bin"] == b"abc"
    assert files[f"{NAME}.space.0.bin"] == b"space"


def test_a_layout_puts_the_shape_into_the_name(rig: Rig) -> None:
    nchw = np.arange(16 * 4 * 4, dtype="<f2").reshape(1, 16, 4, 4)
    data = stored(block(nchw, "NCHW", "NC1HWC0"), "float16", form="NC1HWC0", original_shape=nchw.shape)

    assert names(rig, data, layout="NCHW") == [f"{NAME}.output.0.1x16x4x4.npy"]
    assert np.array_equal(np.load(rig.out / f"{NAME}.output.0.1x16x4x4.npy"), nchw)


def test_elements_alone_have_shape_type_and_format_in_their_name(rig: Rig) -> None:
    assert names(rig, PLAIN, format=FileFormat.BIN) == [f"{NAME}.output.0.2_3.float32.ND.bin"]


@pytest.mark.parametrize("length", [20, 241, 242, 300, 1000])
def test_a_name_is_kept_as_long_as_a_file_can_have_it(rig: Rig, length: int) -> None:
    name = "A" * (length - 12) + ".a.1.2.34567"
    original = f"{name}.output.0.npy"
    source = rig.source / ("x" if length > 255 else name)
    source.write_bytes(PLAIN)
    if length > 255:
        (rig.source / "mapping.csv").write_text(f"x,{name}\n")

    (converted,) = rig.convert(names=Naming.CANN)

    assert converted.problem is None
    if len(original) < 255:
        assert sorted(rig.files()) == [original]
        return
    short = f"{uuid.uuid3(uuid.NAMESPACE_DNS, original).hex}.npy"
    assert sorted(rig.files()) == sorted([short, "mapping.csv"])
    assert list(csv.reader((rig.out / "mapping.csv").read_text().splitlines())) == [[short, original]]


def test_long_names_that_are_equal_do_not_collide(rig: Rig) -> None:
    for directory, data in (("a", PLAIN), ("b", stored(FLOATS + 1, "float32"))):
        rig.add(data, f"{directory}/x")
        (rig.source / directory / "mapping.csv").write_text(f"x,{'A' * 300}\n")

    results = rig.convert(rig.source / "a", rig.source / "b", names=Naming.CANN)

    assert [it.problem for it in results] == [None, None]
    assert len([name for name in rig.files() if name.endswith(".npy")]) == 2


def test_a_hostile_name_is_changed_as_ever(rig: Rig) -> None:
    rig.add(PLAIN, "x")
    (rig.source / "mapping.csv").write_text('x,"a\x1b[31mb"\n')

    rig.convert(names=Naming.CANN)

    assert all(name.isprintable() for name in rig.files())


def test_the_command_line_asks_for_them(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(dump(buffer(8, 5), b"space"))

    code = main(["convert", str(path), "--out", str(tmp_path / "out"), "--names", "cann"])

    assert code == 0
    assert (tmp_path / "out" / f"{NAME}.space.0.bin").read_bytes() == b"space"
