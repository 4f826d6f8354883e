"""What the names of files say: dump files, and NPY files by every way of naming them."""

from __future__ import annotations

import pytest

from dumpstream.comparison.sides.origin import Origin, TensorOrigin, origin_of_dump, origin_of_npy


def test_a_call_of_aclnn_is_known_by_its_number_and_not_by_its_type() -> None:
    first = origin_of_dump("20260530164725/0/aclnnAdd_7_L2.aclnnAdd.4.65535.1780159660546556")
    later = origin_of_dump("20260530164725/0/aclnnAdd_12_L2.aclnnAdd.9.65535.1780159660546990")
    assert first.op_type == later.op_type == "aclnnAdd_L2"
    assert (first.sequence, later.sequence) == (7, 12)


def test_inputs_and_outputs_of_a_call_have_the_same_group() -> None:
    halves = [f"20260530164725/0/aclnnAdd_7_L2.aclnnAdd.4.65535.178015966054655{it}" for it in (6, 7)]
    assert len({origin_of_dump(name).group for name in halves}) == 1


def test_a_model_without_a_name_is_known_by_its_number() -> None:
    named = origin_of_dump("20260530164725/0/net/3/5/Add.add.4.3.1780159660546556")
    numbered = origin_of_dump("20260530164725/0/3/5/Add.add.4.3.1780159660546556")
    assert (named.model, numbered.model) == ("net", "3")
    assert named.step == numbered.step == 5


def test_a_step_that_was_marked_counts_if_the_name_has_none() -> None:
    name = "20260530164725/0/aclnnAdd_7_L2.aclnnAdd.4.65535.1780159660546556"
    assert origin_of_dump(name, step=3).step == 3
    assert origin_of_dump("20260530164725/0/net/3/5/Add.add.4.3.1780159660546556", step=3).step == 5


def test_the_threads_of_an_operator_are_told_apart() -> None:
    names = [f"20260530164725/0/net/3/5/Add.add.4.3.1780159660546556.4.9.{it}.0" for it in (0, 1)]
    assert [origin_of_dump(name).part for name in names] == ["9.0", "9.1"]


def test_numbers_that_no_counter_reaches_are_not_believed() -> None:
    assert origin_of_dump("20260530164725/0/net/3/5/Add.add.4.3.99999999999999999999").time is None


DUMP = "20260530164725/0/net/3/5/Add.add.4.3.1780159660546556"


@pytest.mark.parametrize(
    "suffix",
    [
        ".output.1.npy",  # ours, and msaccucmp's
        ".output.1.1x16x4x4.npy",  # msaccucmp's in a layout
        ".output.1.ND.float32.npy",  # msprobe's
    ],
)
def test_an_npy_file_of_a_tensor_has_the_origin_of_its_dump_file(suffix: str) -> None:
    assert origin_of_npy(f"/golden/{DUMP}{suffix}") == TensorOrigin(
        origin_of_dump(f"/golden/{DUMP}"), "output", 1
    )


@pytest.mark.parametrize(
    ("name", "op_name", "number", "io", "index", "part"),
    [
        ("Functional.conv2d.1.forward.input.0", "Functional.conv2d.forward", 1, "input", 0, ""),
        ("Functional.conv2d.0.backward.output.2", "Functional.conv2d.backward", 0, "output", 2, ""),
        (
            "Module.layer1.0.conv.Conv2d.forward.3.output.0",
            "Module.layer1.0.conv.Conv2d.forward",
            3,
            "output",
            0,
            "",
        ),
        ("Torch.add.4.forward.input.alpha", "Torch.add.forward", 4, "input", 0, "alpha"),
        ("Torch.cat.0.forward.input.0.1", "Torch.cat.forward", 0, "input", 0, "0.1"),
        ("Functional.relu.5.forward.output", "Functional.relu.forward", 5, "output", 0, ""),
    ],
)
def test_an_npy_file_of_a_framework_is_the_call_of_a_function(  # noqa: PLR0917 - a table
    name: str, op_name: str, number: int, io: str, index: int, part: str
) -> None:
    found = origin_of_npy(f"/dump/step3/rank1/dump_tensor_data/{name}.npy")
    origin = found.origin
    assert (origin.op_name, origin.sequence, origin.part) == (op_name, number, part)
    assert (found.io, found.index) == (io, index)
    assert (origin.rank, origin.step) == (1, 3)


def test_a_golden_npy_file_is_an_output() -> None:
    found = origin_of_npy("/golden/net_layer_conv1.2.1780159660546556.npy")
    assert found == TensorOrigin(Origin(op_name="net_layer_conv1", time=1780159660546556), "output", 2)


def test_any_other_npy_file_is_the_first_output_of_what_it_is_called() -> None:
    assert origin_of_npy("/golden/loss.npy") == TensorOrigin(Origin(op_name="loss"), "output", 0)


def test_the_name_of_an_operator_may_have_dots_before_a_tensor() -> None:
    found = origin_of_npy("/golden/some.layer.input.1.npy")
    assert (found.origin.op_name, found.io, found.index) == ("some.layer", "input", 1)
