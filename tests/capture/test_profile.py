"""A capture that profiles, too."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import AclError, DestinationError, Profiler, ProfileSettings, ProfilingInUseError
from dumpstream.acl.library import load_profiling
from dumpstream.archive.manifest import read_manifest
from dumpstream.simulation import SimulatedRuntime, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Rig

pytestmark = pytest.mark.anyio

_SETTINGS = ProfileSettings(extra={"host_sys": "cpu"})


@pytest.fixture(autouse=True)
def _own_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no other process of this machine want to profile."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def other(rig: Rig, tmp_path: Path) -> Iterator[Profiler]:
    """Another profiler, which is at work."""
    other = Profiler(load_profiling(rig.library))
    other.init(tmp_path / "other")
    yield other
    other.close()


def profiles(rig: Rig) -> list[Path]:
    return sorted((rig.path / "profile").glob("PROF_*/device_0/end_info.0"))


def everything(path: Path) -> list[str]:
    return sorted(str(Path(folder, name)) for folder, _, names in os.walk(path) for name in [".", *names])


async def test_the_profile_lies_beside_the_files_and_is_written_down(rig: Rig) -> None:
    report = await rig.run(Workload(), profile=_SETTINGS)

    assert (report.whole, report.files, report.profile) == (True, 16, "profile")
    assert len(profiles(rig)) == 1
    (run,) = (await run_sync(read_manifest, rig.path)).runs
    assert run.profile == {"path": "profile", **_SETTINGS.as_dict()}
    verification = await run_sync(rig.verify)
    assert not verification.problems


async def test_without_a_profile_nothing_mentions_one(rig: Rig) -> None:
    report = await rig.run(Workload())

    assert report.profile is None
    assert not await run_sync((rig.path / "profile").exists)


async def test_a_file_named_like_a_profile_is_still_unknown_without_one(rig: Rig) -> None:
    await rig.run(Workload())
    await run_sync((rig.path / "profile").mkdir)
    await run_sync((rig.path / "profile" / "foreign").write_bytes, b"")

    verification = await run_sync(rig.verify)

    assert [problem.subject for problem in verification.problems] == ["profile/foreign"]


async def test_a_further_run_adds_its_profile(rig: Rig) -> None:
    await rig.run(Workload(), profile=_SETTINGS)
    await rig.run(Workload(), profile=_SETTINGS, append=True)

    assert len(profiles(rig)) == 2


async def test_force_deletes_the_earlier_profile(rig: Rig) -> None:
    await rig.run(Workload(), profile=_SETTINGS)
    before = profiles(rig)

    await rig.run(Workload(), profile=_SETTINGS, force=True)

    assert len(profiles(rig)) == 1
    assert profiles(rig) != before


async def test_force_leaves_a_directory_that_is_not_the_captures(rig: Rig) -> None:
    await rig.run(Workload())
    await run_sync((rig.path / "profile").mkdir)
    await run_sync((rig.path / "profile" / "mine").write_bytes, b"")

    await rig.run(Workload(), force=True)

    assert await run_sync((rig.path / "profile" / "mine").exists)


async def test_a_profile_that_is_refused_leaves_no_trace(rig: Rig, other: Profiler) -> None:
    with SimulatedRuntime(), pytest.raises(ProfilingInUseError):
        async with rig.simulated(profile=_SETTINGS):
            pytest.fail("entered")

    assert not await run_sync(rig.path.exists)


async def test_a_profile_that_is_refused_deletes_nothing(rig: Rig, tmp_path: Path) -> None:
    await rig.run(Workload(), profile=_SETTINGS)
    before = await run_sync(everything, rig.path)
    library = SimulatedRuntime().library
    foreign = os.fsencode(tmp_path / "foreign")
    library.aclprofInit(foreign, len(foreign))

    with SimulatedRuntime(), pytest.raises(AclError, match="100002"):
        async with rig.simulated(profile=_SETTINGS, force=True):
            pytest.fail("entered")

    assert await run_sync(everything, rig.path) == before


@pytest.mark.parametrize("how", ["append", "force"])
async def test_a_profile_that_is_refused_leaves_a_directory_that_is_not_the_captures(
    rig: Rig, other: Profiler, how: str
) -> None:
    await rig.run(Workload())
    await run_sync((rig.path / "profile").mkdir)
    await run_sync((rig.path / "profile" / "notes").write_text, "not of the capture")
    before = await run_sync(everything, rig.path)

    with SimulatedRuntime(), pytest.raises(ProfilingInUseError):
        async with rig.simulated(profile=_SETTINGS, append=how == "append", force=how == "force"):
            pytest.fail("entered")

    assert await run_sync(everything, rig.path) == before


async def test_a_link_in_the_place_of_the_profile_is_not_followed(rig: Rig, tmp_path: Path) -> None:
    await rig.run(Workload(), profile=_SETTINGS)
    outside = tmp_path / "outside"
    await run_sync((rig.path / "profile").rename, outside)
    await run_sync((rig.path / "profile").symlink_to, outside)

    with SimulatedRuntime(), pytest.raises(DestinationError):
        async with rig.simulated(profile=_SETTINGS, append=True):
            pytest.fail("entered")

    assert len(await run_sync(os.listdir, outside)) == 1


async def test_an_end_of_the_profile_that_fails_is_raised_after_everything_is_stored(rig: Rig) -> None:
    with SimulatedRuntime() as runtime:
        opened = rig.simulated(profile=_SETTINGS)
        async with rig.raising(AclError, "aclprofStop returned 100043", opened) as capture:
            await run_sync(runtime.run)
            runtime.library.aclprofFinalize()  # of another profiler

    assert capture.report.whole
    assert len(await run_sync(rig.read)) == 16


async def test_a_cancelled_capture_ends_its_profile(rig: Rig) -> None:
    with SimulatedRuntime() as runtime, anyio.CancelScope() as scope:
        async with rig.simulated(profile=_SETTINGS):
            await run_sync(runtime.run)
            scope.cancel()
            await anyio.sleep_forever()

    assert len(profiles(rig)) == 1
    assert runtime.library.aclprofFinalize() == 100043


async def test_chunks_of_another_source_may_be_profiled(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUMPSTREAM_ACL_LIBRARY", str(rig.library))

    async with rig.pushed(profile=ProfileSettings()) as capture:
        rig.push("a.b.1.2.3", b"x", last=True)

    assert capture.report.files == 1
    assert len(profiles(rig)) == 1
