"""How a running capture is seen from another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import LIMIT_S

from dumpstream.archive.destination import Destination
from dumpstream.archive.place import DirectoryPlace
from dumpstream.archive.pulse import Pulse, parse_pulse, pulse_text
from dumpstream.system.lock import LOCK

_COUNTS = st.integers(0, 1 << 60)
_PULSES = st.builds(
    Pulse,
    time=st.floats(0, 1e10),
    ring_bytes=_COUNTS,
    ring_fill=_COUNTS,
    chunks=_COUNTS,
    bytes=_COUNTS,
    files=_COUNTS,
    open_files=_COUNTS,
    waiting=_COUNTS,
    losses=st.dictionaries(st.text(max_size=20), st.tuples(_COUNTS, _COUNTS), max_size=8),
)


@given(_PULSES)
def test_pulse_is_read_as_it_was_written(pulse: Pulse) -> None:
    line = pulse_text(pulse)

    assert b"\n" not in line
    assert parse_pulse(line) == pulse


@given(_PULSES, st.integers(0, 200))
def test_torn_line_is_not_a_pulse(pulse: Pulse, cut: int) -> None:
    line = pulse_text(pulse)

    assert parse_pulse(line[: max(len(line) - 1 - cut, 0)]) is None


@given(st.binary(max_size=200) | st.sampled_from([b"[]", b"{}", b"9" * 5000, b'{"losses": {"a": [1]}}']))
def test_anything_else_is_not_a_pulse(line: bytes) -> None:
    assert parse_pulse(line) is None


def test_pulse_is_seen_while_the_destination_is_open_and_not_after(tmp_path: Path) -> None:
    destination = Destination.open(tmp_path / "run")
    destination.begin_run({})
    place = DirectoryPlace(tmp_path / "run")
    assert place.read_pulse() is None

    for fill in (123456789, 1):
        destination.tell(Pulse(time=time(), ring_bytes=1 << 40, ring_fill=fill))
        pulse = place.read_pulse()
        assert pulse is not None
        assert (pulse.ring_fill, pulse.is_fresh(60)) == (fill, True)
        writer = place.find_writer()
        assert writer is not None
        assert writer.pid == os.getpid()
    destination.close()

    assert place.read_pulse() is None


def test_pulse_of_very_many_causes_stays_small(tmp_path: Path) -> None:
    destination = Destination.open(tmp_path / "run")
    losses = {f"{number}: {'x' * 500}": (1, 1) for number in range(500)}

    destination.tell(Pulse(time=time(), losses=losses))

    assert (tmp_path / "run" / LOCK).stat().st_size <= 4096
    assert DirectoryPlace(tmp_path / "run").read_pulse() is not None
    destination.close()


@pytest.mark.parametrize("extra", [[], ["--ranks", "2"]])
def test_running_capture_tells_how_full_its_ring_is(tmp_path: Path, extra: list[str]) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "dumpstream"]
    job = [*command, "simulate", "--workload", "models=1,ops=4,tensor_bytes=1024-2048,rate=100000"]
    with subprocess.Popen(
        [*command, "capture", "--out", run, "--quiet", "--", *job, "--steps", "100000", *extra],
        stderr=subprocess.DEVNULL,
    ) as capturing:
        deadline = time() + LIMIT_S
        pulse = None
        while pulse is None or not pulse.bytes:
            assert capturing.poll() is None
            assert time() < deadline
            places = [DirectoryPlace(it.parent) for it in run.glob("*/manifest.json")]
            pulse = next((found for place in places if (found := place.read_pulse())), None)
        capturing.terminate()

    assert 0 <= pulse.ring_fill <= pulse.ring_bytes
    assert pulse.ring_bytes > 0
    assert pulse.is_fresh(LIMIT_S)
