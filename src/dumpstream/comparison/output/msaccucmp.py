"""The csv of CANN's own comparison tool, msaccucmp: the same columns, in the same order and number format."""

from __future__ import annotations

import csv
import math
from datetime import datetime
from typing import TextIO

from dumpstream.comparison.divergence import Finding
from dumpstream.comparison.sidetensor import SideTensor
from dumpstream.comparison.table import Agreement

#: Two pairs of columns have the same names, as in CANN's files.
HEADER = (
    *("Index", "OpType", "NPUDump", "DataType", "Address", "GroundTruth", "DataType", "Address"),
    *("TensorIndex", "Shape", "CosineSimilarity", "MaxAbsoluteError", "AccumulatedRelativeError"),
    *("RelativeEuclideanDistance", "KullbackLeiblerDivergence", "StandardDeviation", "MeanAbsoluteError"),
    *("RootMeanSquareError", "MaxRelativeError", "MeanRelativeError", "CompareFailReason"),
)
#: The metric in each of these columns.
_BEFORE = ("cosine", "max_abs", "acc_rel", "rel_euclidean", "kl")
_BEHIND = ("mean_abs", "rmse", "max_rel", "mean_rel")
#: The only ones of a bool.
_OF_BOOL = {"cosine", "rel_euclidean"}
_UNKNOWN, _MISSING = "NaN", "*"
_SMALL = 0.001
_SCALAR = "scalar"
_COMPARED = {Agreement.IDENTICAL, Agreement.CLOSE, Agreement.DIFFERENT}


def csv_name(now: datetime) -> str:
    """Return the name of the file, as CANN gives it."""
    return f"result_{now:%Y%m%d%H%M%S}.csv"


class MsaccucmpCsv:
    """Writes rows to *file*, behind the titles."""

    def __init__(self, file: TextIO) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._operator: object = None
        self._number = -1  #: of the operator
        self._writer.writerow(HEADER)

    def write(self, finding: Finding) -> None:
        """Append a row."""
        row, mine, golden = finding.row, finding.mine, finding.golden
        operator = (row.rank, row.model, row.step, row.op_type, row.op_name, row.occurrence)
        if operator != self._operator:
            self._operator, self._number = operator, self._number + 1
        self._writer.writerow(
            [
                str(self._number),
                row.op_type or _UNKNOWN,
                *_side(mine, row.dtype),
                *_side(golden, row.golden_dtype),
                f"{row.op_name or _MISSING}:{row.io}:{row.index}",
                f"[{','.join(map(str, row.shape or ()))}]",
                *(_metric(finding, name) for name in _BEFORE),
                _deviations(finding),
                *(_metric(finding, name) for name in _BEHIND),
                _remark(finding),
            ]
        )


def _side(tensor: SideTensor | None, dtype: str | None) -> tuple[str, str, str]:
    if tensor is None:
        return _MISSING, _UNKNOWN, _UNKNOWN
    return tensor.identity.op_name or _MISSING, dtype or _UNKNOWN, str(tensor.address or _UNKNOWN)


def _metric(finding: Finding, name: str) -> str:
    row = finding.row
    if row.dtype == "bool" and name not in _OF_BOOL:
        return _UNKNOWN
    if name == "cosine" and _is_scalar(finding):
        return "1.000000"
    value = getattr(row.metrics, name)
    return _UNKNOWN if value is None or math.isnan(value) else f"{value:.6f}"


def _deviations(finding: Finding) -> str:
    """Return mean and standard deviation of both sides in one cell."""
    metrics = finding.row.metrics
    values = (metrics.mean, metrics.std, metrics.golden_mean, metrics.golden_std)
    if finding.row.dtype == "bool" or any(it is None for it in values):
        return _UNKNOWN
    mean, std, golden_mean, golden_std = (_rounded(it) for it in values)
    return f"({mean};{std}),({golden_mean};{golden_std})"


def _rounded(value: float | None) -> str:
    assert value is not None
    return _UNKNOWN if math.isnan(value) else f"{0.0 if abs(value) < _SMALL else value:.3f}"


def _is_scalar(finding: Finding) -> bool:
    """Whether it was compared and has one element, which CANN's tool does not compute an angle of."""
    shape = finding.row.shape
    return _is_compared(finding) and shape is not None and all(it == 1 for it in shape)


def _is_compared(finding: Finding) -> bool:
    return finding.row.verdict in _COMPARED and finding.row.metrics.cosine is not None


def _remark(finding: Finding) -> str:
    if not _is_compared(finding):
        return finding.row.reason or str(finding.row.verdict)
    return _SCALAR if _is_scalar(finding) else ""
