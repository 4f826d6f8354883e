"""Every rule on the order of calls, with its refused and its allowed twin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dumpstream import (
    AclError,
    AicoreMetric,
    Collect,
    Lifecycle,
    OrderError,
    Profiler,
    ProfileSettings,
    ProfilingWarning,
    Subscriber,
)

from .conftest import ONE, OTHER, sample

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable
    from pathlib import Path

    from dumpstream.acl.library import Acl

_PROFILING = '{"profiler": {"switch": "on"}}'


def initialised(acl: Acl, config: Path, content: str) -> Lifecycle:
    """Initialise ACL with a configuration."""
    config.write_text(content)
    lifecycle = Lifecycle(acl)
    lifecycle.init(config)
    return lifecycle


def test_calls_in_the_right_order_collect(profiler: Profiler, place: Path) -> None:
    profiler.init(place)
    profiler.set_config("storage_limit", "500MB")
    profiler.start(ONE)
    profiler.ran()
    profiler.stop(ONE)
    profiler.finalize()

    assert sample(place)["storage_limit"] == "500MB"
    assert not profiler.initialized


def test_the_message_shows_the_right_order(profiler: Profiler) -> None:
    with pytest.raises(OrderError) as raised:
        profiler.start(ONE)

    assert raised.value.call == "aclprofStart"
    assert str(raised.value).startswith(
        "aclprofStart: aclprofInit has not been called; the order is: aclInit, "
    )


def test_init_before_acl_init_is_refused(acl: Acl, place: Path) -> None:
    with pytest.raises(OrderError, match="aclInit has not been called"):
        Profiler(acl, Lifecycle(acl)).init(place)


def test_a_configuration_of_acl_init_that_profiles_excludes_everything(
    acl: Acl, tmp_path: Path, place: Path
) -> None:
    profiler = Profiler(acl, initialised(acl, tmp_path / "acl.json", _PROFILING))

    with pytest.raises(OrderError, match="take the profiler section out"):
        profiler.init(place)
    with pytest.raises(OrderError, match="take the profiler section out"):
        Subscriber(profiler).count_operators(b"")


def test_what_the_configuration_of_acl_init_said_counts_though_the_file_has_changed(
    acl: Acl, tmp_path: Path, place: Path
) -> None:
    config = tmp_path / "acl.json"
    lifecycle = initialised(acl, config, _PROFILING)
    config.write_text("{}")

    with pytest.raises(OrderError, match="take the profiler section out"):
        Profiler(acl, lifecycle).init(place)


@pytest.mark.parametrize(
    "content", ['{"profiler": {"switch": "off"}}', '{"profiler": {}}', '{"profiler": 1}', "{}", ""]
)
def test_a_configuration_of_acl_init_that_does_not_profile_excludes_nothing(
    acl: Acl, tmp_path: Path, place: Path, content: str
) -> None:
    profiler = Profiler(acl, initialised(acl, tmp_path / "acl.json", content))

    profiler.init(place)

    assert profiler.initialized
    profiler.finalize()


def test_what_acl_init_did_unseen_the_runtime_says(
    profiler: Profiler, library: ctypes.CDLL, tmp_path: Path, place: Path
) -> None:
    config = tmp_path / "acl.json"
    config.write_text('{"profiler": {"switch": "on"}}')
    library.aclInit(os.fsencode(config))

    with pytest.raises(AclError, match="100042"):
        profiler.init(place)

    assert not profiler.initialized


@pytest.mark.parametrize("call", ["start", "stop", "finalize", "set_config"])
def test_nothing_goes_before_init(profiler: Profiler, call: str) -> None:
    calls: dict[str, Callable[[], None]] = {
        "start": lambda: profiler.start(ONE),
        "stop": lambda: profiler.stop(ONE),
        "finalize": profiler.finalize,
        "set_config": lambda: profiler.set_config("dvpp_freq", "1"),
    }

    with pytest.raises(OrderError, match="aclprofInit has not been called"):
        calls[call]()


def test_late_calls_warn_that_data_is_missing(profiler: Profiler, place: Path) -> None:
    profiler.lifecycle.loaded("resnet")
    with pytest.warns(ProfilingWarning, match="loaded before aclprofInit"):
        profiler.init(place)
    profiler.ran()
    with pytest.warns(ProfilingWarning, match="ran before aclprofStart"):
        profiler.start(ONE)


def test_several_devices_at_once(profiler: Profiler, place: Path) -> None:
    settings = ProfileSettings(devices=[2, 5], collect=Collect.AICPU, metric=AicoreMetric.NONE)
    profiler.init(place)

    profiler.start(settings)
    profiler.stop(settings)

    assert sample(place, 2) == {"device": 2, "data_types": 8, "aicore_metrics": 255}
    assert sample(place, 5)["device"] == 5


def test_a_device_twice_is_refused_until_it_is_stopped(profiler: Profiler, place: Path) -> None:
    again = ProfileSettings(devices=[0, 1], collect=Collect.AICPU)
    profiler.init(place)
    profiler.start(ONE)

    with pytest.raises(OrderError, match="device 0 is being collected"):
        profiler.start(again)

    profiler.stop(ONE)
    profiler.start(again)
    assert profiler.started == (again,)


def test_the_same_configuration_twice_is_refused(profiler: Profiler, place: Path) -> None:
    ranges = ProfileSettings(devices=[], collect=Collect.MSPROFTX)
    profiler.init(place)
    profiler.start(ranges)

    with pytest.raises(OrderError, match="the same is being collected"):
        profiler.start(ranges)


def test_other_devices_may_follow_with_a_warning(profiler: Profiler, place: Path) -> None:
    profiler.init(place)
    profiler.start(ONE)

    with pytest.warns(ProfilingWarning, match="name all devices in the first"):
        profiler.start(OTHER)

    assert profiler.started == (ONE, OTHER)


@pytest.mark.parametrize(
    "other",
    [
        ProfileSettings(devices=[0, 1]),
        ProfileSettings(collect=Collect.AICPU),
        ProfileSettings(metric=AicoreMetric.L2_CACHE),
    ],
)
def test_stop_must_match_its_start(profiler: Profiler, place: Path, other: ProfileSettings) -> None:
    profiler.init(place)
    profiler.start(ONE)

    with pytest.raises(OrderError, match="nothing was started with these settings"):
        profiler.stop(other)

    profiler.stop(ProfileSettings(extra={"dvpp_freq": "1"}))  # not those of the start
    assert profiler.started == ()


def test_settings_come_before_the_start(profiler: Profiler, place: Path) -> None:
    profiler.init(place)
    profiler.start(ONE)

    with pytest.raises(OrderError, match="only before"):
        profiler.set_config("dvpp_freq", "10")

    profiler.stop(ONE)
    profiler.set_config("dvpp_freq", "10")


def test_finalize_waits_for_the_stop(profiler: Profiler, place: Path) -> None:
    profiler.init(place)
    profiler.start(ONE)

    with pytest.raises(OrderError, match="stop what was started"):
        profiler.finalize()

    profiler.stop(ONE)
    profiler.finalize()
    assert not profiler.initialized


def test_the_path_changes_with_another_init(profiler: Profiler, tmp_path: Path) -> None:
    profiler.init(tmp_path / "first")
    with pytest.raises(OrderError, match="finalise it to change its path"):
        profiler.init(tmp_path / "second")

    profiler.finalize()
    profiler.init(tmp_path / "second")
    profiler.start(ONE)
    profiler.stop(ONE)

    assert sample(tmp_path / "second")["device"] == 0


def test_acl_is_finalized_after_profiling_and_its_answer_counts(
    acl: Acl, library: ctypes.CDLL, place: Path
) -> None:
    lifecycle = Lifecycle(acl)
    lifecycle.init()
    profiler = Profiler(acl, lifecycle)
    profiler.init(place)
    with pytest.raises(OrderError, match="profiling is not finalised"):
        lifecycle.finalize()

    profiler.finalize()
    library.aclFinalize()  # by the program

    with pytest.raises(AclError, match="100037"):
        lifecycle.finalize()
