"""Names of dump files: those of CANN are read back, and no other name is an error."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream import OpName, parse_name
from dumpstream.format.opname import Scheme
from dumpstream.simulation import Workload

STAMP = 1780159660546556
RUN = "/data/dump/20260530164725"
IN_MODEL = OpName(task=3, stream=4, timestamp=STAMP, device=0, model="m", model_id=1, iteration=7)

numbers = st.integers(0, 2**32 - 1)
stamps = st.integers(10**15, 10**16 - 1)
devices = st.integers(0, 99)
#: A name after the device has replaced space, dot, slash and backslash.
sanitised = st.text(
    st.characters(exclude_characters=" ./\\", exclude_categories=("Cc", "Cs")), min_size=1, max_size=20
)
#: The names of a graph keep them; slashes make directories, and none is empty or looks like a device.
raw_names = st.lists(
    st.text(st.sampled_from("abC_-. 5"), min_size=1, max_size=6).filter(lambda text: text.strip(". 5")),
    min_size=1,
    max_size=3,
).map("/".join)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            f"{RUN}/0//resnet_50/1/7/Conv2D.conv1.3.4.{STAMP}",
            IN_MODEL._replace(scheme=Scheme.MODEL, op_type="Conv2D", op_name="conv1", model="resnet_50"),
        ),
        (
            f"{RUN}/2//Conv2D.conv1.3.{STAMP}",
            OpName(scheme=Scheme.MODEL, op_type="Conv2D", op_name="conv1", task=3, timestamp=STAMP, device=2),
        ),
        (
            f"192.168.1.5:{RUN}/0/m/1/7/Conv2D.conv1.3.4.{STAMP}.zst",
            IN_MODEL._replace(scheme=Scheme.MODEL, op_type="Conv2D", op_name="conv1"),
        ),
        (
            f"{RUN}/1/m/1/7/Conv2D.conv1.3.4.{STAMP}.4.11.12.1",
            IN_MODEL._replace(
                scheme=Scheme.FFTS, op_type="Conv2D", op_name="conv1", device=1, context=11, thread=12
            ),
        ),
        (
            f"Conv2D.conv1.3.4.{STAMP}.4.11.12.1",
            OpName(
                scheme=Scheme.FFTS,
                op_type="Conv2D",
                op_name="conv1",
                task=3,
                stream=4,
                timestamp=STAMP,
                device=1,
                context=11,
                thread=12,
            ),
        ),
        (
            "20260530164725/0/aclnnTriangularSolve_0_L2.aclnnTriangularSolve.4.65535.1780159660546556",
            OpName(
                scheme=Scheme.ACLNN,
                op_type="aclnnTriangularSolve_0_L2",
                op_name="aclnnTriangularSolve",
                task=4,
                stream=65535,
                timestamp=STAMP,
                device=0,
            ),
        ),
        (
            f"{RUN}/0/aclnnAdd_3_L0.AxpyV2.4.5.{STAMP}",
            OpName(
                scheme=Scheme.ACLNN,
                op_type="aclnnAdd_3_L0",
                op_name="AxpyV2",
                task=4,
                stream=5,
                timestamp=STAMP,
                device=0,
            ),
        ),
        (
            f"/data/3/MatMul.layer.1/attention/0/dense.9.3.4.{STAMP}",
            OpName(
                scheme=Scheme.GRAPH,
                op_type="MatMul",
                op_name="layer.1/attention/0/dense",
                number=9,
                task=3,
                stream=4,
                timestamp=STAMP,
                device=3,
            ),
        ),
        (
            f"/data/3/MatMul.dense.9.3.4.{STAMP}.FFTSPLUS.5.6.3",
            OpName(
                scheme=Scheme.GRAPH,
                op_type="MatMul",
                op_name="dense",
                number=9,
                task=3,
                stream=4,
                timestamp=STAMP,
                device=3,
                context=5,
                thread=6,
            ),
        ),
        (
            f"{RUN}/0/m/1/7/Add.add_1.3.4.{STAMP}.csv",
            IN_MODEL._replace(scheme=Scheme.STATISTICS, op_type="Add", op_name="add_1"),
        ),
        (
            f"{RUN}/0/m/1/7/Opdebug.Node_OpDebug.3.4.{STAMP}",
            IN_MODEL._replace(scheme=Scheme.OVERFLOW, op_type="Opdebug", op_name="Node_OpDebug"),
        ),
        (
            "/dumps/extra-info/data-dump/5/exception_info.7.8.20260530164725123",
            OpName(scheme=Scheme.EXCEPTION, stream=7, task=8, timestamp=20260530164725123, device=5),
        ),
        (
            f"exception_info.7.8.{STAMP}",
            OpName(scheme=Scheme.EXCEPTION, stream=7, task=8, timestamp=STAMP),
        ),
        (
            "/dumps/extra-info/data-dump/5/exception_info.7.8.AIV.3.20260530164725123",
            OpName(
                scheme=Scheme.EXCEPTION,
                stream=7,
                task=8,
                core_type="AIV",
                core_id=3,
                timestamp=20260530164725123,
                device=5,
            ),
        ),
        (
            "/dumps/extra-info/data-dump/5/te_add_0.kernel.7.8.0.3.20260530164725123",
            OpName(
                scheme=Scheme.EXCEPTION,
                op_name="te_add_0.kernel",
                stream=7,
                task=8,
                core_type="0",
                core_id=3,
                timestamp=20260530164725123,
                device=5,
            ),
        ),
        (
            "/copied/Add.add_1.8.20260530164725123",
            OpName(
                scheme=Scheme.EXCEPTION, op_type="Add", op_name="add_1", task=8, timestamp=20260530164725123
            ),
        ),
        (
            f"/dumps/extra-info/data-dump/5/Add.add_1.8.{STAMP}",
            OpName(
                scheme=Scheme.EXCEPTION, op_type="Add", op_name="add_1", task=8, timestamp=STAMP, device=5
            ),
        ),
        (
            "/copied/te_add_0.7.8.20260530164725123.core",
            OpName(
                scheme=Scheme.EXCEPTION, op_name="te_add_0", stream=7, task=8, timestamp=20260530164725123
            ),
        ),
        (
            "/copied/mine.custom.20260530164725123",
            OpName(scheme=Scheme.EXCEPTION, timestamp=20260530164725123),
        ),
    ],
)
def test_names_of_every_scheme(name: str, said: OpName) -> None:
    assert parse_name(name) == said


@pytest.mark.parametrize(
    ("directories", "said"),
    [
        ("", (None, None, None)),
        ("m", ("m", None, None)),
        ("1", (None, 1, None)),
        ("m/1", ("m", 1, None)),
        ("1/7", (None, 1, 7)),
        ("m/1/7", ("m", 1, 7)),
        ("5/1/7", ("5", 1, 7)),
    ],
)
def test_directories_behind_the_device_may_be_missing(
    directories: str, said: tuple[str | None, int | None, int | None]
) -> None:
    parsed = parse_name(f"{RUN}/3/{directories}/Add.add.1.2.{STAMP}")

    assert parsed.device == 3
    assert (parsed.model, parsed.model_id, parsed.iteration) == said


def test_directories_by_another_scheme_say_nothing() -> None:
    for path in (f"{RUN}/3/a/b/c/d", "/data/3/m/1/7", f"{RUN}/device/m/1/7"):
        parsed = parse_name(f"{path}/Add.add.1.2.{STAMP}")

        assert (parsed.device, parsed.model, parsed.model_id, parsed.iteration) == (None,) * 4
        assert (parsed.op_type, parsed.task) == ("Add", 1)


def test_simulated_names_are_taken_apart() -> None:
    for file in Workload(steps=2, device_id=5).expected_files("/dump"):
        parsed = parse_name(file.name)

        assert parsed.scheme is Scheme.MODEL
        assert (parsed.device, parsed.model_id is None, parsed.iteration in {0, 1}) == (5, False, True)
        assert f"/{parsed.op_type}.{parsed.op_name}." in file.name
        assert file.name.endswith(str(parsed.timestamp))


@settings(max_examples=200, deadline=None)
@given(
    op_type=sanitised,
    op_name=sanitised,
    model=sanitised,
    device=devices,
    iteration=numbers,
    model_id=numbers,
    task=numbers,
    stream=numbers,
    stamp=stamps,
    suffix=st.sampled_from(["", ".zst", ".csv"]),
    path=st.sampled_from(["", "/", "/a//b/", "relative/", "1.2.3.4:/path/"]),
)
def test_built_model_name_parses_back(
    *,
    op_type: str,
    op_name: str,
    model: str,
    device: int,
    iteration: int,
    model_id: int,
    task: int,
    stream: int,
    stamp: int,
    suffix: str,
    path: str,
) -> None:
    name = (
        f"{path}20260530164725/{device}//{model}/{model_id}/{iteration}/"
        f"{op_type}.{op_name}.{task}.{stream}.{stamp}{suffix}"
    )

    parsed = parse_name(name)

    assert (parsed.op_type, parsed.op_name, parsed.model) == (op_type, op_name, model)
    assert (parsed.device, parsed.model_id, parsed.iteration) == (device, model_id, iteration)
    assert (parsed.task, parsed.stream, parsed.timestamp) == (task, stream, stamp)
    assert (parsed.scheme is Scheme.STATISTICS) == (suffix == ".csv")


@settings(max_examples=200, deadline=None)
@given(op_type=sanitised, op_name=raw_names, device=devices, number=numbers, task=numbers, stream=numbers)
def test_built_graph_name_parses_back(
    *, op_type: str, op_name: str, device: int, number: int, task: int, stream: int
) -> None:
    parsed = parse_name(f"/dump/{device}/{op_type}.{op_name}.{number}.{task}.{stream}.{STAMP}")

    assert parsed == OpName(
        scheme=Scheme.GRAPH,
        op_type=op_type,
        op_name=op_name,
        number=number,
        task=task,
        stream=stream,
        timestamp=STAMP,
        device=device,
    )


@settings(max_examples=300, deadline=None)
@given(
    st.text() | st.text(st.sampled_from("/.0a1\udc80")) | st.lists(sanitised | numbers.map(str)).map(".".join)
)
def test_any_name_gives_an_answer(name: str) -> None:
    assert isinstance(parse_name(name), OpName)


parts = st.sampled_from(
    [
        *(
            "Conv2D",
            "aclnnAdd_3_L0",
            "Opdebug",
            "Node_OpDebug",
            "exception_info",
            "custom",
            "core",
            "FFTSPLUS",
        ),
        *("7", "0123", "9" * 20, "9" * 21, "20260530164725123", str(STAMP), "\u0663", "\n", "", "csv"),
    ]
)
paths = st.sampled_from(["", "/", f"{RUN}/3/m/1/7/", f"{RUN}/3//./7/", "extra-info/data-dump/5/", "/dump/0/"])


@settings(max_examples=300, deadline=None)
@given(path=paths, base=st.lists(parts, min_size=1, max_size=9).map(".".join))
def test_the_suffix_of_compression_changes_nothing(path: str, base: str) -> None:
    assert parse_name(f"{path}{base}.zst") == parse_name(path + base)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        ".",
        "a",
        "model.o",
        "te_add_host.o",
        "mapping.csv",
        "a.b.c.d.e",
        "a.b.1.2.³",
        "a.b.1." + "9" * 5000,
    ],
)
def test_name_by_no_scheme_says_nothing(name: str) -> None:
    assert parse_name(name) == OpName()


def seconds_to_parse(name: str) -> float:
    """Return the least of the processor's time that it takes, which other processes do not change."""
    seconds = []
    for _ in range(5):
        begin = time.thread_time()
        parse_name(name)
        seconds.append(time.thread_time() - begin)
    return min(seconds)


@pytest.mark.parametrize("part", ["/", "0/", "0/a.", "1.", "a.1.", ".", "1"])
def test_long_name_takes_time_in_proportion_to_its_length(part: str) -> None:
    short, long = (seconds_to_parse(part * (length // len(part))) for length in (20_000, 320_000))

    # It is 16 times as long; one that is searched again from each of its parts would take 256 times as long.
    assert long < 100 * short
