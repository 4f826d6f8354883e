"""A callback that keeps what the simulated runtime gives it, and a library without state."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.simulation.exceptions import VARIABLES

from dumpstream.simulation import SimulatedRuntime, Workload, dump_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HEADER_BYTES = 4116
STRUCT_BYTES = 4120
APPEND = -1

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)


class Seen(NamedTuple):
    """One call of the callback."""

    name: str
    data: bytes
    last: int
    offset: int
    flag: int
    length: int
    address: int  #: of the payload
    thread: int


class Recorder:
    """Registered with the runtime, keeps a copy of every chunk."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.chunks: list[Seen] = []
        self.answer: Callable[[Seen], int] = lambda _: 0
        self.function = _CALLBACK(self._take)

    def register(self) -> int:
        return int(self.library.acldumpRegCallback(self.function, 0))

    def _take(self, address: int, length: int) -> int:
        name = ctypes.string_at(address)
        size, last, offset, flag = (
            kind.from_address(address + place).value
            for kind, place in (
                (ctypes.c_uint32, 4096),
                (ctypes.c_uint32, 4100),
                (ctypes.c_int64, 4104),
                (ctypes.c_int32, 4112),
            )
        )
        payload = address + HEADER_BYTES
        data = ctypes.string_at(payload, size)
        seen = Seen(os.fsdecode(name), data, last, offset, flag, length, payload, threading.get_native_id())
        self.chunks.append(seen)
        return self.answer(seen)

    def chunks_of(self, name: str) -> list[Seen]:
        return [chunk for chunk in self.chunks if chunk.name == name]

    def files(self) -> dict[str, bytes]:
        """Join the chunks by their offsets."""
        files: defaultdict[str, bytearray] = defaultdict(bytearray)
        for chunk in self.chunks:
            file = files[chunk.name]
            if chunk.offset == APPEND:
                file += chunk.data
            else:
                file.extend(bytes(max(0, chunk.offset + len(chunk.data) - len(file))))
                file[chunk.offset : chunk.offset + len(chunk.data)] = chunk.data
        return {name: bytes(data) for name, data in files.items()}


class Dump:
    """A configured dump: a recorder, a dump path, and the calls around a run."""

    def __init__(self, library: ctypes.CDLL, directory: Path) -> None:
        self.library = library
        self.recorder = Recorder(library)
        self.path = directory / "dump"
        self.path.mkdir()
        self.config = directory / "acl.json"
        self.config.write_text(dump_config(self.path))

    def begin(self) -> None:
        assert self.recorder.register() == 0
        assert self.library.aclmdlInitDump() == 0
        assert self.library.aclmdlSetDump(os.fsencode(self.config)) == 0

    def configure(self, **settings: object) -> None:
        """Put other settings into the file that `begin` gives to the runtime."""
        self.config.write_text(json.dumps({"dump": {"dump_path": str(self.path), **settings}}))

    def run(self, workload: Workload, **settings: object) -> list[str]:
        """Run *workload* with *settings*; return the names of its files in the order they came."""
        self.configure(**settings)
        self.recorder.chunks.clear()
        with SimulatedRuntime(workload) as runtime:
            self.begin()
            runtime.run()
            self.finalize()
        self.library.acldumpUnregCallback()
        return list(self.recorder.files())

    def finalize(self) -> None:
        assert self.library.aclmdlFinalizeDump() == 0


@pytest.fixture
def library() -> Iterator[ctypes.CDLL]:
    library = SimulatedRuntime().library
    library.dssim_reset()
    yield library
    library.dssim_reset()


@pytest.fixture
def dump(library: ctypes.CDLL, tmp_path: Path) -> Dump:
    return Dump(library, tmp_path)


@pytest.fixture(autouse=True)
def _no_exception_dumps_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
