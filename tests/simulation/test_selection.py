"""What the runtime dumps is what the configuration says, as `dumpstream.config` understands it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dumpstream import DumpFile
from dumpstream.config import Matcher, Operator, check_bytes, check_file, read_operators
from dumpstream.format.opname import Scheme, parse_name
from dumpstream.simulation import SimulatedRuntime, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Dump

GRAPH = Workload(
    models=2,
    ops=8,
    single_ops=2,
    steps=3,
    inputs=2,
    outputs=2,
    op_types="Data+MatMulV2+Relu+HcomAllReduce+Add",
    tensor_bytes="8",
    dtypes="int8",
    device_threads=1,
)
OPERATORS = read_operators(GRAPH.graph().encode())
CALLS = ("aclnnMatmul", "aclnnAdd")
NAMES = sorted({op.name for op in OPERATORS})


class Dumped(NamedTuple):
    """A tensor in a dump file."""

    model: str
    name: str
    step: int | None
    level: str
    io: str
    number: int  #: among the inputs or the outputs


def tensors(names: list[str], files: dict[str, bytes]) -> Iterator[tuple[Dumped, int]]:
    """Yield every tensor of the files, with its index in the file, and its address."""
    for name in names:
        parsed = parse_name(name)
        assert parsed.op_name is not None
        assert parsed.op_type is not None
        single = parsed.scheme == Scheme.ACLNN
        kernel = parsed.op_type.endswith("_L0") if single else parsed.op_name.endswith("_kernel")
        plain = parsed.op_type.split("_")[0] if single else parsed.op_name.removesuffix("_kernel")
        step = None if single else parsed.iteration
        for tensor in DumpFile.open(files[name]).tensors:
            yield (
                Dumped(
                    parsed.model or "",
                    plain,
                    step,
                    "kernel" if kernel else "op",
                    str(tensor.io),
                    tensor.index,
                ),
                tensor.address,
            )


def everything() -> dict[tuple[str, int], tuple[str, int]]:
    """Return which tensor has which address, by operator: indices in a file skip what is on a blacklist."""
    whole = {"dump_path": "/dump", "dump_mode": "all", "dump_level": "op", "dump_list": [{}]}
    files = {
        file.name: file.data
        for file in GRAPH.expected_files(
            "/dump", config=json.dumps({"dump": whole | {"dump_op_switch": "on"}})
        )
    }
    return {
        (one.model + one.name, address): (one.io, one.number) for one, address in tensors(list(files), files)
    }


PLACES = everything()


def predicted(text: str) -> set[Dumped]:
    """Return what the matcher says, with every call and every tensor asked for by itself."""
    config = check_bytes(text.encode()).config
    assert config is not None
    matcher = Matcher(config.dump, OPERATORS)
    calls = [Operator(name=name, single=True) for name in CALLS]
    found = set()
    for op in [*OPERATORS, *calls]:
        for step in [None] if op.single else range(GRAPH.steps):
            for level in ("op", "kernel"):
                for io in ("input", "output"):
                    for index in range(2):
                        asked = op.model_copy(update={"step": step, "level": level, "io": io, "index": index})
                        if matcher.match(asked).dumped:
                            found.add(Dumped(op.model, op.name, step, level, io, index))
    return found


def blacklists() -> st.SearchStrategy[list[dict[str, Any]]]:
    positions = st.lists(st.sampled_from(["input0", "input1", "output0", "output1", "x"]), max_size=3)
    names = st.sampled_from(["", "Relu", "Add", *NAMES])
    return st.lists(st.fixed_dictionaries({"name": names, "pos": positions}), max_size=3)


def items() -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(st.sampled_from([*NAMES, "absent"]), min_size=1, max_size=3)
    ends = st.sampled_from([*NAMES, "absent"])
    return st.fixed_dictionaries(
        {},
        optional={
            "model_name": st.sampled_from(["transformer_0", "transformer_1", "absent"]),
            "layer": some,
            "optype_blacklist": blacklists(),
            "opname_blacklist": blacklists(),
            "opname_range": st.lists(st.fixed_dictionaries({"begin": ends, "end": ends}), max_size=2),
        },
    )


def selections() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"dump_list": st.lists(items(), max_size=3)},
        optional={
            "dump_mode": st.sampled_from(["input", "output", "all"]),
            "dump_level": st.sampled_from(["op", "op", "kernel", "all"]),
            "dump_op_switch": st.sampled_from(["on", "off"]),
            "dump_step": st.sampled_from(["0", "1-2", "0|2", "7"]),
        },
    )


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(chosen=selections(), io_files=st.sampled_from(["joint", "separate"]))
def test_the_runtime_dumps_what_the_matcher_says(dump: Dump, chosen: dict[str, Any], io_files: str) -> None:
    dump.configure(**chosen)
    assume(not check_file(dump.config).errors)
    workload = Workload(**{name: getattr(GRAPH, name) for name in GRAPH.__slots__} | {"io_files": io_files})

    names = dump.run(workload, **chosen)

    files = dump.recorder.files()
    found = [
        one._replace(
            io=PLACES[one.model + one.name, address][0], number=PLACES[one.model + one.name, address][1]
        )
        if one.step is not None
        else one
        for one, address in tensors(names, files)
    ]
    assert set(found) == predicted(dump.config.read_text())
    assert sorted(names) == sorted(
        file.name for file in workload.expected_files("", config=dump.config.read_text())
    )


def mostly(*values: object) -> st.SearchStrategy[object]:
    """Choose one of *values*, and sometimes something else."""
    wrong: st.SearchStrategy[object] = st.sampled_from(["", "no", 1, None, [], {}, ["x"], [1], [{}]])
    return st.integers(0, 9).flatmap(lambda drawn: st.sampled_from(values) if drawn else wrong)


def anything() -> st.SearchStrategy[dict[str, Any]]:
    """Make settings that may be right, wrong, or in conflict with one another."""
    long_blacklist = [{"name": "a", "pos": ["input0"]}] * 101
    item = st.fixed_dictionaries(
        {},
        optional={
            "model_name": mostly("m", ""),
            "layer": mostly(["a"], []),
            "watcher_nodes": mostly(["a"], []),
            "optype_blacklist": mostly([], [{}], long_blacklist[1:], long_blacklist),
            "opname_range": mostly([], [{"begin": "a", "end": "b"}], [{"begin": "a"}]),
        },
    )
    return st.fixed_dictionaries(
        {"dump_path": mostly(".", ".", ".", "10.0.0.1:/x", "10.0.0.1:/a b", "256.0.0.1:/x", "x" * 513)},
        optional={
            "dump_list": st.lists(item, max_size=2) | mostly([]),
            "dump_mode": mostly("input", "output", "all"),
            "dump_level": mostly("op", "kernel", "all"),
            "dump_op_switch": mostly("on", "off"),
            "dump_debug": mostly("on", "off"),
            "dump_step": mostly("", "0|3-5", "5-3", "1|", "0" * 30, "9" * 40, "|".join("1" * 101)),
            "dump_data": mostly("tensor", "stats"),
            "dump_stats": mostly(["Max"], ["L2norm", "Negative Inf"]),
            "dump_kernel_data": mostly("all", "printf,assert", "printf,", "all,no"),
            "dump_scene": mostly("lite_exception", "aic_err_norm_dump", "watcher"),
        },
    )


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(dump_section=anything())
def test_the_runtime_refuses_what_the_check_refuses(dump: Dump, dump_section: dict[str, Any]) -> None:
    dump.config.write_text(json.dumps({"dump": dump_section}))
    dump.library.aclInit(None)
    dump.library.aclmdlInitDump()

    code = dump.library.aclmdlSetDump(os.fsencode(dump.config))

    assert code == (100009 if check_file(dump.config).errors else 0)


ONE = Workload(models=1, ops=1, tensor_bytes="8", op_types="MatMulV2")


@pytest.mark.parametrize(
    ("workload", "mode", "parts"),
    [
        (ONE, "input", [(2, 0)]),
        (ONE, "output", [(0, 1)]),
        (ONE, "all", [(2, 1)]),
        (Workload(models=1, ops=1, io_files="separate"), "all", [(2, 0), (0, 1)]),
        (Workload(models=1, ops=1, op_types="HcomAllReduce"), "all", [(2, 0), (0, 1)]),
    ],
    ids=["input", "output", "all", "separate", "collective"],
)
def test_dump_mode_says_which_tensors_a_file_has(
    dump: Dump, workload: Workload, mode: str, parts: list[tuple[int, int]]
) -> None:
    dump.run(workload, dump_mode=mode, dump_level="op", dump_list=[{}])

    found = [
        tuple(sum(tensor.io == io for tensor in DumpFile.open(data).tensors) for io in ("input", "output"))
        for data in dump.recorder.files().values()
    ]
    assert found == parts


def test_a_call_is_dumped_by_function_and_by_kernel_inputs_before_outputs(dump: Dump) -> None:
    workload = Workload(models=1, ops=1, single_ops=1, steps=2, device_threads=1)

    names = dump.run(workload, dump_mode="all", dump_op_switch="on")

    parsed = [parse_name(name) for name in names]
    assert [(one.op_type, one.op_name) for one in parsed] == [
        (f"aclnnMatmul_{step}_{level}", name)
        for step in range(2)
        for level, name in (
            ("L2", "aclnnMatmul"),
            ("L2", "aclnnMatmul"),
            ("L0", "MatMulV3"),
            ("L0", "MatMulV3"),
        )
    ]
    assert {(one.scheme, one.model, one.device) for one in parsed} == {(Scheme.ACLNN, None, 0)}
    assert len({one.timestamp for one in parsed}) == len(parsed)


class TestModels:
    """Models dump what was in force when they were loaded; calls, what is in force when they are made."""

    workload = Workload(models=1, ops=2, single_ops=1, tensor_bytes="8")

    @staticmethod
    def types(dump: Dump) -> list[str]:
        found = sorted({parse_name(name).op_type or "" for name in dump.recorder.files()})
        dump.recorder.chunks.clear()
        return found

    def test_loaded_before_the_configuration_are_not_dumped(self, dump: Dump) -> None:
        with SimulatedRuntime(self.workload) as runtime:
            runtime.load_models()
            dump.begin()
            runtime.run()
            dump.finalize()

        assert self.types(dump) == ["aclnnMatmul_0_L2"]

    def test_keep_their_configuration_when_another_replaces_it(self, dump: Dump) -> None:
        with SimulatedRuntime(self.workload) as runtime:
            dump.configure(dump_level="op", dump_list=[{"layer": ["layer_0_MatMulV2"]}])
            dump.begin()
            runtime.load_models()
            dump.configure(dump_level="op", dump_list=[{"layer": ["layer_1_Relu"]}])
            assert dump.library.aclmdlSetDump(os.fsencode(dump.config)) == 0
            runtime.run()
            runtime.synchronize()
            runtime.unload_models()
            runtime.run()
            dump.finalize()

        steps = [(parse_name(name).iteration, parse_name(name).op_type) for name in dump.recorder.files()]
        assert sorted(steps) == [(0, "MatMulV2"), (1, "Relu")]

    def test_are_not_dumped_once_their_dump_is_finalised(self, dump: Dump) -> None:
        with SimulatedRuntime(self.workload) as runtime:
            dump.begin()
            runtime.load_models()
            dump.finalize()
            assert self.types(dump) == []
            assert dump.library.aclmdlInitDump() == 0
            assert dump.library.aclmdlSetDump(os.fsencode(dump.config)) == 0
            runtime.run()
            dump.finalize()

        assert self.types(dump) == ["aclnnMatmul_0_L2"]


class TestStatistics:
    workload = Workload(models=1, ops=1, inputs=8, outputs=4, shape="2x3", dtypes="float32")

    def lines(self, dump: Dump, workload: Workload, **chosen: object) -> list[str]:
        names = dump.run(
            workload, dump_mode="all", dump_level="op", dump_list=[{}], dump_data="stats", **chosen
        )
        (expected,) = workload.expected_files("", config=dump.config.read_text())
        (text,) = dump.recorder.files().values()
        assert names == [expected.name]
        assert text.replace(b"\0", b"") == expected.data
        assert len(dump.recorder.chunks) == expected.chunks
        assert {chunk.last for chunk in dump.recorder.chunks} == {1}
        return expected.data.decode().splitlines()

    def test_come_ten_tensors_at_a_time_from_the_kernel(self, dump: Dump) -> None:
        header, *rows = self.lines(dump, self.workload)

        assert header.endswith(
            "Shape,Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count"
        )
        assert [row.split(",")[:2] for row in rows[7:9]] == [["Input", "7"], ["Output", "0"]]
        assert [chunk.data.count(b"\n") for chunk in dump.recorder.chunks] == [11, 2]
        assert all(chunk.data.endswith(b"\n\0") for chunk in dump.recorder.chunks)

    def test_are_chosen_by_dump_stats(self, dump: Dump) -> None:
        header, *rows = self.lines(dump, self.workload, dump_stats=["L2norm", "Max"])

        assert header.endswith("Shape,Count,Max Value,l2norm")
        assert {len(row.split(",")) for row in rows} == {9}
        assert all(float(row.split(",")[8]) >= float(row.split(",")[7]) for row in rows)

    def test_come_in_one_piece_from_the_aicpu_which_does_not_know_bfloat16(self, dump: Dump) -> None:
        workload = Workload(
            models=1, ops=1, inputs=8, outputs=4, shape="2x3", dtypes="bfloat16", stats_by="aicpu"
        )

        header, *rows = self.lines(dump, workload, dump_stats=["Max"])

        (chunk,) = dump.recorder.chunks
        assert not chunk.data.endswith(b"\0")
        assert rows[0] == "Input,0,12,-,ND,2x3,,,,,,,"
        assert len(rows) == 12
        assert "Avg Value" in header


SOUND = json.dumps(
    {
        "dump": {
            "dump_path": ".",
            "dump_mode": "all",
            "dump_level": "op",
            "dump_step": "0|3-5",
            "dump_list": [
                {
                    "model_name": "größe",
                    "layer": ["a", "\\ud83d\\ude00"],
                    "opname_range": [{"begin": "a", "end": "b"}],
                }
            ],
        },
        "other": [1.5e-3, -0, True, None, [[[{}]]]],
    },
    ensure_ascii=False,
).encode()


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    place=st.integers(0, len(SOUND)),
    cut=st.integers(0, 2),
    put=st.binary(max_size=2)
    | st.sampled_from([b"\xef\xbb\xbf", b"1e999", b"[" * 11, b"\\u00e9", b"\\ud83d"]),
)
def test_a_damaged_file_gets_the_code_that_the_check_names(
    dump: Dump, place: int, cut: int, put: bytes
) -> None:
    dump.config.write_bytes(SOUND[:place] + put + SOUND[place + cut :])
    dump.library.aclInit(None)
    dump.library.aclmdlInitDump()

    code = dump.library.aclmdlSetDump(os.fsencode(dump.config))

    errors = check_file(dump.config).errors
    assert code == (errors[0].acl_error if errors else 0)
