"""What can be converted: files, directories, captures."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import zstandard

from dumpstream.format.verdict import Verdict

from .conftest import NAME, PLAIN, Rig, stored

if TYPE_CHECKING:
    from tests.conftest import CaptureBuilder


def test_directories_keep_their_shape(rig: Rig) -> None:
    rig.add(PLAIN, "0/1/A.a.1.2.3")
    rig.add(zstandard.compress(PLAIN), "0/B.b.1.2.3.zst")

    converted = rig.convert()

    assert [item.problem for item in converted] == [None, None]
    assert sorted(rig.files()) == ["0/1/A.a.1.2.3.output.0.npy", "0/B.b.1.2.3.output.0.npy"]


def test_what_is_no_dump_file_is_skipped_in_a_directory(rig: Rig) -> None:
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


def test_file_with_the_name_of_a_dump_is_damaged_if_it_is_none(rig: Rig) -> None:
    rig.add(b"garbage")

    (converted,) = rig.convert()

    assert not converted.skipped
    assert "not a dump file" in (converted.problem or "")


def test_file_that_was_asked_for_is_not_skipped(rig: Rig) -> None:
    (converted,) = rig.convert(rig.add(b"{}", "notes.json"))

    assert not converted.skipped
    assert converted.problem is not None


def test_name_that_cann_shortened_is_looked_up(rig: Rig) -> None:
    rig.add(PLAIN, "17213")
    rig.add(f"17213,{NAME}\n".encode(), "mapping.csv")

    rig.convert()

    assert sorted(rig.files()) == [f"{NAME}.output.0.npy"]


def test_results_come_in_the_order_of_the_inputs(rig: Rig) -> None:
    names = [f"A.a.{number}.2.3" for number in range(100, 300)]
    for name in names:
        rig.add(PLAIN, name)

    converted = rig.convert(workers=4)

    assert [item.input.name for item in converted] == names
    assert len(rig.files()) == 200


def test_capture_is_converted_below_its_names(rig: Rig, builder: CaptureBuilder) -> None:
    builder.add(f"/dump//0/{NAME}", PLAIN, Verdict.COMPLETE)
    builder.add("A.a.1.2.3.csv", b"text", Verdict.UNPARSED)

    converted = rig.convert(builder.finish())

    assert sorted(rig.files()) == [f"dump/0/{NAME}.output.0.npy"]
    assert [item.skipped for item in converted] == [False, True]


def test_nothing_of_a_file_that_does_not_match_its_checksum_is_written(
    rig: Rig, builder: CaptureBuilder
) -> None:
    builder.add(NAME, stored(np.frombuffer(os.urandom(1000), np.uint8), "uint8"), Verdict.COMPLETE)
    damaged = bytearray((builder.path / f"files/{NAME}.zst").read_bytes())
    damaged[500] ^= 1
    (builder.path / f"files/{NAME}.zst").write_bytes(damaged)

    (converted,) = rig.convert(builder.finish())

    assert rig.files() == {}
    assert "does not match its checksum" in (converted.problem or "")


def test_file_that_came_incomplete_is_told_with_its_verdict(rig: Rig, builder: CaptureBuilder) -> None:
    builder.add(NAME, PLAIN[:-1], Verdict.SHORT)
    builder.add("B.b.1.2.3", PLAIN, Verdict.NEVER_CLOSED)

    first, second = rig.convert(builder.finish())

    assert (first.problem or "").startswith("is not whole (short); ends inside output 0")
    assert second.problem == "is not whole (never_closed)"
    assert sorted(rig.files()) == ["B.b.1.2.3.output.0.npy"]
