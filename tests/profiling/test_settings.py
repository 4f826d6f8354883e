"""What can be set, and what is refused before the runtime sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dumpstream import Collect, Profiler, ProfileSettings, ProfilingError
from dumpstream.profiling.settings import EXTRAS

if TYPE_CHECKING:
    import ctypes
    from pathlib import Path

#: Some are right for one setting, some for another, some for none.
_VALUES = [
    "1",
    "0",
    "50",
    "51",
    "100",
    "101",
    "10000",
    "10001",
    "200MB",
    "199MB",
    "cpu",
    "cpu,mem",
    "cpu,",
    "read",
]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"devices": []}, "name at least one"),
        ({"devices": [1, 1]}, "name each only once"),
        ({"devices": [64]}, "from 0 to 63"),
        ({"devices": [-1]}, "from 0 to 63"),
        ({"collect": Collect(0)}, "name at least one kind"),
        ({"extra": {"nonsense": "1"}}, "no setting 'nonsense'; it has storage_limit"),
        ({"extra": {"dvpp_freq": "0"}}, "a number of Hz from 1 to 100"),
        ({"extra": {"optype": "x" * 257}}, "in at most 256 bytes"),
        ({"extra": {"optype": "a\0b"}}, "types of operators"),
        ({"extra": {"llc_mode": "read"}}, "needs sys_hardware_mem_freq"),
    ],
)
def test_settings_that_cann_would_refuse_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ProfileSettings(**settings)


@pytest.mark.parametrize("name", EXTRAS)
def test_a_value_is_taken_if_the_runtime_takes_it(
    profiler: Profiler, library: ctypes.CDLL, place: Path, name: str
) -> None:
    number, accepts = EXTRAS[name].number, EXTRAS[name].accepts
    profiler.init(place)

    codes = {value: library.aclprofSetConfig(number, value.encode(), len(value)) for value in _VALUES}

    assert {value for value in _VALUES if accepts(value)} == {value for value in _VALUES if not codes[value]}


def test_an_empty_value_is_none() -> None:
    assert not any(extra.accepts("") for extra in EXTRAS.values())


def test_a_path_longer_than_cann_takes_is_refused(profiler: Profiler, place: Path) -> None:
    with pytest.raises(ProfilingError, match="use up to 4095"):
        profiler.init(place / ("x" * 4096))


def test_dynamic_profiling_from_outside_excludes_it(
    profiler: Profiler, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFILING_MODE", "dynamic")

    with pytest.raises(ProfilingError, match="unset it"):
        profiler.init(place)
