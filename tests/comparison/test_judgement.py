"""What is identical, close and different, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.comparison.stored import NUMERIC, StoredElements

from dumpstream.comparison.elements import elements_of
from dumpstream.comparison.judgement import ONLY_STATISTICS, Judgement, judge, judge_statistics
from dumpstream.comparison.limits import (
    LIMITED,
    LimitRules,
    Limits,
    parse_limit,
    read_rules,
    tolerance_of,
)
from dumpstream.comparison.metrics import compare_elements
from dumpstream.comparison.precision import precision_of
from dumpstream.comparison.table import Agreement
from dumpstream.format.dtypes import DTYPES
from dumpstream.statistics.table import TensorStatistics

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_BY_NAME = {dtype.short: dtype for dtype in DTYPES.values()}
_FLOAT32, _FLOAT16, _STRING = _BY_NAME["float32"], _BY_NAME["float16"], _BY_NAME["string"]
GOLDEN = np.random.default_rng(7).standard_normal(4000).astype(np.float32)


def judged(mine: NDArray[Any], golden: NDArray[Any], **limits: Any) -> Judgement:
    x, y = elements_of(mine), elements_of(golden)
    return judge(compare_elements(x, y), x.dtype, y.dtype, Limits(**limits))


def agreement(mine: NDArray[Any], golden: NDArray[Any], **limits: Any) -> Agreement:
    return judged(mine, golden, **limits).agreement


def test_the_same_bits_are_identical() -> None:
    with_nan = np.append(GOLDEN, [np.nan, np.inf]).astype(np.float32)

    assert judged(with_nan, with_nan.copy()) == (Agreement.IDENTICAL, None)
    assert agreement(GOLDEN[:0], GOLDEN[:0]) is Agreement.IDENTICAL


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2], ids=str
)
@pytest.mark.parametrize("scale", [1, 1e-3, 100])
def test_a_rounded_result_is_close(dtype: Any, scale: float) -> None:
    golden = GOLDEN * np.float32(scale)

    assert agreement(golden.astype(dtype), golden) is Agreement.CLOSE
    assert agreement(golden, golden.astype(dtype)) is Agreement.CLOSE


def test_what_is_too_small_for_the_coarser_type_is_close() -> None:
    assert (
        agreement((GOLDEN * np.float32(1e-7)).astype(np.float16), GOLDEN * np.float32(1e-7))
        is Agreement.CLOSE
    )


def test_sums_in_another_order_are_close() -> None:
    weights = np.random.default_rng(8).standard_normal((4000, 64)).astype(np.float32)
    exact = (GOLDEN.astype(np.float64) @ weights.astype(np.float64)).astype(np.float32)
    naive = np.zeros(64, np.float32)
    for value, row in zip(GOLDEN, weights, strict=True):
        naive += value * row

    assert agreement(naive, exact) is Agreement.CLOSE


@pytest.mark.parametrize(
    ("dtype", "share"), [(np.float32, 1e-4), (np.float16, 1e-2), (ml_dtypes.bfloat16, 0.1)]
)
def test_an_error_of_all_elements_is_different(dtype: Any, share: float) -> None:
    found = judged((GOLDEN * np.float32(1 + share)).astype(dtype), GOLDEN.astype(dtype))

    assert found.agreement is Agreement.DIFFERENT
    assert found.reason is not None
    assert found.reason.startswith("rel_euclidean ")


def test_a_single_wrong_element_is_different_and_its_place_is_said() -> None:
    golden = np.tile(GOLDEN, 300).astype(np.float16)
    mine = golden.copy()
    mine[123456] += np.float16(1)

    found = judged(mine, golden)

    assert found.agreement is Agreement.DIFFERENT
    assert found.reason is not None
    assert found.reason.endswith("at [123456]")


def test_integers_must_be_equal_unless_a_tolerance_is_given() -> None:
    golden = np.arange(100)

    assert judged(golden + 1, golden) == (Agreement.DIFFERENT, "max_abs 1 is above 0")
    assert agreement(golden + 1, golden, atol=1) is Agreement.CLOSE
    assert agreement(golden, golden.astype(np.int32)) is Agreement.IDENTICAL


def test_nan_and_infinities_on_one_side_are_different() -> None:
    mine, golden = GOLDEN.copy(), GOLDEN.copy()
    mine[:2], golden[2], mine[3] = np.nan, np.nan, np.inf

    found = judged(mine, golden)

    assert found.reason == "2 NaN only in mine, 1 NaN only in the golden, 1 infinite elements differ"
    assert (
        agreement(mine, golden, metrics={"nan_mine": 2, "nan_golden": 1, "inf_differs": 1}) is Agreement.CLOSE
    )


def test_nan_of_other_bits_at_the_same_place_are_close() -> None:
    mine, golden = (np.array([bits, 0], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001))

    assert agreement(mine, golden) is Agreement.CLOSE


def test_zeros_of_other_signs_are_close() -> None:
    assert agreement(np.array([0.0]), np.array([-0.0])) is Agreement.CLOSE


def test_tolerances_of_the_user_replace_those_of_the_type() -> None:
    mine = GOLDEN * np.float32(1.001)

    assert agreement(mine, GOLDEN) is Agreement.DIFFERENT
    assert agreement(mine, GOLDEN, rtol=1e-2) is Agreement.CLOSE
    assert agreement(mine, GOLDEN, atol=1) is Agreement.CLOSE
    assert agreement(GOLDEN.astype(np.float16), GOLDEN, rtol=1e-6, atol=0) is Agreement.DIFFERENT


def test_a_metric_with_a_limit_counts_instead_of_the_type() -> None:
    mine = GOLDEN * np.float32(1.5)

    assert agreement(mine, GOLDEN, metrics={"cosine": 0.99}) is Agreement.CLOSE
    assert agreement(mine, GOLDEN, metrics={"cosine": 0.99}, rtol=1e-3) is Agreement.DIFFERENT
    found = judged(-mine, GOLDEN, metrics={"cosine": 0.99})
    assert found == (Agreement.DIFFERENT, "cosine -1 is below 0.99")
    assert judged(mine, GOLDEN, metrics={"max_rel": 0.1}).reason == "max_rel 0.5 is above 0.1"


def test_a_cosine_that_does_not_exist_is_below_every_limit() -> None:
    assert agreement(GOLDEN * 0, GOLDEN, metrics={"cosine": 0.0}) is Agreement.DIFFERENT


def test_what_is_not_a_number_is_identical_or_different() -> None:
    sides = [StoredElements(dtype=_STRING, shape=(3,), data=data) for data in (b"abc", b"axd")]

    assert judge(compare_elements(sides[0], sides[0]), _STRING, _STRING) == (Agreement.IDENTICAL, None)
    found = judge(compare_elements(sides[0], sides[1]), _STRING, _STRING)
    assert found == (Agreement.DIFFERENT, "2 bytes differ")


@given(st.sampled_from(NUMERIC), st.sampled_from(NUMERIC))
def test_the_coarser_type_decides(mine: Any, golden: Any) -> None:
    both = tolerance_of(mine, golden)

    assert both == tolerance_of(golden, mine)
    for dtype in (mine, golden):
        precision = precision_of(dtype)
        if precision is not None:
            assert both.rtol >= 2 * precision.epsilon
            assert both.atol >= 2.0 ** (precision.exponent - precision.digits)


# Statistics alone


def statistics(array: NDArray[Any], **more: Any) -> TensorStatistics:
    return TensorStatistics(
        count=array.size,
        max=float(array.max()),
        min=float(array.min()),
        mean=float(array.mean()),
        l2norm=float(np.linalg.norm(array)),
        nan=0,
        pos_inf=0,
        neg_inf=0,
        **more,
    )


def test_equal_hashes_are_identical_only_in_the_same_type() -> None:
    known = statistics(GOLDEN, hash="00" * 8)

    assert judge_statistics(known, known, _FLOAT32, _FLOAT32).agreement is Agreement.IDENTICAL
    assert judge_statistics(known, known, _FLOAT32, _FLOAT16).agreement is Agreement.CLOSE


def test_statistics_without_hashes_are_close_at_best() -> None:
    known = statistics(GOLDEN)

    assert judge_statistics(known, known, _FLOAT32, _FLOAT32) == (Agreement.CLOSE, ONLY_STATISTICS)
    rounded = statistics(GOLDEN.astype(np.float16).astype(np.float32))
    assert judge_statistics(rounded, known, _FLOAT16, _FLOAT32).agreement is Agreement.CLOSE
    assert judge_statistics(rounded, known, _FLOAT32, _FLOAT32).agreement is Agreement.DIFFERENT


def test_statistics_that_differ_say_which() -> None:
    known = statistics(GOLDEN)
    outlier = GOLDEN.copy()
    outlier[5] = 50

    assert (judge_statistics(statistics(outlier), known, _FLOAT32, _FLOAT32).reason or "").startswith(
        "max is 50 in"
    )
    fewer = judge_statistics(statistics(GOLDEN[1:]), known, _FLOAT32, _FLOAT32)
    assert fewer.reason == "3999 elements in mine, 4000 in the golden"
    nan = TensorStatistics(count=4, nan=1)
    assert judge_statistics(nan, TensorStatistics(count=4, nan=0), _FLOAT32, _FLOAT32).reason == (
        "1 NaN in mine, 0 in the golden"
    )


def test_hashes_of_what_is_not_a_number_decide_alone() -> None:
    one, other = TensorStatistics(hash="aa"), TensorStatistics(hash="bb")

    assert judge_statistics(one, other, _STRING, _STRING) == (Agreement.DIFFERENT, "their hashes differ")


# Limits


def test_the_first_rule_that_matches_a_name_or_a_type_counts_over_the_base() -> None:
    rules = LimitRules(
        Limits(rtol=1e-3, metrics={"cosine": 0.9}),
        [("*norm*", Limits(rtol=1e-2)), ("MatMul", Limits(metrics={"cosine": 0.5})), ("*", Limits(atol=1))],
    )

    assert rules.of("layer_norm_3", "LayerNorm") == Limits(rtol=1e-2, metrics={"cosine": 0.9})
    assert rules.of("mm", "MatMul") == Limits(rtol=1e-3, metrics={"cosine": 0.5})
    assert rules.of(None) == rules.base
    assert not rules.needs_kl
    assert LimitRules(rules=[("*", Limits(metrics={"kl": 1}))]).needs_kl


def test_a_limit_is_a_metric_and_a_number() -> None:
    assert parse_limit("cosine=0.999") == ("cosine", 0.999)
    assert parse_limit("cosine=-1") == ("cosine", -1)
    assert [parse_limit(f"{name}=1")[0] for name in LIMITED] == list(LIMITED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosine", "is not METRIC=VALUE"),
        ("cosin=1", "do you mean cosine?"),
        ("speed=1", "there are cosine, max_abs"),
        ("rmse=fast", "'fast' of rmse is not a number"),
        ("rmse=nan", "not a number that it can have"),
        ("rmse=-1", "not a number that it can have"),
    ],
)
def test_other_limits_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        parse_limit(text)


def test_rules_are_read_from_a_file(tmp_path: Path) -> None:
    rules = [{"match": "*LayerNorm*", "rtol": 1e-2, "limits": {"cosine": 0.99}}, {"match": "*", "atol": 1}]
    (tmp_path / "limits.json").write_text(json.dumps(rules))

    assert read_rules(tmp_path / "limits.json") == [
        ("*LayerNorm*", Limits(rtol=1e-2, metrics={"cosine": 0.99})),
        ("*", Limits(atol=1)),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[{", "is not JSON: line 1, column 3"),
        (b"\xff", "it is not UTF-8"),
        (b"{}", "is not a list of rules"),
        (b"[3]", "rule 1: is not an object"),
        (b'[{"match": "*"}, {"rtol": 1}]', 'rule 2: needs "match"'),
        (b'[{"match": "*", "rtoll": 1}]', "rule 1: has no key 'rtoll'"),
        (b'[{"match": "*", "rtol": "x"}]', "the limit 'x' of rtol"),
        (b'[{"match": "*", "atol": true}]', "the limit True of atol"),
        (b'[{"match": "*", "limits": [1]}]', '"limits" is not an object'),
        (b'[{"match": "*", "limits": {"cosin": 1}}]', "do you mean cosine"),
    ],
)
def test_a_file_that_has_no_rules_is_refused_with_the_place(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "limits.json"
    path.write_bytes(content)

    with pytest.raises(ValueError, match=message) as caught:
        read_rules(path)

    assert str(caught.value).startswith(str(path))
