"""The statistics of random bits of every data type, to the last digit."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
from tests.conftest import field

from dumpstream.format.dtypes import DTYPES

if TYPE_CHECKING:
    from tests.aarch64.conftest import Machines

pytestmark = pytest.mark.aarch64

#: Elements of each tensor: fewer than a register has, no multiple of that, more than a block has.
_COUNTS = (1, 7, 129, 40_008)
_ND = 2


def dump_of_random_bits(number: int, bits: int) -> bytes:
    generator = random.Random(number)
    message, data = field(1, "2.0") + field(6, "noise"), b""
    for count in _COUNTS:
        tensor = generator.randbytes((count * bits + 7) // 8)
        shape = field(1, count)
        known = field(1, number) + field(2, _ND) + field(3, shape) + field(6, len(tensor)) + field(9, 1)
        message, data = message + field(3, known), data + tensor
    return struct.pack("<Q", len(message)) + message + data


def test_they_are_the_same(machines: Machines) -> None:
    for machine in machines:
        (machine.directory / "noise").mkdir()
        for dtype in DTYPES.values():
            name = f"{dtype.short}.noise.1.1.{1780159660546556 + dtype.number}"
            (machine.directory / "noise" / name).write_bytes(dump_of_random_bits(dtype.number, dtype.bits))

    here, emulated = (machine.statistics("noise", "--histogram") for machine in machines)

    assert len(here) == len(DTYPES) * len(_COUNTS)
    assert emulated == here
