"""The state machine of the profiling entry points, with the codes of CANN 8.5 and of its master."""

from __future__ import annotations

import ctypes
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from dumpstream.simulation import Workload
from dumpstream.simulation.workload import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TASK_TIME, _AICPU, _MSPROFTX = 0x2, 0x8, 0x80
_PIPE, _NO_METRIC = 1, 0xFF
_UNSUPPORTED = 1 << 40

STRICT, LENIENT = "8.5", "master"


class Prof:
    """The entry points as a program calls them, one word each; keeps objects until the test ends."""

    def __init__(self, library: ctypes.CDLL, path: Path) -> None:
        self.library = library
        self.path = path
        self.configs: list[int] = []
        self.subscribe_configs: list[int] = []

    def use(self, cann: str, models: int = 2) -> Prof:
        with opened(Workload(cann=cann, models=models)) as handle:
            self.library.dssim_load(handle)
        return self

    def config(self, *devices: int, types: int = _TASK_TIME) -> int:
        array = (ctypes.c_uint32 * len(devices))(*devices)
        made = self.library.aclprofCreateConfig(array, len(devices), _PIPE, None, types)
        assert made
        self.configs.append(made)
        return int(made)

    def subscription(self, *, times: int = 1, metric: int = _PIPE, descriptor: int | None = 1) -> int:
        made = int(self.library.aclprofCreateSubscribeConfig(times, metric, descriptor))
        self.subscribe_configs.append(made)
        return made

    def init(self) -> int:
        path = os.fsencode(self.path)
        return int(self.library.aclprofInit(path, len(path)))

    def start(self, *devices: int, types: int = _TASK_TIME) -> int:
        return int(self.library.aclprofStart(self.config(*devices, types=types)))

    def stop(self, *devices: int, types: int = _TASK_TIME) -> int:
        return int(self.library.aclprofStop(self.config(*devices, types=types)))

    def finalize(self) -> int:
        return int(self.library.aclprofFinalize())

    def set_config(self, kind: int = 1, value: bytes = b"300MB") -> int:
        return int(self.library.aclprofSetConfig(kind, value, len(value)))

    def subscribe(self, model: int = 0) -> int:
        return int(self.library.aclprofModelSubscribe(model, self.subscription()))

    def unsubscribe(self, model: int = 0) -> int:
        return int(self.library.aclprofModelUnSubscribe(model))

    def close(self) -> None:
        for config in self.configs:
            assert self.library.aclprofDestroyConfig(config) == 0
        for config in self.subscribe_configs:
            assert self.library.aclprofDestroySubscribeConfig(config) == 0


@pytest.fixture
def prof(library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prof]:
    monkeypatch.chdir(tmp_path)  # where the lenient start puts a profile that was given no path
    prof = Prof(library, tmp_path / "profile").use(STRICT)
    yield prof
    prof.close()


@contextmanager
def mode(prof: Prof, name: str, tmp_path: Path) -> Iterator[None]:
    """Bring profiling into the mode *name*."""
    if name == "command":
        config = tmp_path / "profiler.json"
        config.write_text('{"profiler": {"switch": "on", "output": "."}}')
        assert prof.library.aclInit(os.fsencode(config)) == 0
    elif name != "off":
        assert {"api": prof.init, "started": prof.init, "subscribed": prof.subscribe}[name]() == 0
        assert name != "started" or prof.start(0) == 0
    yield
    if name == "command":
        assert prof.library.aclFinalize() == 0


#: What each call returns in each mode: (8.5, master).
STATES = {
    "init": {"off": (0, 0), "command": (100042,) * 2, "api": (100002,) * 2, "subscribed": (148047,) * 2},
    "start": {
        "off": (100043, 0),
        "command": (100042,) * 2,
        "api": (0, 0),
        "started": (100042, 0),
        "subscribed": (148047,) * 2,
    },
    "stop": {
        "off": (100043, 0),
        "command": (100042,) * 2,
        "api": (100043, 0),
        "started": (0, 0),
        "subscribed": (148047,) * 2,
    },
    "finalize": {
        "off": (100043, 0),
        "command": (100042,) * 2,
        "api": (0, 0),
        "started": (0, 0),
        "subscribed": (148047,) * 2,
    },
    "set_config": {"off": (100001, 0), "command": (0, 0), "api": (0, 0), "subscribed": (0, 0)},
    "subscribe": {
        "off": (0, 0),
        "command": (100042,) * 2,
        "api": (148047,) * 2,
        "subscribed": (148046,) * 2,
    },
    "unsubscribe": {
        "off": (100011,) * 2,
        "command": (100042,) * 2,
        "api": (148047,) * 2,
        "subscribed": (0, 0),
    },
}


@pytest.mark.parametrize("cann", [STRICT, LENIENT])
@pytest.mark.parametrize(
    ("call", "state"), [(call, state) for call, states in STATES.items() for state in states]
)
def test_every_call_in_every_mode(prof: Prof, tmp_path: Path, call: str, state: str, cann: str) -> None:
    prof.use(cann)
    arguments = (0,) if call in ("start", "stop") else ()

    with mode(prof, state, tmp_path):
        code = getattr(prof, call)(*arguments)

    assert code == STATES[call][state][cann == LENIENT]


def test_init_judges_the_path(prof: Prof, tmp_path: Path) -> None:
    init = prof.library.aclprofInit
    (tmp_path / "file").write_text("")
    below_a_file = os.fsencode(tmp_path / "file" / "profile")

    codes = [
        init(None, 3),
        init(b"", 0),
        init(b"abc", 2),
        init(b"a" * 4096, 4096),
        init(below_a_file, len(below_a_file)),
    ]

    assert codes == [100000] * 4 + [100003]


def test_init_is_refused_in_dynamic_mode(prof: Prof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFILING_MODE", "dynamic")

    assert prof.init() == 200006


@pytest.mark.parametrize("cann", [STRICT, LENIENT])
def test_start_and_stop_judge_what_is_collected(prof: Prof, cann: str) -> None:
    prof.use(cann)
    prof.init()

    codes = [
        prof.start(0, types=0),
        prof.start(0, types=_UNSUPPORTED),
        prof.start(0),
        prof.stop(0, types=_TASK_TIME | _AICPU),
        prof.stop(0),
    ]

    assert codes == [100000, 200007, 0, 100010, 0]


def test_without_a_config_only_master_starts_and_stops(prof: Prof) -> None:
    def codes() -> list[int]:
        calls = (prof.library.aclprofStart, prof.library.aclprofStop)
        return [prof.init(), *(call(None) for call in calls), prof.finalize()]

    assert codes() == [0, 100000, 100000, 0]
    prof.use(LENIENT)
    assert codes() == [0, 0, 0, 0]
    assert list(prof.path.glob("PROF_*/device_0"))


def test_a_config_has_devices_that_exist_each_once(prof: Prof) -> None:
    def made(*devices: int, types: int = _TASK_TIME, events: int | None = None) -> bool:
        array = (ctypes.c_uint32 * len(devices))(*devices)
        config = prof.library.aclprofCreateConfig(array, len(devices), _PIPE, events, types)
        prof.configs += [config] * bool(config)
        return bool(config)

    assert made(0, 63)
    assert made(types=_MSPROFTX)
    assert not made()
    assert not made(64)
    assert not made(1, 1)
    assert not made(0, events=1)
    assert prof.library.aclprofDestroyConfig(None) == 100000


def test_other_devices_may_be_started_later(prof: Prof) -> None:
    prof.init()

    codes = [prof.start(0), prof.start(1, 2, types=_AICPU), prof.start(2, 3), prof.stop(1, 2, types=_AICPU)]

    assert codes == [0, 0, 100042, 0]
    assert sorted(path.name for path in prof.path.glob("PROF_*/device_*")) == [
        "device_0",
        "device_1",
        "device_2",
    ]


def test_a_second_start_on_master_succeeds_without_effect(prof: Prof) -> None:
    prof.use(LENIENT)
    prof.init()

    codes = [prof.start(0), prof.start(1), prof.start(0, types=_AICPU), prof.stop(0)]

    assert codes == [0, 0, 100010, 0]
    assert not list(prof.path.glob("PROF_*/device_1"))


def test_on_master_a_start_that_was_never_stopped_spoils_the_next(prof: Prof) -> None:
    prof.use(LENIENT)

    codes = [prof.init(), prof.start(0), prof.finalize(), prof.init(), prof.start(0), prof.finalize()]

    assert codes == [0] * 6
    assert len(list(prof.path.glob("PROF_*"))) == 1


def test_start_without_init_writes_to_the_set_path_on_master(prof: Prof, tmp_path: Path) -> None:
    prof.use(LENIENT)
    prof.set_config(16, os.fsencode(tmp_path / "set"))

    codes = [prof.start(0), prof.stop(0), prof.finalize()]

    assert codes == [0] * 3
    assert list((tmp_path / "set").glob("PROF_*/device_0"))


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        (1, b"200MB", 0),
        (1, b"199MB", 100010),
        (1, b"200", 100010),
        (2, b"1", 100010),
        (3, b"10000", 0),
        (3, b"10001", 100010),
        (4, b"read", 0),
        (4, b"read,write", 100010),
        (5, b"0", 100010),
        (6, b"50", 0),
        (6, b"51", 100010),
        (7, b"100", 0),
        (8, b"cpu,mem", 0),
        (8, b"cpu,disk", 100010),
        (9, b"mem", 0),
        (10, b"51", 100010),
        (11, b"x", 100010),
        (12, b"flow", 0),
        (13, b"50", 0),
        (14, b"MatMulV3", 0),
        (15, b"", 100000),
        (16, b"", 100010),
        (0, b"1", 100000),
        (17, b"1", 100000),
        (12, b"a" * 256, 0),
        (12, b"a" * 257, 100000),
    ],
)
def test_set_config_judges_the_value(prof: Prof, kind: int, value: bytes, code: int) -> None:
    prof.init()

    assert prof.set_config(kind, value) == code


def test_set_config_judges_its_arguments(prof: Prof) -> None:
    prof.init()

    codes = [prof.library.aclprofSetConfig(1, None, 0), prof.library.aclprofSetConfig(1, b"200MB", 4)]

    assert codes == [100000] * 2


def test_subscribing_judges_the_model_and_the_config(prof: Prof) -> None:
    subscribe = prof.library.aclprofModelSubscribe

    codes = [
        subscribe(0, None),
        subscribe(2, prof.subscription()),
        subscribe(0, prof.subscription(descriptor=None)),
        subscribe(0, prof.subscription(times=0, metric=_NO_METRIC)),
        prof.unsubscribe(2),
    ]

    assert codes == [100000, 100011, 100000, 100000, 100011]


def test_profiling_is_off_again_when_the_last_subscription_ends(prof: Prof) -> None:
    subscribed = [prof.subscribe(0), prof.subscribe(1), prof.unsubscribe(0)]
    between = prof.init()
    after = [prof.unsubscribe(1), prof.init()]

    assert (subscribed, between, after) == ([0, 0, 0], 148047, [0, 0])


def test_operators_are_counted_in_any_mode(prof: Prof) -> None:
    size, count = ctypes.c_size_t(), ctypes.c_uint32()
    prof.init()

    prof.library.aclprofGetOpDescSize(ctypes.byref(size))
    code = prof.library.aclprofGetOpNum(bytes(3 * size.value), 3 * size.value, ctypes.byref(count))

    assert (code, count.value) == (0, 3)
    assert prof.library.aclprofGetOpDescSize(None) == 100000
    assert prof.library.aclprofGetOpNum(b"x", 1, ctypes.byref(count)) == 100000


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ('{"profiler": {"switch": "on"}}', 100042),
        ('{"profiler": {"switch": "off"}}', 0),
        ('{"profiler": {}}', 0),
        ('{"profiler": 1}', 0),
        ("{}", 0),
    ],
)
def test_only_a_profiler_that_is_switched_on_excludes_init(
    prof: Prof, tmp_path: Path, content: str, code: int
) -> None:
    config = tmp_path / "acl.json"
    config.write_text(content)
    prof.library.aclInit(os.fsencode(config))

    inside = prof.init()
    prof.library.aclFinalize()

    assert inside == code
    assert prof.init() == (0 if code else 100002)


def test_stopping_leaves_what_was_collected(prof: Prof) -> None:
    prof.init()
    prof.set_config(1, b"300MB")
    prof.set_config(14, b'Mat"Mul')

    prof.start(0, 3, types=_TASK_TIME | _AICPU)
    prof.stop(0, 3, types=_TASK_TIME | _AICPU)

    (top,) = prof.path.iterdir()
    assert top.name.startswith("PROF_000001_")
    assert sorted(path.name for path in top.iterdir()) == ["device_0", "device_3", "host"]
    about = json.loads((top / "device_3" / "sample.json").read_text())
    assert about == {
        "device": 3,
        "data_types": 10,
        "aicore_metrics": 1,
        "storage_limit": "300MB",
        "optype": 'Mat"Mul',
    }
    assert (top / "device_3" / "data" / "ts_track.data.3.slice_0").stat().st_size == 1024
    assert (top / "device_3" / "end_info.3").exists()


def test_finalizing_ends_what_was_not_stopped(prof: Prof) -> None:
    prof.init()
    prof.start(0)

    prof.finalize()

    assert list(prof.path.glob("PROF_*/device_0/end_info.0"))
