"""A runtime to profile on, and where the profile goes."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from dumpstream import Profiler, ProfileSettings
from dumpstream.acl.library import Acl, load_profiling
from dumpstream.simulation import SimulatedRuntime, simulated_library

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterator
    from pathlib import Path

LIBRARY = simulated_library()

ONE, OTHER = ProfileSettings(), ProfileSettings(devices=[1])


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """A new runtime, and a lock that no other process of this machine uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    library = SimulatedRuntime().library
    library.dssim_reset()
    yield library
    library.dssim_reset()


@pytest.fixture
def acl() -> Acl:
    return load_profiling(LIBRARY)


@pytest.fixture
def profiler(acl: Acl, tmp_path: Path) -> Iterator[Profiler]:
    profiler = Profiler(acl)
    yield profiler
    profiler.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "profile"


def sample(place: Path, device: int = 0) -> dict[str, Any]:
    """Return the configuration that the runtime got for *device*."""
    (path,) = place.glob(f"PROF_*/device_{device}/sample.json")
    result: dict[str, Any] = json.loads(path.read_text())
    return result
