"""What runs there is the wheel, made for that machine."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.aarch64.conftest import ROOT, SYSROOT

if TYPE_CHECKING:
    from tests.aarch64.conftest import Machines

pytestmark = pytest.mark.aarch64

_EM_AARCH64 = b"\xb7\x00"
_KERNELS = "from dumpstream._native import use_kernels; print(use_kernels('auto'))"


def test_one_wheel_serves_every_python_of_the_machine() -> None:
    (wheel,) = (ROOT / "build/aarch64/dist").glob("*.whl")

    assert re.fullmatch(r"dumpstream-[0-9.]+-cp311-abi3-linux_aarch64\.whl", wheel.name)


def test_every_library_in_it_is_for_that_machine() -> None:
    libraries = [*(ROOT / "build/aarch64/venv").glob("lib/python3*/site-packages/dumpstream/*.so")]

    assert len(libraries) == 3
    assert {library.read_bytes()[18:20] for library in libraries} == {_EM_AARCH64}


def test_it_measures_with_the_kernels_of_that_machine(machines: Machines) -> None:
    emulated = machines.emulated

    assert emulated.run(str(emulated.python), "-c", _KERNELS) == "neon\n"


@pytest.mark.parametrize("function", ["ds_ring_load", "ds_word_store"])
def test_system_calls_on_a_ring_are_followed_by_a_full_barrier(function: str) -> None:
    # A reader that only reads and writes the ring's file stores "I sleep" and then looks for a record. On
    # aarch64 an atomic addition need not keep them in order; emulation on a stricter machine cannot show it.
    native = ROOT / "src/dumpstream/native"
    compiler = ["aarch64-linux-gnu-gcc", f"--sysroot={SYSROOT}", f"-I{native}/include", "-D_GNU_SOURCE"]
    assembly = subprocess.run(
        [*compiler, "-O2", "-S", "-o", "-", native / "ring_memory.c"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    _, body = assembly.split(f"\n{function}:\n")
    assert "dmb\tish\n" in body[: body.index(f".size\t{function},")]
