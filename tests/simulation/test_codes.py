"""What the entry points return, in CANN's numbers."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import pytest

from dumpstream.simulation import SimulatedRuntime, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Dump


def test_calls_in_the_documented_order_succeed(dump: Dump) -> None:
    library = dump.library

    codes = [
        library.aclInit(None),
        dump.recorder.register(),
        library.aclmdlInitDump(),
        library.aclmdlSetDump(os.fsencode(dump.config)),
        library.aclmdlFinalizeDump(),
        library.aclFinalize(),
    ]

    assert codes == [0] * 6


def test_dump_calls_before_init_are_refused(dump: Dump) -> None:
    library = dump.library

    codes = [library.aclmdlInitDump(), library.aclmdlSetDump(b"x"), library.aclmdlFinalizeDump()]

    assert codes == [100001] * 3


def test_set_and_finalize_before_init_dump_are_refused(library: ctypes.CDLL) -> None:
    library.aclInit(None)

    codes = [library.aclmdlSetDump(b"x"), library.aclmdlFinalizeDump()]

    assert codes == [100045] * 2


def test_repeated_init_is_counted_and_said(library: ctypes.CDLL) -> None:
    left = ctypes.c_uint64()

    codes = [library.aclInit(None), library.aclInit(None), library.aclmdlInitDump(), library.aclmdlInitDump()]
    released = library.aclFinalizeReference(ctypes.byref(left))

    assert codes == [0, 100002, 0, 100002]
    assert (released, left.value) == (0, 1)


def test_repeated_finalize_is_refused(library: ctypes.CDLL) -> None:
    library.aclInit(None)

    codes = [library.aclFinalize(), library.aclFinalize(), library.aclFinalizeReference(None)]

    assert codes == [0, 100037, 100037]


def test_registration_refuses_null_and_flags(dump: Dump) -> None:
    library = dump.library

    codes = [library.acldumpRegCallback(None, 0), library.acldumpRegCallback(dump.recorder.function, 1)]

    assert codes == [500001, 500001]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", 0),
        ("{}", 0),
        ('{"dump": {}}', 0),
        ('{"dump": {"dump_path": "DIR"}}', 0),
        ('{"dump": {"dump_path": "DIR", "dump_list": [{"model_name": "a\\u00e9\\ud83d\\ude00"}]}}', 0),
        ('{"dump": {"dump_path": "10.0.0.1:/elsewhere"}, "other": [1.5e-3, -0, true, null]}', 0),
        (f"{'[' * 10}{']' * 10}", 100009),
        (f"{'[' * 11}{']' * 11}", 100006),
        ('{"dump": {"dump_path": "DIR", "x": "{{{{{{{{{{"}}', 100006),
        ("[]", 100009),
        ("{", 100009),
        ('{"a": 01}', 100009),
        ('{"a": "\\x"}', 100009),
        ('{"a": "\\ud83d"}', 100009),
        ("{} {}", 100009),
        ('{"dump": []}', 100009),
        ('{"dump": {"dump_mode": "all"}}', 100009),
        ('{"dump": {"dump_path": 1}}', 100009),
        ('{"dump": {"dump_path": "DIR/absent"}}', 100009),
        ('{"dump": {"dump_path": "FILE"}}', 100009),
        ('{"dump": {"dump_path": "DIR", "dump_list": {}}}', 100009),
        ('{"dump": {"dump_path": "DIR", "dump_op_switch": "yes"}}', 100009),
        ('{"dump": {"dump_path": "DIR", "dump_op_switch": true}}', 100009),
    ],
)
def test_set_dump_judges_the_content(dump: Dump, content: str, code: int) -> None:
    text = content.replace("DIR", str(dump.path)).replace("FILE", str(dump.config))
    dump.config.write_text(text)
    dump.library.aclInit(None)
    dump.library.aclmdlInitDump()

    result = dump.library.aclmdlSetDump(os.fsencode(dump.config))

    assert result == code


def test_set_dump_judges_the_file(dump: Dump) -> None:
    dump.library.aclInit(None)
    dump.library.aclmdlInitDump()
    large = dump.path / "large.json"
    large.write_bytes(b" " * (10 << 20) + b"{")

    codes = [
        dump.library.aclmdlSetDump(path)
        for path in (None, b"absent.json", os.fsencode(dump.path), os.fsencode(large))
    ]

    assert codes == [100000, 100003, 100003, 100003]


def test_init_again_with_another_configuration_is_refused(dump: Dump, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    paths = [os.fsencode(dump.config), os.fsencode(dump.config), os.fsencode(other)]

    codes = [code for path in paths for code in (dump.library.aclInit(path), dump.library.aclFinalize())]

    assert codes == [0, 0, 0, 0, 100000, 100037]


def test_a_thread_without_a_device_has_no_context(library: ctypes.CDLL) -> None:
    device, context = ctypes.c_int32(7), ctypes.c_void_p()

    before = [
        library.aclrtGetDevice(ctypes.byref(device)),
        library.aclrtGetCurrentContext(ctypes.byref(context)),
        library.aclrtSynchronizeDevice(),
    ]
    with SimulatedRuntime(Workload(device_id=3)):
        inside = [
            library.aclrtGetDevice(ctypes.byref(device)),
            library.aclrtGetCurrentContext(ctypes.byref(context)),
            library.aclrtSetCurrentContext(context),
            library.aclrtSynchronizeDevice(),
        ]
    after = library.aclrtGetDevice(ctypes.byref(ctypes.c_int32()))

    assert before == [107002] * 3
    assert inside == [0] * 4
    assert device.value == 3
    assert after == 107002


@pytest.mark.parametrize(
    ("settings", "types"),
    [
        ({"dump_list": [{}]}, {4}),
        ({"dump_op_switch": "on"}, {4}),
        ({"dump_debug": "on"}, {5}),
        ({"dump_scene": "aic_err_norm_dump"}, {2}),
        ({"dump_scene": "lite_exception"}, {1}),
        ({"dump_list": []}, set()),
    ],
)
def test_the_path_is_told_of_what_is_switched_on(
    dump: Dump, settings: dict[str, object], types: set[int]
) -> None:
    dump.library.aclInit(None)
    dump.library.aclmdlInitDump()
    dump.configure(**settings)
    dump.library.aclmdlSetDump(os.fsencode(dump.config))

    paths = {number: dump.library.acldumpGetPath(number) for number in range(7)}
    dump.finalize()

    assert paths == {number: os.fsencode(dump.path) if number in types else None for number in range(7)}
    assert dump.library.acldumpGetPath(4) is None


def test_dumps_of_arguments_start_once_in_a_directory_that_can_be_made(dump: Dump) -> None:
    start, stop = dump.library.aclopStartDumpArgs, dump.library.aclopStopDumpArgs
    good, bad = os.fsencode(dump.path / "args"), os.fsencode(dump.config)

    codes = [stop(1), start(1, None), start(1, b""), start(2, good), start(1, bad), start(1, bad + b"/x")]
    codes += [start(1, good), start(1, good), stop(1), start(1, good)]

    assert codes == [0, *[500001] * 5, 0, 500001, 0, 0]
    assert (dump.path / "args").is_dir()
