"""Exception dumps: on disk, never through the callback."""

from __future__ import annotations

import ctypes
import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.exceptions import BRIEF, DETAIL, NORM, WORKLOAD, dumps_below

from dumpstream import DumpFile
from dumpstream.format.opname import Scheme, parse_name
from dumpstream.format.overflowrecord import kind_of
from dumpstream.simulation import SimulatedRuntime

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Dump


def kinds(path: Path) -> list[str]:
    with DumpFile.open(path) as file:
        return [kind_of(tensor.input_type) for tensor in file.tensors if str(tensor.io) == "input"]


def test_nothing_reaches_the_callback_and_only_what_fails_the_disk(dump: Dump) -> None:
    names = dump.run(WORKLOAD, dump_scene=NORM)

    files = dumps_below(dump.path)
    assert names == []
    assert [file.parent for file in files] == [dump.path / "extra-info/data-dump/3"] * 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o400}
    assert {parse_name(str(file)).scheme for file in files} == {Scheme.EXCEPTION}


def test_norm_dumps_are_named_by_operator_and_have_types_and_a_workspace(dump: Dump) -> None:
    dump.run(replace(WORKLOAD, models=1), dump_scene=NORM)

    (path,) = dumps_below(dump.path)
    name = parse_name(str(path))
    assert (name.op_type, name.op_name, name.task) == ("LayerNorm", "layer_2_LayerNorm", 4)
    assert len(str(name.timestamp)) == 17
    assert kinds(path) == ["input", "input", "tiling_data", "args"]
    with DumpFile.open(path) as file:
        file.read_to_end()
        assert [str(tensor.io) for tensor in file.tensors] == ["input"] * 4 + ["output", "space"]
        assert file.tensors[0].dtype.name != "DT_UNDEFINED"
        assert "layer_2_LayerNorm failed" in file.dfx_message


@pytest.mark.parametrize("scene", [BRIEF, "lite_exception"])
def test_brief_dumps_are_named_by_stream_and_task_and_have_kinds_without_types(
    dump: Dump, scene: str
) -> None:
    dump.run(replace(WORKLOAD, models=1), dump_scene=scene)

    (path,) = dumps_below(dump.path)
    name = parse_name(str(path))
    assert path.name.startswith("exception_info.3.4.")
    assert (name.stream, name.task, name.core_type) == (3, 4, None)
    assert kinds(path) == ["input", "input", "output", "workspace", "tiling_data", "args"]
    with DumpFile.open(path) as file:
        file.read_to_end()
        assert {tensor.dtype.name for tensor in file.tensors} == {"DT_UNDEFINED"}
        assert [tensor.arg_index for tensor in file.tensors] == list(range(6))


def test_detailed_dumps_name_the_core_and_have_its_memory(dump: Dump) -> None:
    dump.configure(dump_scene=DETAIL)
    with SimulatedRuntime(replace(WORKLOAD, models=1), config=dump.config) as runtime:
        runtime.run()

    (path,) = dumps_below(dump.path)
    assert parse_name(str(path)).core_type == "AIC"
    assert kinds(path)[-2:] == ["l1", "stack"]


def test_what_does_not_fail_leaves_nothing(dump: Dump) -> None:
    dump.run(replace(WORKLOAD, fails=""), dump_scene=NORM)

    assert dumps_below(dump.path) == []


def test_a_finalised_dump_takes_other_scenes_with_it(dump: Dump) -> None:
    dump.run(WORKLOAD, dump_scene=NORM)
    before = dumps_below(dump.path)

    with SimulatedRuntime(WORKLOAD) as runtime:
        runtime.run()

    assert dumps_below(dump.path) == before


def test_what_the_disk_does_not_take_is_counted(dump: Dump) -> None:
    (dump.path / "extra-info").write_text("in the way")

    dump.run(WORKLOAD, dump_scene=NORM)

    with SimulatedRuntime(WORKLOAD) as runtime:
        assert (runtime.counters.lost, runtime.counters.exceptions) == (2, 0)


class TensorInfo(ctypes.Structure):
    """acldumpTensorInfo."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_size_t),
        ("format", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("address", ctypes.c_void_p),
        ("address_type", ctypes.c_uint32),
        ("placement", ctypes.c_uint32),
        ("args_offset", ctypes.c_uint32),
        ("dims", ctypes.c_uint32),
        ("original_dims", ctypes.c_uint32),
        ("shape", ctypes.c_uint64 * 25),
        ("original_shape", ctypes.c_uint64 * 25),
    )


DATA = ctypes.create_string_buffer(bytes(range(24)), 24)
POINTER = ctypes.c_void_p(ctypes.addressof(DATA))


def tensor(**changes: int) -> TensorInfo:
    info = TensorInfo(size=24, dtype=0, address=ctypes.addressof(DATA), dims=2)
    info.shape[0], info.shape[1] = 2, 3
    for name, value in changes.items():
        setattr(info, name, value)
    return info


class TestSaveExceptionInfo:
    @staticmethod
    def save(dump: Dump, *infos: TensorInfo, name: bytes | None = b"mine") -> int:
        array = (TensorInfo * len(infos))(*infos) if infos else None
        return int(dump.library.acldumpSaveExceptionInfo(name, b"tag", array, len(infos)))

    @staticmethod
    def switch_on(dump: Dump) -> None:
        dump.configure(dump_scene=BRIEF)
        dump.library.aclInit(os.fsencode(dump.config))

    def test_writes_what_the_program_gives(self, dump: Dump) -> None:
        self.switch_on(dump)

        code = self.save(
            dump, tensor(type=1), tensor(), tensor(type=2, address=ctypes.addressof(POINTER), address_type=1)
        )

        (path,) = dumps_below(dump.path)
        assert code == 0
        assert path.match("extra-info/data-dump/0/mine.custom.*")
        with DumpFile.open(path) as file:
            assert file.attributes == (("user_tag", "tag"),)
            assert [str(one.io) for one in file.tensors] == ["input", "output", "space"]
            assert file.tensors[0].shape == (2, 3)
            assert {bytes(file.bytes(one)) for one in file.tensors} == {bytes(range(24))}

    def test_needs_exception_dumps(self, dump: Dump) -> None:
        dump.library.aclInit(None)

        assert self.save(dump, tensor()) == 500001

    @pytest.mark.parametrize(
        "changes",
        [
            {"address": None},
            {"size": 0},
            {"dims": 26},
            {"original_dims": 26},
            {"type": 3},
            {"address_type": 3},
            {"placement": 2},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_refuses_a_wrong_tensor(self, dump: Dump, changes: dict[str, Any]) -> None:
        self.switch_on(dump)

        assert self.save(dump, tensor(), tensor(**changes)) == 100000
        assert dumps_below(dump.path) == []

    def test_refuses_a_wrong_name_and_no_tensors(self, dump: Dump) -> None:
        self.switch_on(dump)

        codes = [self.save(dump, tensor(), name=name) for name in (None, b"", b"..", b"a/../b")]

        assert [*codes, self.save(dump)] == [100000] * 5
        assert dumps_below(dump.path) == []


def test_the_directory_is_told_if_there_is_room_for_it(dump: Dump) -> None:
    TestSaveExceptionInfo.switch_on(dump)
    expected = os.fsencode(dump.path / "extra-info/data-dump/0")
    room = ctypes.create_string_buffer(len(expected) + 1)
    ask = dump.library.acldumpGetExceptionInfoPath

    codes = [ask(None, 100), ask(room, 1), ask(room, len(expected)), ask(room, len(room))]

    assert codes == [100000, 100000, 100000, 0]
    assert room.value == expected
