"""Watch mode: the outputs of watched operators, after others."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dumpstream import DumpFile
from dumpstream.config import Matcher, check_file, read_operators
from dumpstream.format.opname import parse_name
from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from .conftest import Dump

WORKLOAD = Workload(models=2, ops=8, steps=2, outputs=2, tensor_bytes="256-1024")
A, B, C, D = "layer_5_GatherV2", "layer_6_Mul", "layer_1_Relu", "layer_3_Add"


class Watched(NamedTuple):
    """One dump of a watched operator."""

    timestamp: int
    outputs: tuple[bytes, ...]


def watch(
    dump: Dump, workload: Workload, item: dict[str, Any], **more: Any
) -> dict[tuple[str, int, str], list[Watched]]:
    """Return the dumps of each model, step and watched operator, in order of time."""
    names = dump.run(workload, dump_scene="watcher", dump_mode="output", dump_list=[item], **more)
    text = dump.config.read_text()
    files = dump.recorder.files()
    assert files == {file.name: file.data for file in workload.expected_files("", config=text)}
    found: defaultdict[tuple[str, int, str], list[Watched]] = defaultdict(list)
    for name in names:
        parsed, file = parse_name(name), DumpFile.open(files[name])
        assert {str(tensor.io) for tensor in file.tensors} == {"output"}
        assert parsed.model is not None
        assert parsed.iteration is not None
        assert parsed.op_name is not None
        assert parsed.timestamp is not None
        outputs = tuple(bytes(file.bytes(tensor)) for tensor in file.tensors)
        watched = parsed.op_name.rpartition("_To_")[2]
        found[parsed.model, parsed.iteration, watched].append(Watched(parsed.timestamp, outputs))
    return {key: sorted(dumps) for key, dumps in found.items()}


def test_watched_outputs_come_after_the_layers_and_after_the_watched(dump: Dump) -> None:
    found = watch(dump, WORKLOAD, {"layer": [A, B], "watcher_nodes": [C, D]})

    assert set(found) == {
        (f"transformer_{model}", step, name) for model in range(2) for step in range(2) for name in (C, D)
    }
    for dumps in found.values():
        assert len({one.timestamp for one in dumps}) == len(dumps) == 4
        assert len({one.outputs for one in dumps}) == 1


def test_without_layers_they_come_after_every_operator(dump: Dump) -> None:
    found = watch(dump, replace(WORKLOAD, models=1, steps=1), {"watcher_nodes": [C]})

    assert {key: len(dumps) for key, dumps in found.items()} == {("transformer_0", 0, C): 8}


def test_a_name_in_both_lists_and_a_collective_give_no_dump_of_their_own(dump: Dump) -> None:
    workload = replace(WORKLOAD, models=1, steps=1, op_types="Relu+HcomAllReduce")
    item = {
        "layer": ["layer_0_Relu", "layer_2_Relu", "layer_3_HcomAllReduce"],
        "watcher_nodes": ["layer_0_Relu"],
    }

    found = watch(dump, workload, item)

    assert [len(dumps) for dumps in found.values()] == [2]


def test_the_last_item_and_the_steps_decide(dump: Dump) -> None:
    names = dump.run(
        WORKLOAD,
        dump_scene="watcher",
        dump_list=[{"watcher_nodes": [D]}, {"layer": [A], "watcher_nodes": [C]}],
        dump_step="1",
    )

    assert {(parse_name(name).iteration, parse_name(name).op_name) for name in names} == {
        (1, C),
        (1, f"{A}_To_{C}"),
    }


def test_names_tell_after_which_operator_a_dump_came(dump: Dump) -> None:
    workload = replace(WORKLOAD, models=1, steps=1)

    names = dump.run(workload, dump_scene="watcher", dump_list=[{"layer": [A], "watcher_nodes": [C]}])

    told = {(it.op_type, it.op_name, it.task, it.stream) for it in map(parse_name, names)}
    assert told == {("Relu", C, 3, 3), ("Relu", f"{A}_To_{C}", 7, 3)}


@pytest.mark.parametrize(("overwrite", "steps"), [("5:1", {0, 1}), ("5:1@1", {1})])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "int8"])
def test_a_writer_changes_an_eighth_of_the_first_output_from_then_on(
    dump: Dump, overwrite: str, steps: set[int], dtype: str
) -> None:
    workload = replace(WORKLOAD, overwrite=overwrite, dtypes=dtype)
    whole = watch(dump, replace(WORKLOAD, dtypes=dtype), {"layer": [A, B], "watcher_nodes": [C, D]})

    found = watch(dump, workload, {"layer": [A, B], "watcher_nodes": [C, D]})

    for (model, step, name), dumps in found.items():
        (intact,) = {one.outputs for one in whole[model, step, name]}
        if name == C and step in steps:
            before, after = [one.outputs for one in dumps[:2]], {one.outputs for one in dumps[2:]}
            (changed,) = after
            first = [np.frombuffer(output[0], np.uint8) for output in (intact, changed)]
            assert before == [intact, intact]
            assert (first[0] != first[1]).mean() == pytest.approx(1 / 8, abs=0.05)
            assert changed[1] == intact[1]
        else:
            assert {one.outputs for one in dumps} == {intact}


def test_a_writer_must_come_after_what_it_writes_over() -> None:
    for text in ("overwrite=1:1", "overwrite=2:3", "overwrite=5", "overwrite=5:1@", "overwrite=a:1"):
        with pytest.raises(ValueError, match="must be A:C or A:C@STEP"):
            Workload.parse(text)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    layer=st.lists(st.integers(0, 9), max_size=3),
    nodes=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    step=st.sampled_from(["", "1"]),
)
def test_the_runtime_watches_what_the_matcher_says(
    dump: Dump, layer: list[int], nodes: list[int], step: str
) -> None:
    workload = Workload(models=2, ops=8, steps=2, op_types="Relu+HcomAllReduce+Add+Data", tensor_bytes="8")
    graph = read_operators(workload.graph().encode())
    names = [op.name for op in graph[: workload.ops]] + ["absent", "layer_0_Add"]
    item = {"watcher_nodes": [names[place] for place in nodes]}
    item |= {"layer": [names[place] for place in layer]} if layer else {}

    found = watch(dump, workload, item, **({"dump_step": step} if step else {}))

    config = check_file(dump.config).config
    assert config is not None
    matcher = Matcher(config.dump, graph)
    triggers = sum(matcher.triggers(op) for op in graph) // workload.models
    predicted = {
        (op.model, number, op.name): triggers
        for op in graph
        for number in range(2)
        if matcher.match(op.model_copy(update={"step": number, "io": "output"})).dumped
    }
    assert {key: len(dumps) for key, dumps in found.items()} == predicted
    assert sum(len(dumps) for dumps in found.values()) == matcher.count_watch_dumps() * (1 if step else 2)
