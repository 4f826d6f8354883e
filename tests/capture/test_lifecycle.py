"""What a capture asks of the runtime, and in which circumstances it refuses to begin."""

from __future__ import annotations

import ctypes
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from anyio.to_thread import run_sync

from dumpstream import (
    AclError,
    CaptureInUseError,
    ConfigError,
    DestinationError,
    DestinationInUseError,
    DumpWarning,
    LibraryNotFoundError,
    RingSource,
    SinkError,
    load_acl,
    open_capture,
)
from dumpstream.archive.manifest import read_manifest
from dumpstream.simulation import SimulatedRuntime, Workload
from dumpstream.sinks.memory import MemorySink

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.capture.conftest import Rig

    from dumpstream import WholeFile

pytestmark = pytest.mark.anyio

_BEGIN = ["acldumpRegCallback", "aclmdlInitDump", "aclmdlSetDump"]
_END = ["aclmdlFinalizeDump", "acldumpUnregCallback"]

# A runtime that does nothing but write down, separated by spaces, what it is asked to do.
_RECORDER = r"""
#include <string.h>
static char calls[4096];
int answer_register, answer_init, answer_set, answer_finalize, answer_context = 107002;
const char *recorded(void) { return calls; }
static int note(const char *name, int answer) {
    strcat(strcat(calls, name), " ");
    return answer;
}
int acldumpRegCallback(void *callback, int flag) {
    (void)callback, (void)flag;
    return note("acldumpRegCallback", answer_register);
}
void acldumpUnregCallback(void) { note("acldumpUnregCallback", 0); }
int aclmdlInitDump(void) { return note("aclmdlInitDump", answer_init); }
int aclmdlSetDump(const char *path) { return note(path ? "aclmdlSetDump" : "NULL", answer_set); }
int aclmdlFinalizeDump(void) { return note("aclmdlFinalizeDump", answer_finalize); }
int aclrtGetCurrentContext(void **context) { *context = calls; return answer_context; }
int aclrtSetCurrentContext(void *context) {
    return note(context == calls ? "aclrtSetCurrentContext" : "another context", 0);
}
int aclrtSynchronizeDevice(void) { return note("aclrtSynchronizeDevice", 0); }
"""


def compile_library(directory: Path, name: str, code: str) -> Path:
    source, library = directory / f"{name}.c", directory / f"lib{name}.so"
    source.write_text(code)
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-o", library, source], check=True)
    return library


class Recorder:
    """The compiled recorder, loaded."""

    def __init__(self, directory: Path) -> None:
        self.path = compile_library(directory, "recorder", _RECORDER)
        self._library = ctypes.CDLL(str(self.path))
        self._library.recorded.restype = ctypes.c_char_p

    @property
    def calls(self) -> list[str]:
        recorded: bytes = self._library.recorded()
        return recorded.decode().split()

    def answer(self, function: str, code: int) -> None:
        ctypes.c_int.in_dll(self._library, f"answer_{function}").value = code


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


class BrokenSink(MemorySink):
    async def put(self, files: Sequence[WholeFile]) -> Sequence[SinkError]:
        return [SinkError("broken") for _ in files]


async def test_with_a_configuration_the_dump_is_begun_and_ended(rig: Rig, recorder: Recorder) -> None:
    async with open_capture(rig.path, config=rig.config, acl_library=recorder.path, buffer_bytes=1 << 16):
        assert recorder.calls == _BEGIN

    assert recorder.calls == _BEGIN + _END


async def test_without_a_configuration_the_dump_is_left_to_the_caller(rig: Rig, recorder: Recorder) -> None:
    async with open_capture(rig.path, acl_library=recorder.path, buffer_bytes=1 << 16):
        assert recorder.calls == ["acldumpRegCallback"]

    assert recorder.calls == ["acldumpRegCallback", "acldumpUnregCallback"]


async def test_a_dump_that_the_program_began_is_not_finalised(rig: Rig, recorder: Recorder) -> None:
    recorder.answer("init", 100002)

    async with open_capture(rig.path, config=rig.config, acl_library=recorder.path, buffer_bytes=1 << 16):
        pass

    assert recorder.calls == [*_BEGIN, "acldumpUnregCallback"]


async def test_detail_mode_which_cannot_be_finalised_is_left_on(rig: Rig, recorder: Recorder) -> None:
    rig.config.write_text('{"dump": {"dump_scene": "aic_err_detail_dump"}}')

    with pytest.warns(DumpWarning, match="must be set before aclrtSetDevice"):
        async with open_capture(rig.path, config=rig.config, acl_library=recorder.path, buffer_bytes=1 << 16):
            pass

    assert recorder.calls == [*_BEGIN, "acldumpUnregCallback"]
    assert [end.outcome for end in await run_sync(rig.ends)] == ["finished"]


async def test_a_warning_that_is_an_error_undoes_the_beginning(rig: Rig, recorder: Recorder) -> None:
    rig.config.write_text('{"dump": {"dump_scene": "aic_err_detail_dump"}}')

    with pytest.raises(DumpWarning):
        async with open_capture(rig.path, config=rig.config, acl_library=recorder.path, buffer_bytes=1 << 16):
            pass

    assert recorder.calls == ["acldumpRegCallback", "aclmdlInitDump", *_END]


async def test_a_driver_of_ones_own_makes_the_calls(rig: Rig, recorder: Recorder) -> None:
    driver = await run_sync(load_acl, recorder.path)

    async with open_capture(rig.path, config=rig.config, driver=driver, buffer_bytes=1 << 16):
        pass

    assert recorder.calls == _BEGIN + _END


async def test_the_device_of_the_leaving_thread_is_synchronised_first(rig: Rig, recorder: Recorder) -> None:
    recorder.answer("context", 0)

    async with open_capture(rig.path, config=rig.config, acl_library=recorder.path, buffer_bytes=1 << 16):
        pass

    assert recorder.calls == [*_BEGIN, "aclrtSetCurrentContext", "aclrtSynchronizeDevice", *_END]


@pytest.mark.parametrize(
    ("function", "code", "calls"),
    [
        ("register", 500000, _BEGIN[:1]),
        ("init", 100001, [*_BEGIN[:2], "acldumpUnregCallback"]),
        ("set", 100009, _BEGIN + _END),
    ],
)
async def test_a_refused_beginning_is_undone_and_leaves_no_run(
    rig: Rig, recorder: Recorder, function: str, code: int, calls: list[str]
) -> None:
    recorder.answer(function, code)

    with pytest.raises(AclError) as caught:
        async with open_capture(rig.path, config=rig.config, acl_library=recorder.path, buffer_bytes=1 << 16):
            pytest.fail("entered")

    assert caught.value.code == code
    assert recorder.calls == calls
    assert not rig.path.exists()
    recorder.answer(function, 0)
    async with open_capture(rig.path, config=rig.config, acl_library=recorder.path, buffer_bytes=1 << 16):
        pass
    assert [end.run for end in await run_sync(rig.ends)] == [1]


async def test_a_configuration_that_cann_refuses_is_refused_before_anything_is_done(
    rig: Rig, recorder: Recorder
) -> None:
    rig.config.write_text('{"dump": {"dump_path": "/nowhere/at/all", "dump_mode": "some", "dump_step": "x"}}')

    with pytest.raises(ConfigError) as caught:
        async with open_capture(rig.path, config=rig.config, acl_library=recorder.path, buffer_bytes=1 << 16):
            pytest.fail("entered")

    paths = ["$.dump.dump_mode", "$.dump.dump_path", "$.dump.dump_step"]
    assert caught.value.path == rig.config
    assert sorted(problem.path for problem in caught.value.problems) == paths
    assert all(path in str(caught.value) for path in paths)
    assert recorder.calls == []
    assert not rig.path.exists()


async def test_a_configuration_that_is_missing_is_refused(rig: Rig, recorder: Recorder) -> None:
    missing = rig.path.parent / "missing.json"

    with pytest.raises(ConfigError, match="No such file"):
        async with open_capture(rig.path, config=missing, acl_library=recorder.path, buffer_bytes=1 << 16):
            pytest.fail("entered")

    assert recorder.calls == []


async def test_a_refused_end_is_raised_after_everything_was_drained(rig: Rig, recorder: Recorder) -> None:
    recorder.answer("finalize", 500000)

    with pytest.raises(AclError, match="aclmdlFinalizeDump returned 500000"):
        async with open_capture(rig.path, config=rig.config, acl_library=recorder.path, buffer_bytes=1 << 16):
            rig.push("file", b"data", last=True)

    assert (await run_sync(rig.read))["file"].data == b"data"
    assert [end.outcome for end in await run_sync(rig.ends)] == ["failed"]
    assert recorder.calls == [*_BEGIN, "aclmdlFinalizeDump"]  # what is queued is refused, not written to disk


async def test_after_a_failure_the_callback_stays_unless_the_dump_is_finalised(
    rig: Rig, recorder: Recorder
) -> None:
    opened = open_capture(rig.path, acl_library=recorder.path, sinks=[BrokenSink()], buffer_bytes=1 << 16)

    async with rig.raising(SinkError, "broken", opened) as capture:
        rig.push("file", b"data", last=True)
        await capture.wait()

    assert recorder.calls == ["acldumpRegCallback"]


async def test_a_library_without_the_dump_functions_is_refused(rig: Rig, tmp_path: Path) -> None:
    code = "int acldumpRegCallback(void *callback, int flag) { return callback ? 0 : flag; }"
    library = await run_sync(compile_library, tmp_path, "partial", code)

    with pytest.raises(LibraryNotFoundError, match="aclmdlInitDump"):
        async with open_capture(rig.path, config=rig.config, acl_library=library, buffer_bytes=1 << 16):
            pytest.fail("entered")


async def test_a_second_capture_is_refused_and_the_first_goes_on(rig: Rig, tmp_path: Path) -> None:
    workload = Workload(models=1)

    with SimulatedRuntime(workload) as runtime:
        async with rig.simulated() as capture:
            with pytest.raises(CaptureInUseError, match="already running"):
                async with open_capture(tmp_path / "second", acl_library=rig.library, buffer_bytes=1 << 16):
                    pytest.fail("entered")
            await run_sync(runtime.run)

    assert capture.report.whole
    assert capture.report.files == len(list(workload.expected_files(rig.dump_path)))


async def test_a_destination_is_for_one_capture_at_a_time(rig: Rig) -> None:
    async with rig.pushed():
        with pytest.raises(DestinationInUseError, match="choose another destination"):
            async with rig.simulated():
                pytest.fail("entered")


async def test_append_adds_a_run_and_force_starts_anew(rig: Rig) -> None:
    async with rig.pushed():
        rig.push("name", b"one", last=True)

    with pytest.raises(DestinationError, match=r"--append.*--force"):
        async with rig.pushed():
            pytest.fail("entered")
    async with rig.pushed(append=True):
        rig.push("name", b"two", last=True)
    appended = await run_sync(rig.read)
    async with rig.pushed(force=True):
        rig.push("other", b"three", last=True)

    assert {name: read.data for name, read in appended.items()} == {"name": b"onetwo"}
    assert {name: read.data for name, read in (await run_sync(rig.read)).items()} == {"other": b"three"}
    assert (await run_sync(rig.verify)).whole


async def test_a_destination_inside_the_dump_path_is_refused(rig: Rig) -> None:
    rig.path = rig.dump_path / "capture"

    with pytest.raises(DestinationError, match="inside the dump_path"):
        async with rig.simulated():
            pytest.fail("entered")

    assert not rig.path.exists()


async def test_what_was_refused_before_it_began_can_be_tried_again(rig: Rig) -> None:
    with pytest.raises(SinkError, match="no sink 'nowhere'; installed sinks: az:, gs:, memory:, null:"):
        async with rig.pushed(sinks=["nowhere:"]):
            pytest.fail("entered")

    async with rig.pushed():
        rig.push("file", b"data", last=True)

    assert (await run_sync(rig.read))["file"].data == b"data"


async def test_force_keeps_the_capture_before_if_the_dump_is_refused(rig: Rig, recorder: Recorder) -> None:
    async with rig.pushed():
        rig.push("file", b"data", last=True)
    recorder.answer("set", 100009)

    with pytest.raises(AclError):
        async with open_capture(
            rig.path, config=rig.config, acl_library=recorder.path, force=True, buffer_bytes=1 << 16
        ):
            pytest.fail("entered")

    assert (await run_sync(rig.read))["file"].data == b"data"
    assert (await run_sync(rig.verify)).whole


@pytest.mark.parametrize(("options", "pattern"), [({}, "*.zip"), ({"pack": False}, "*.dsz")])
async def test_force_deletes_what_a_sink_stored_in_a_directory_of_its_own_inside(
    rig: Rig, options: dict[str, Any], pattern: str
) -> None:
    inside = rig.path / "own"

    async with rig.pushed(sinks=[f"zstd:{inside}"], **options):
        rig.push("dir/file", b"data", last=True)
    stored = await run_sync(lambda: list(inside.rglob(pattern)))
    async with rig.pushed(force=True):
        pass

    assert len(stored) == 1
    assert not inside.exists()


async def test_a_journal_that_cannot_be_opened_fails_the_run(rig: Rig, recorder: Recorder) -> None:
    async with rig.pushed():
        pass
    journal = rig.path / "journal.jsonl"
    await run_sync(lambda: journal.rename(rig.path / "moved"))
    await run_sync(journal.symlink_to, "moved")

    with pytest.raises(DestinationError, match="symbolic"):
        async with open_capture(
            rig.path, config=rig.config, acl_library=recorder.path, append=True, buffer_bytes=1 << 16
        ):
            pytest.fail("entered")

    assert recorder.calls == _BEGIN + _END
    assert [run.outcome for run in (await run_sync(read_manifest, rig.path)).runs] == ["finished", "failed"]


async def test_a_source_of_ones_own_excludes_what_drives_the_default_one(rig: Rig) -> None:
    with pytest.raises(ValueError, match="with source= drive the dump yourself"):
        async with open_capture(rig.path, source=RingSource(), config=rig.config):
            pytest.fail("entered")


async def test_a_driver_has_a_library_of_its_own(rig: Rig, recorder: Recorder) -> None:
    driver = await run_sync(load_acl, recorder.path)

    with pytest.raises(ValueError, match="driver and acl_library exclude each other"):
        async with open_capture(rig.path, driver=driver, acl_library=recorder.path):
            pytest.fail("entered")


async def test_options_are_checked_before_the_destination_is_touched(rig: Rig) -> None:
    with pytest.raises(ValueError, match="at least 65536"):
        async with rig.simulated(buffer_bytes=0):
            pytest.fail("entered")

    assert not rig.path.exists()


async def test_the_journal_begins_and_ends_with_the_run(rig: Rig) -> None:
    async with rig.pushed() as capture:
        rig.push("file", b"data", last=True)

    (end,) = await run_sync(rig.ends)
    assert end.outcome == "finished"
    assert end.report == capture.report.as_dict()
