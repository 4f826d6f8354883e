"""Bad values other than NaN, on the simulated runtime: what is found while it is captured, and afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import dumpstream
from dumpstream.diagnosis.answer import diagnose
from dumpstream.simulation import SimulatedRuntime, Workload, simulated_library
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.statistics.parquet import ParquetWriter
from dumpstream.statistics.table import COLUMNS
from dumpstream.statistics.tensors import TensorRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dumpstream.diagnosis.alerts import Alert

LIBRARY = simulated_library()
_CHAIN = "flow=on,models=1,ops=8,tensor_bytes=4096,op_types=MatMulV2+Relu+Add+LayerNorm"


async def _capture(directory: Path, workload: Workload, sinks: Sequence[str], alert: Any) -> list[Alert]:
    with SimulatedRuntime(workload) as runtime:
        async with dumpstream.open_capture(
            directory / "run", config=directory / "acl.json", acl_library=LIBRARY, sinks=sinks, alert=alert
        ) as capture:
            await anyio.to_thread.run_sync(runtime.run, workload.steps)
        return [alert async for alert in capture.alerts()]


def capture(
    directory: Path, text: str, *, sinks: Sequence[str] = ("stats:",), alert: Any = True, config: str = ""
) -> list[Alert]:
    """Capture what *text* says, by the workload's configuration or another *config*; return the alerts."""
    workload = Workload.parse(text)
    (directory / "npu").mkdir()
    (directory / "acl.json").write_text(config or workload.config(directory / "npu"))
    return anyio.run(_capture, directory, workload, sinks, alert)


@pytest.mark.parametrize("layout", ["older", "newer"])
@pytest.mark.parametrize("sinks", [["zstd:"], ["zstd:", "stats:"]])
def test_an_overflow_that_only_the_record_of_the_device_shows(
    tmp_path: Path, layout: str, sinks: list[str]
) -> None:
    text = f"{_CHAIN},mode=overflow,opdebug={layout},steps=4,dtypes=float16,saturate=4@2"

    alerts = capture(tmp_path, text, sinks=sinks)
    (origin,) = diagnose(tmp_path / "run", every=True).origins

    for found in (origin, alerts[-1].origin):
        assert (found.kind, found.blame, found.step, found.op_name) == (
            *("overflow", "made", 2),
            "layer_4_MatMulV2",
        )


def test_what_an_overflow_became_is_not_an_origin_of_its_own(tmp_path: Path) -> None:
    text = "flow=on,models=1,ops=8,tensor_bytes=4096,op_types=MatMulV2,mode=overflow,steps=4,dtypes=float16"

    capture(tmp_path, f"{text},saturate=4@2", sinks=["zstd:"])
    (origin,) = diagnose(tmp_path / "run", every=True).origins

    assert (origin.kind, origin.blame, origin.op_name) == ("overflow", "made", "layer_4_MatMulV2")
    assert "layer_5_MatMulV2" in origin.path  # whose output is infinite
    by_infinity = diagnose(tmp_path / "run", look_for=["inf"]).origins[0]
    assert by_infinity.op_name == "layer_5_MatMulV2"


def test_without_the_bytes_of_the_records_the_configuration_says_what_overflowed(tmp_path: Path) -> None:
    capture(tmp_path, f"{_CHAIN},mode=overflow,steps=4,dtypes=float16,saturate=4@2", sinks=["stats:"])

    found = diagnose(tmp_path / "run")

    assert (found.origins[0].kind, found.origins[0].op_name) == ("overflow", "layer_4_MatMulV2")
    assert any("Opdebug.Node_OpDebug" in line for line in found.missing)


def test_an_overflow_in_a_directory_that_cann_wrote_and_in_a_table_of_it(tmp_path: Path) -> None:
    workload = Workload.parse(f"{_CHAIN},mode=overflow,steps=4,dtypes=float16,saturate=4@2")
    rows = TensorRows()
    for file in workload.expected_files(tmp_path / "npu"):
        path = Path(file.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        rows += whole_file(origin_of(file.name), file.data)
    with (tmp_path / "run.parquet").open("wb") as out:
        writer = ParquetWriter(out)
        writer.write(rows.columns(COLUMNS))
        writer.close()

    for run in ("npu", "run.parquet"):
        origin = diagnose(tmp_path / run).origins[0]
        assert (origin.kind, origin.blame, origin.op_name) == ("overflow", "made", "layer_4_MatMulV2"), run


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_saturation_above_the_limit(tmp_path: Path, dtype: str) -> None:
    kinds = ["nan", "inf", "saturation"]

    alerts = capture(tmp_path, f"{_CHAIN},steps=4,dtypes={dtype},saturate=4@2", alert=kinds)
    found = diagnose(tmp_path / "run", look_for=kinds).origins[0]

    for origin in (found, alerts[-1].origin):
        assert (origin.kind, origin.blame, origin.step) == ("saturation", "made", 2)
        assert origin.op_name == "layer_4_MatMulV2"
        assert (origin.bad or 0) > 0.9 * (origin.count or 0)
    assert found.path[0] == "layer_4_MatMulV2"
    assert not diagnose(tmp_path / "run").found  # it has to be asked for


def test_saturation_below_the_limit_is_not_bad(tmp_path: Path) -> None:
    capture(tmp_path, f"{_CHAIN},steps=4,dtypes=float8_e4m3fn")

    assert not diagnose(tmp_path / "run", look_for=["saturation"]).found


def test_a_tensor_far_from_its_history_has_drifted(tmp_path: Path) -> None:
    capture(tmp_path, f"{_CHAIN},steps=12,dtypes=float32,perturb=4@9:30")

    found = diagnose(tmp_path / "run", look_for=["drift"]).origins[0]

    assert (found.kind, found.blame, found.step, found.op_name) == ("drift", "made", 9, "layer_4_MatMulV2")


@pytest.mark.parametrize("fault", ["", ",perturb=4@9:0.01", ",perturb=4@3:30"])
def test_a_small_change_and_one_without_a_history_are_not_a_drift(tmp_path: Path, fault: str) -> None:
    capture(tmp_path, f"{_CHAIN},steps=12,dtypes=float32{fault}")

    assert not diagnose(tmp_path / "run", look_for=["drift"]).found


def test_several_faults_of_one_step_are_all_told(tmp_path: Path) -> None:
    text = "flow=on,models=2,ops=6,steps=3,tensor_bytes=4096,dtypes=float32,op_types=MatMulV2+Relu"

    capture(tmp_path, f"{text},nan=2@1,overflow=4@2")
    found = diagnose(tmp_path / "run", every=True).origins

    told = {(it.model, it.step, it.op_name, str(it.kind)) for it in found if it.blame == "made"}
    assert {
        ("transformer_0", 1, "layer_2_MatMulV2", "nan"),
        ("transformer_1", 1, "layer_2_MatMulV2", "nan"),
    } <= told


_LEFT_OUT = """{"dump": {"dump_path": "%s", "dump_mode": "all", "dump_level": "op",
    "dump_list": [{"opname_blacklist": [{"name": "layer_5_Add", "pos": ["input1"]}]}]}}"""


def test_an_operator_of_which_inputs_are_left_out_is_not_blamed(tmp_path: Path) -> None:
    config = _LEFT_OUT % (tmp_path / "npu")
    text = "flow=on,models=1,ops=8,tensor_bytes=4096,op_types=Add,steps=3,dtypes=float32,nan=5@1"

    alerts = capture(tmp_path, text, config=config)
    found = diagnose(tmp_path / "run").origins[0]

    for origin in (alerts[-1].origin, found):
        assert (origin.blame, origin.op_name) == ("unknown", "layer_5_Add")
        assert origin.reason == "the configuration left inputs of it out"


def overflows(directory: Path, *lost: str) -> Path:
    """Write what the device dumps if layers 1 and 4 overflow, without the files of the *lost* operators."""
    workload = Workload.parse(f"{_CHAIN},mode=overflow,steps=4,dtypes=float16,saturate=4@2+1@1")
    for file in workload.expected_files(directory):
        if not any(name in file.name for name in lost):
            Path(file.name).parent.mkdir(parents=True, exist_ok=True)
            Path(file.name).write_bytes(file.data)
    return directory


def test_an_overflow_of_an_operator_that_is_not_in_the_dump_is_told(tmp_path: Path) -> None:
    found = diagnose(overflows(tmp_path, "layer_"), every=True)

    assert found.sentence == (
        "The run has the first overflow in the dump: step 1, an operator that is not in the dump; "
        "what made it is not known: the device recorded it of task 3 on stream 3."
    )
    assert [(it.step, it.op_name, it.blame) for it in found.origins][:2] == [
        (1, None, "unknown"),
        (2, None, "unknown"),
    ]
    assert not diagnose(tmp_path, look_for=["nan"]).found


def test_what_may_come_of_an_overflow_that_is_not_in_the_dump_is_left_open(tmp_path: Path) -> None:
    found = diagnose(overflows(tmp_path, "layer_1_", "layer_4_"), every=True)

    reason = "files were lost, perhaps those of an operator that overflowed before"
    assert (found.origins[0].op_name, found.origins[0].reason) == ("layer_6_Add", reason)
    assert any("the operator that overflowed in step 1, task 3 of stream 3" in it for it in found.missing)
