"""What a workload dumps."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from google.protobuf import (  # type: ignore[import-untyped]  # ships no types
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

from dumpstream.simulation import ExpectedFile, SimulatedRuntime, Workload

if TYPE_CHECKING:
    from .conftest import Dump, Seen

SLICED = Workload(models=1, ops=1, shape="40x16", dtypes="float32", slice_bytes=1024)


def dump_data_class() -> Any:
    """Build the message class from the published field numbers."""
    kinds = descriptor_pb2.FieldDescriptorProto
    messages: dict[str, list[tuple[int, str, int, str | None]]] = {
        "Shape": [(1, "dim", kinds.TYPE_UINT64, "*")],
        "OriginalOp": [(1, "name", kinds.TYPE_STRING, None), (2, "output_index", kinds.TYPE_UINT32, None)],
        "OpOutput": [
            (1, "data_type", kinds.TYPE_INT32, None),
            (2, "format", kinds.TYPE_INT32, None),
            (3, "shape", kinds.TYPE_MESSAGE, "Shape"),
            (4, "original_op", kinds.TYPE_MESSAGE, "OriginalOp"),
            (6, "size", kinds.TYPE_UINT64, None),
            (7, "original_shape", kinds.TYPE_MESSAGE, "Shape"),
            (9, "address", kinds.TYPE_UINT64, None),
        ],
        "OpInput": [
            (1, "data_type", kinds.TYPE_INT32, None),
            (2, "format", kinds.TYPE_INT32, None),
            (3, "shape", kinds.TYPE_MESSAGE, "Shape"),
            (5, "size", kinds.TYPE_UINT64, None),
            (6, "original_shape", kinds.TYPE_MESSAGE, "Shape"),
            (8, "address", kinds.TYPE_UINT64, None),
        ],
        "DumpData": [
            (1, "version", kinds.TYPE_STRING, None),
            (2, "dump_time", kinds.TYPE_UINT64, None),
            (3, "output", kinds.TYPE_MESSAGE, "*OpOutput"),
            (4, "input", kinds.TYPE_MESSAGE, "*OpInput"),
            (6, "op_name", kinds.TYPE_STRING, None),
        ],
    }
    file = descriptor_pb2.FileDescriptorProto(name="dump.proto", package="t", syntax="proto3")
    for name, rows in messages.items():
        message = file.message_type.add(name=name)
        for number, field, kind, extra in rows:
            message.field.add(
                name=field,
                number=number,
                type=kind,
                label=kinds.LABEL_REPEATED if extra and extra[0] == "*" else kinds.LABEL_OPTIONAL,
                type_name=f".t.{extra.strip('*')}" if extra and extra != "*" else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.DumpData"))


DUMP_DATA = dump_data_class()


def read_header(data: bytes) -> tuple[Any, bytes]:
    """Return the message at the head of a dump file, and what follows it."""
    length = int.from_bytes(data[:8], "little")
    return DUMP_DATA.FromString(data[8 : 8 + length]), data[8 + length :]


def promised(header: Any) -> int:
    return sum(tensor.size for tensor in [*header.input, *header.output])


def only(workload: Workload) -> ExpectedFile:
    (file,) = workload.expected_files("/dump")
    return file


def deliver(dump: Dump, workload: Workload) -> tuple[ExpectedFile, list[Seen]]:
    """Run a workload of one file; return what is expected of it and the chunks that came."""
    with SimulatedRuntime(workload) as runtime:
        dump.begin()
        runtime.run()
        dump.finalize()
    (file,) = workload.expected_files(dump.path)
    return file, dump.recorder.chunks_of(file.name)


def test_same_seed_gives_the_same_names_and_bytes() -> None:
    first, second = (list(Workload(seed=5, steps=2).expected_files("/dump")) for _ in range(2))

    assert first == second
    assert len({file.data for file in first}) == len(first) == 32


def test_another_seed_gives_other_names_and_bytes() -> None:
    first, second = (list(Workload(seed=seed).expected_files("/dump")) for seed in (5, 6))

    assert not {file.name for file in first} & {file.name for file in second}
    assert not {file.data for file in first} & {file.data for file in second}


@pytest.mark.parametrize("skew", [0, 2_500_000, -2_500_000])
def test_ranks_share_a_clock_that_is_skewed(skew: int) -> None:
    job = Workload(seed=5, steps=2, skew=skew)
    ranks = [list(job.of_rank(rank).expected_files("/dump")) for rank in range(3)]

    assert ranks[0] == list(replace(job, skew=0).expected_files("/dump"))
    assert not {file.data for file in ranks[1]} & {file.data for file in ranks[2]}
    for rank, files in enumerate(ranks):
        for ours, first in zip(files, ranks[0], strict=True):
            times = [int(file.name.rpartition(".")[2]) for file in (ours, first)]
            assert abs(times[0] - times[1] - rank * skew) < 37
            assert ours.name.split("/")[2] == first.name.split("/")[2]


def test_names_follow_canns_scheme() -> None:
    file = only(replace(SLICED, device_id=3))

    pattern = r"/dump/20\d{12}/3//transformer_0/1/0/MatMulV2\.layer_0_MatMulV2\.2\.3\.\d{16}"
    assert re.fullmatch(pattern, file.name)


def test_header_describes_the_segments() -> None:
    for file in Workload(seed=1, inputs=3, outputs=2).expected_files("/dump"):
        header, segments = read_header(file.data)
        tensors = [*header.input, *header.output]

        assert (header.version, len(header.input), len(header.output)) == ("2.0", 3, 2)
        assert str(header.dump_time) == file.name.rpartition(".")[2]
        assert header.op_name == file.name.split(".")[-4]
        assert promised(header) == len(segments)
        for tensor in tensors:
            width = {1: 4, 2: 2, 27: 2, 7: 4, 8: 8, 3: 1}[tensor.data_type]
            assert math.prod(tensor.shape.dim) * width == tensor.size
            assert tensor.original_shape == tensor.shape
            assert tensor.format == 2
            assert tensor.address


@pytest.mark.parametrize(
    ("dtype", "numpy_type"), [("float32", "<f4"), ("float16", "<f2"), ("bfloat16", None)]
)
def test_floats_look_like_activations_and_weights(dtype: str, numpy_type: str | None) -> None:
    _, segments = read_header(only(replace(SLICED, shape="200x1000", dtypes=dtype)).data)

    if numpy_type is None:
        values = (np.frombuffer(segments, "<u2").astype("<u4") << 16).view("<f4")
    else:
        values = np.frombuffer(segments, numpy_type).astype("<f4")
    activations, weights, outputs = values.reshape(3, -1)
    for rectified in (activations, outputs):
        assert (rectified == 0).mean() == pytest.approx(0.5, abs=0.02)
        assert rectified.min() == 0
        assert rectified[rectified > 0].mean() == pytest.approx(0.8, abs=0.03)
    assert weights.mean() == pytest.approx(0, abs=0.001)
    assert weights.std() == pytest.approx(0.02, abs=0.0005)
    assert len(np.unique(weights)) > 2000


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_look_like_token_ids(dtype: str) -> None:
    _, segments = read_header(only(replace(SLICED, shape="200x1000", dtypes=dtype)).data)

    ids = np.frombuffer(segments, dtype)
    assert ids.min() == 0
    assert 50000 < ids.max() < 50257
    assert (ids < 6283).mean() == pytest.approx(0.5, abs=0.02)


def test_bytes_look_like_quantised_weights() -> None:
    _, segments = read_header(only(replace(SLICED, shape="200x1000", dtypes="int8")).data)

    weights = np.frombuffer(segments, np.int8)[200_000:400_000]
    assert weights.std() == pytest.approx(18.5, abs=0.5)


def test_slices_of_any_size_read_the_same_bytes(dump: Dump) -> None:
    workload = Workload(models=1, ops=1, inputs=5, tensor_bytes="3001-9000", slice_bytes=509)

    file, chunks = deliver(dump, workload)

    assert b"".join(chunk.data for chunk in chunks) == file.data
    assert only(replace(workload, slice_bytes=1 << 20)).data == file.data


def test_slice_is_never_shorter_than_the_header(dump: Dump) -> None:
    file, chunks = deliver(dump, replace(SLICED, slice_bytes=1))

    header_bytes = 8 + int.from_bytes(file.data[:8], "little")
    assert {len(chunk.data) for chunk in chunks[:-1]} == {header_bytes}


def test_nan_fault_puts_nan_into_the_output_only() -> None:
    workload = replace(SLICED, nan="0@1", steps=2, dtypes="int8")

    before, after = workload.expected_files("/dump")

    header, segments = read_header(after.data)
    output = np.frombuffer(segments[-header.output[0].size :], "<f4")
    assert (before.fault, after.fault) == (None, "nan")
    assert header.output[0].data_type == 1
    assert 0 < np.isnan(output).sum() < len(output) / 10


def test_missing_last_brings_all_bytes_without_a_mark(dump: Dump) -> None:
    file, chunks = deliver(dump, replace(SLICED, missing_last="1.0"))

    assert file.data == only(SLICED).data
    assert b"".join(chunk.data for chunk in chunks) == file.data
    assert {chunk.last for chunk in chunks} == {0}


@pytest.mark.parametrize("slice_bytes", [1024, 1 << 20])
def test_truncated_lacks_its_end_and_a_mark(dump: Dump, slice_bytes: int) -> None:
    whole = only(SLICED).data

    file, chunks = deliver(dump, replace(SLICED, truncated="0", slice_bytes=slice_bytes))

    assert whole.startswith(file.data)
    assert len(file.data) < len(whole)
    assert b"".join(chunk.data for chunk in chunks) == file.data
    assert {chunk.last for chunk in chunks} == {0}


@pytest.mark.parametrize("slice_bytes", [1024, 1 << 20])
def test_resend_slice_repeats_one_chunk(dump: Dump, slice_bytes: int) -> None:
    whole = only(SLICED).data

    file, chunks = deliver(dump, replace(SLICED, resend_slice="0", slice_bytes=slice_bytes))

    repeated = [one for one, other in pairwise(chunks) if (one.data, one.last) == (other.data, other.last)]
    assert len(repeated) == 1
    assert len(chunks) == file.chunks == math.ceil(len(whole) / slice_bytes) + 1
    assert b"".join(chunk.data for chunk in chunks) == file.data
    assert len(file.data) == len(whole) + len(repeated[0].data)


def test_header_only_promises_and_brings_nothing(dump: Dump) -> None:
    file, (chunk,) = deliver(dump, replace(SLICED, header_only="0"))

    header, segments = read_header(file.data)
    assert segments == b""
    assert promised(header) == 3 * 2560
    assert (chunk.data, chunk.last) == (file.data, 1)


def test_null_address_leaves_out_the_first_tensor(dump: Dump) -> None:
    whole_header, whole = read_header(only(SLICED).data)

    file, chunks = deliver(dump, replace(SLICED, null_address="0"))

    header, segments = read_header(file.data)
    assert [tensor.address == 0 for tensor in [*header.input, *header.output]] == [True, False, False]
    assert promised(header) == promised(whole_header)
    assert segments == whole[2560:]
    assert chunks[-1].last == 1


def test_null_address_that_fills_its_slices_is_never_marked_last(dump: Dump) -> None:
    workload = replace(SLICED, null_address="0")
    length = len(only(workload).data)

    _, (chunk,) = deliver(dump, replace(workload, slice_bytes=length))

    assert len(chunk.data) == length
    assert chunk.last == 0


def test_stats_text_comes_in_messages_that_are_all_last(dump: Dump) -> None:
    file, chunks = deliver(dump, replace(SLICED, stats_text="0"))

    header, *rows = file.data.decode().splitlines(keepends=True)
    assert file.name.endswith(".csv")
    assert header.startswith("Input/Output,Index,Data Size,")
    assert [row.split(",")[:6] for row in rows] == [
        ["Input", "0", "2560", "DT_FLOAT", "ND", "40x16"],
        ["Input", "1", "2560", "DT_FLOAT", "ND", "40x16"],
        ["Output", "0", "2560", "DT_FLOAT", "ND", "40x16"],
    ]
    assert [chunk.data.decode() for chunk in chunks] == [
        header + rows[0] + "\0",
        rows[1] + "\0",
        rows[2] + "\0",
    ]
    assert {(chunk.last, chunk.address % 16, chunk.length - len(chunk.data)) for chunk in chunks} == {
        (1, 4, 4120)
    }


def test_stats_text_is_computed_from_the_values() -> None:
    _, segments = read_header(only(SLICED).data)
    first = np.frombuffer(segments[:2560], "<f4")

    row = only(replace(SLICED, stats_text="0")).data.decode().splitlines()[1].split(",")

    assert [float(text) for text in row[6:9]] == pytest.approx(
        [first.max(), first.min(), first.mean()], rel=1e-4
    )
    assert row[9:] == ["640", "0", "0", "0"]


def test_stats_header_comes_again_after_a_refusal(dump: Dump) -> None:
    answers = [1, 0, 0]
    dump.recorder.answer = lambda _: answers.pop(0)

    _, chunks = deliver(dump, replace(SLICED, stats_text="0"))

    assert [chunk.data.startswith(b"Input/Output,") for chunk in chunks] == [True, True, False]


def test_offsets_replace_appending(dump: Dump) -> None:
    file, chunks = deliver(dump, replace(SLICED, offsets="1.0"))

    assert [chunk.offset for chunk in chunks] == list(range(0, len(file.data), 1024))
    assert dump.recorder.files() == {file.name: file.data}
    assert file.data == only(SLICED).data


def test_shuffle_keeps_the_mark_on_the_end_of_the_file(dump: Dump) -> None:
    file, chunks = deliver(dump, replace(SLICED, shuffle="0"))

    offsets = [chunk.offset for chunk in chunks]
    assert offsets != sorted(offsets)
    assert [chunk.offset for chunk in chunks if chunk.last] == [max(offsets)]
    assert dump.recorder.files() == {file.name: file.data}
    assert file.data == only(SLICED).data


def test_shuffle_joins_another_fault(dump: Dump) -> None:
    file, chunks = deliver(dump, replace(SLICED, shuffle="0", resend_slice="0"))

    assert file.fault == "resend_slice+shuffle"
    assert len(chunks) == len({chunk.offset for chunk in chunks}) + 1
    assert dump.recorder.files() == {file.name: file.data} == {file.name: only(SLICED).data}


def test_share_selects_about_that_many_files() -> None:
    workload = Workload(models=4, ops=250, tensor_bytes="8", missing_last="0.25")

    faults = [file.fault for file in workload.expected_files("/dump")]

    assert 200 < faults.count("missing_last") < 300
