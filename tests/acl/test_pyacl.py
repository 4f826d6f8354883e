"""pyACL as a driver, on a stand-in that behaves as its package does, on the simulated runtime."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from anyio.to_thread import run_sync
from tests.conftest import LIMIT_S

from dumpstream import (
    AclError,
    DumpstreamError,
    LibraryNotFoundError,
    Lifecycle,
    OrderError,
    Owner,
    _native,
    load_pyacl,
    open_capture,
)
from dumpstream.acl.pyacl import PyAcl
from dumpstream.simulation import SimulatedRuntime, Workload, simulated_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.acl.conftest import Clock

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)
#: Shorter than what the driver takes by default, where nothing is queued that could come late.
_QUIET_S = 0.05

#: Of struct acldumpChunk, as pyACL shows them.
_FIELDS: tuple[tuple[str, Any, int], ...] = (
    ("buf_len", ctypes.c_uint32, 4096),
    ("is_last_chunk", ctypes.c_uint32, 4100),
    ("offset", ctypes.c_uint64, 4104),
    ("flag", ctypes.c_int32, 4112),
)


class StandIn(ModuleType):
    """The ``acl`` package: keeps the GIL in its calls, takes it for every chunk, shows offsets unsigned."""

    def __init__(self) -> None:
        super().__init__("acl")
        self.__file__ = "/cann/python/acl.so"
        self._keeping = ctypes.PyDLL(str(simulated_library()))
        self._releasing = ctypes.CDLL(str(simulated_library()))
        self._function: Callable[..., object] | None = None
        self._native = _CALLBACK(self._on_chunk)
        self.new_chunk: Callable[..., dict[str, Any]] = dict
        self.calls: list[str] = []
        self.mdl = SimpleNamespace(
            init_dump=lambda: self._call("aclmdlInitDump"),
            set_dump=lambda path: self._call("aclmdlSetDump", os.fsencode(path)),
            finalize_dump=lambda: self._call("aclmdlFinalizeDump"),
            dump_reg_callback=self._register,
            dump_unreg_callback=lambda: self._call("acldumpUnregCallback") and None,
        )
        self.rt = SimpleNamespace(
            get_context=self._get_context,
            set_context=lambda context: self._call("aclrtSetCurrentContext", ctypes.c_void_p(context)),
            synchronize_device=self._synchronize,
        )

    def init(self, path: str | None = None) -> int:
        return self._call("aclInit", None if path is None else os.fsencode(path))

    def finalize(self) -> int:
        return self._call("aclFinalize")

    def finalize_reference(self) -> tuple[int, int]:
        return 0, self._call("aclFinalizeReference", None)

    def _call(self, name: str, *arguments: object) -> int:
        self.calls.append(name)
        return int(self._keeping[name](*arguments))

    def _register(self, function: Callable[..., object], flag: int) -> int:
        self._function = function
        return self._call("acldumpRegCallback", self._native, flag)

    def _on_chunk(self, address: int, _length: int) -> int:
        if self._function is None:
            return -1
        values = {key: kind.from_address(address + place).value for key, kind, place in _FIELDS}
        name = ctypes.string_at(address).decode()
        self._function(self.new_chunk(values, file_name=name, data_buf=address + 4116))
        return 0

    def _get_context(self) -> tuple[int, int]:
        context = ctypes.c_void_p()
        code = self._keeping.aclrtGetCurrentContext(ctypes.byref(context))
        return context.value or 0, code

    def _synchronize(self) -> int:
        self.calls.append("aclrtSynchronizeDevice")
        return int(self._releasing.aclrtSynchronizeDevice())


@pytest.fixture
def acl() -> Iterator[StandIn]:
    library = SimulatedRuntime().library
    library.dssim_reset()
    yield StandIn()
    library.dssim_reset()


@pytest.fixture
def driver(acl: StandIn) -> PyAcl:
    return PyAcl(acl)


@pytest.mark.anyio
async def test_capture_through_pyacl_is_whole(
    acl: StandIn, driver: PyAcl, config: Path, tmp_path: Path
) -> None:
    with SimulatedRuntime(Workload(models=1, ops=8, tensor_bytes="64", steps=4)) as runtime:
        async with open_capture(
            tmp_path / "capture", config=config, driver=driver, buffer_bytes=1 << 20
        ) as capture:
            sent = await run_sync(runtime.run)

    assert capture.report.whole
    assert capture.report.files == sent > 0
    assert acl.calls == [
        "acldumpRegCallback",
        "aclmdlInitDump",
        "aclmdlSetDump",
        "aclrtSetCurrentContext",
        "aclrtSynchronizeDevice",
        "aclmdlFinalizeDump",
        "acldumpUnregCallback",
    ]


def finalise_with_chunks_queued(config: str) -> None:
    """Write how many files were sent and how many chunks the callback got."""
    entered, may_go_on = threading.Event(), threading.Event()

    class Slow(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            entered.set()
            may_go_on.wait()
            return super().__getitem__(key)

    acl = StandIn()
    acl.new_chunk = Slow
    life = Lifecycle(PyAcl(acl), initialized=True)
    with SimulatedRuntime(Workload(models=1, ops=20, tensor_bytes="64")) as runtime:
        life.register()
        life.init_dump()
        life.set_dump(config)
        sent = runtime.run(1)
        entered.wait()
        threading.Timer(_QUIET_S, may_go_on.set).start()
        life.finalize_dump()
        life.unregister()
        sys.stdout.write(f"{sent} {runtime.counters.delivered}")


def test_finalising_with_chunks_queued_does_not_wait_for_itself(config: Path) -> None:
    """In a process of its own: if finalising keeps the GIL that the chunks need, nothing else runs there."""
    script = "import runpy, sys; runpy.run_path(sys.argv[1])['finalise_with_chunks_queued'](sys.argv[2])"

    done = subprocess.run(
        [sys.executable, "-c", script, __file__, str(config)],
        timeout=LIMIT_S,
        check=True,
        capture_output=True,
        text=True,
    )

    sent, delivered = map(int, done.stdout.split())
    assert delivered >= sent > 0


def test_all_flows_have_their_calls(acl: StandIn, driver: PyAcl, config: Path) -> None:
    life = Lifecycle(driver)

    life.init(config)
    life.register()
    life.finalize()
    life.unregister()

    assert acl.calls == ["aclInit", "acldumpRegCallback", "aclFinalizeReference", "acldumpUnregCallback"]


def test_package_without_references_finalises_what_is_ours(
    acl: StandIn, driver: PyAcl, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Lifecycle(driver)
    monkeypatch.delattr(StandIn, "finalize_reference")

    life.init()
    life.finalize()

    assert acl.calls == ["aclInit", "aclFinalize"]


def test_code_is_an_error_that_names_the_python_function(driver: PyAcl) -> None:
    with pytest.raises(AclError, match=r"acl\.mdl\.init_dump returned 100001 \(ACL_ERROR_UNINITIALIZE\)"):
        driver.init_dump()


def test_what_the_program_began_belongs_to_it(acl: StandIn, driver: PyAcl) -> None:
    acl.init()
    acl.mdl.init_dump()
    life = Lifecycle(driver)

    life.init()
    life.init_dump()

    assert (life.acl, life.dump) == (Owner.THEIRS, Owner.THEIRS)


def test_thread_without_a_context_has_none(acl: StandIn, driver: PyAcl) -> None:
    assert driver.current_context() is None
    with SimulatedRuntime():
        assert driver.current_context() is not None

    del acl.rt
    assert driver.current_context() is None


def test_call_from_inside_the_callback_is_refused(acl: StandIn, driver: PyAcl, config: Path) -> None:
    life = Lifecycle(driver, initialized=True)
    problems: list[str] = []

    class Meddling(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            for call in (life.init_dump, life.finalize_dump, lambda: life.set_dump(config), life.unregister):
                try:
                    call()
                except OrderError as exc:
                    problems.append(exc.problem)
            return super().__getitem__(key)

    acl.new_chunk = Meddling
    with SimulatedRuntime(Workload(models=1, ops=1, tensor_bytes="64")) as runtime:
        life.register()
        life.init_dump()
        life.set_dump(config)
        runtime.run(1)
        life.finalize_dump()
        life.unregister()

    assert len(problems) > 4
    assert set(problems) == {"no ACL call may be made inside the callback: it would never return"}


def test_chunk_that_waits_for_space_is_waited_for(acl: StandIn) -> None:
    driver = PyAcl(acl, quiet_s=_QUIET_S)
    data = ctypes.create_string_buffer(48 << 10)
    chunk = {"file_name": "file", "data_buf": ctypes.addressof(data), "buf_len": len(data), "flag": 0}
    chunk |= {"is_last_chunk": 0, "offset": 2**64 - 1}
    ring = _native.Ring(64 << 10)
    ring.attach(True, 10**11, 1 << 40)
    driver._registered = True
    driver.on_chunk(chunk)
    waiting = threading.Thread(target=driver.on_chunk, args=(chunk,))
    drained = threading.Thread(target=driver.drain)

    waiting.start()
    deadline = time.monotonic() + LIMIT_S
    while driver._thread is None and time.monotonic() < deadline:
        time.sleep(0.001)
    drained.start()
    drained.join(5 * _QUIET_S)
    early = not drained.is_alive()
    leased = ring.lease(10, 64 << 10)
    assert leased is not None
    leased[2].release()
    waiting.join()
    drained.join()
    del leased
    ring.detach(10**9)
    ring.close()

    assert not early


def test_chunks_that_go_on_coming_are_not_waited_for_for_ever(acl: StandIn, clock: Clock) -> None:
    driver = PyAcl(acl, quiet_s=0.001, drain_limit_s=0.05)
    life = Lifecycle(driver)
    clock.meanwhile = lambda: driver.on_chunk({})

    life.init()
    life.register()
    life.init_dump()
    with pytest.raises(DumpstreamError, match="stop the model and synchronise the device first"):
        life.finalize_dump()

    assert "aclmdlFinalizeDump" not in acl.calls
    assert life.finalizable


def test_package_is_imported_and_said_in_the_manifest(acl: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acl", acl)

    assert load_pyacl().paths == ("/cann/python/acl.so",)


def test_package_that_is_absent_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acl", None)

    with pytest.raises(LibraryNotFoundError, match=r"the Python package acl .*Source CANN's set_env\.sh"):
        load_pyacl()


def test_package_that_is_not_cann_s_or_too_old_is_said_to_be(
    acl: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    del acl.mdl.dump_reg_callback
    monkeypatch.setitem(sys.modules, "acl", acl)

    with pytest.raises(LibraryNotFoundError, match=r"acl\.so \(has no acl\.mdl\.dump_reg_callback\)"):
        load_pyacl()
