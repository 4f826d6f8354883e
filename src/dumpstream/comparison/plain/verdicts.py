"""Verdicts: what `judge` and `Trace` say of one pair, for the records of many pairs at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dumpstream.comparison.divergence import GROWTH
from dumpstream.comparison.judgement import ELEMENT_FACTOR, tolerances
from dumpstream.comparison.limits import Limits
from dumpstream.comparison.table import Agreement
from dumpstream.format.dtypes import dtype_of
from dumpstream.format.header import IO

#: By the codes in arrays.
AGREEMENTS = (Agreement.IDENTICAL, Agreement.CLOSE, Agreement.DIFFERENT)
IDENTICAL, CLOSE, DIFFERENT = range(3)
_INPUT, _OUTPUT = ([*IO].index(it) for it in (IO.INPUT, IO.OUTPUT))

Records = NDArray[np.void]
_Mask = NDArray[np.bool_]
Doubles = NDArray[np.float64]


def errors_of(records: Records) -> Doubles:
    """Return `rel` of each; NaN if no pair of elements is finite."""
    squares = records["xx"] + records["yy"]
    with np.errstate(all="ignore"):
        found = np.where(squares != 0, records["squares"] / squares, 0.0)
    return np.where(records["finite"] > 0, found, np.nan)


def not_finite(records: Records) -> NDArray[np.uint64]:
    """Return how many elements have a NaN or an infinity on one side only."""
    found: NDArray[np.uint64] = records["nan_mine"] + records["nan_golden"] + records["inf_differs"]
    return found


def verdicts_of(records: Records, limits: Limits) -> tuple[NDArray[np.int8], _Mask]:
    """Return the verdict of each, and where it takes `judge` to tell: of integers.

    *limits* have no metrics.
    """
    rtol, atol = _tolerances(records, limits)
    largest, squares, golden = records["max_error"], records["squares"], records["yy"]
    with np.errstate(all="ignore"):
        distance = np.where(golden != 0, np.sqrt(squares / golden), np.where(squares != 0, np.inf, 0.0))
        scale = np.hypot(records["golden_mean"], records["golden_std"])
        base = np.maximum(np.abs(records["worst_golden"]), scale)
        allowed = np.maximum(atol, ELEMENT_FACTOR * rtol * base)
        near = (largest <= atol) | ((distance <= rtol) & (largest <= allowed))
    close = (not_finite(records) == 0) & (near | (records["finite"] == 0))
    identical = records["bit_equal"] == records["count"]
    verdicts = np.where(identical, IDENTICAL, np.where(close, CLOSE, DIFFERENT)).astype(np.int8)
    return verdicts, records["is_integer"] & ~identical


def _tolerances(records: Records, limits: Limits) -> tuple[Doubles, Doubles]:
    mine, golden = records["data_type"], records["golden_data_type"]
    types = mine.astype(np.int64) << 32 | golden
    found, places = np.unique(types, return_inverse=True)
    pairs = [tolerances(dtype_of(it >> 32), dtype_of(it & 0xFFFFFFFF), limits) for it in found.tolist()]
    both = np.array(pairs, np.float64).reshape(-1, 2)[places]
    return both[:, 0], both[:, 1]


class Roles(NamedTuple):
    """Which of some executions inherit their error, and which have added it; the others are undecided."""

    differs: _Mask  #: a tensor of it
    counted: _Mask  #: an output of it
    inherits: _Mask
    added: _Mask


def roles_of(
    records: Records,
    execution: NDArray[np.intp],
    verdicts: NDArray[np.int8],
    executions: int,
    *,
    errors: Doubles,
    unlike: NDArray[np.uint64],
) -> Roles:
    """Return the roles of *executions*, each of which has one file on either side.

    *execution* is the number of that which each of *records* is of, and *errors* and *unlike* are what
    `errors_of` and `not_finite` say of them. Collectives are not known here.
    """
    different = verdicts == DIFFERENT
    if not different.any():
        nothing = np.zeros(executions, np.bool_)
        return Roles(nothing, nothing, nothing, nothing)
    inputs, outputs = records["io"] == _INPUT, records["io"] == _OUTPUT

    def any_of(rows: _Mask) -> _Mask:
        return np.bincount(execution[rows], minlength=executions) > 0

    overwritten = inputs & _are_written(records, execution, outputs)
    before = np.zeros(executions)
    known = inputs & ~np.isnan(errors)
    np.maximum.at(before, execution[known], errors[known])
    with np.errstate(invalid="ignore"):
        exceeds = (unlike > 0) | np.isnan(errors) | (errors > GROWTH * before[execution])
    exceeds |= ~any_of(inputs & (verdicts != IDENTICAL))[execution]
    inherits = any_of(inputs & ~overwritten & different)
    added = any_of(inputs) & ~any_of(overwritten) & any_of(outputs & different & exceeds) & ~inherits
    return Roles(any_of(different), any_of(outputs & different), inherits, added)


def _are_written(records: Records, execution: NDArray[Any], outputs: _Mask) -> _Mask:
    """Return which tensors have an address that an output of the same execution has, on either side."""
    found = np.zeros(len(records), np.bool_)
    if outputs.all():
        return found
    for name in ("address", "golden_address"):
        values, places = np.unique(records[name], return_inverse=True)
        keys = execution * len(values) + places
        found |= np.isin(keys, keys[outputs])
    return found
