"""Limits: how much two tensors may differ and still be close, by data type, by flags, and by operator."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from dumpstream.comparison.precision import coarser_of
from dumpstream.format.dtypes import DType

#: The metrics that a limit can be set for; `cosine` must not be below its limit, the others not above.
LIMITED = (
    *(
        "cosine",
        "max_abs",
        "mean_abs",
        "rmse",
        "acc_rel",
        "max_rel",
        "mean_rel",
        "rel_euclidean",
        "kl",
        "rel",
    ),
    *("max_ulp", "beyond_1_1000", "beyond_5_1000", "nan_mine", "nan_golden", "inf_differs"),
)

#: Types with fewer digits are rounded once, from sums that the device keeps in float32.
_ROUNDED_DIGITS = 23
_ROUNDED_EPSILONS = 2
_SUMMED_EPSILONS = 64
_KEYS = ("match", "rtol", "atol", "limits")


class Tolerance(NamedTuple):
    """How far two tensors of given types may be apart."""

    rtol: float
    atol: float


@lru_cache(1024)
def tolerance_of(mine: DType, golden: DType) -> Tolerance:
    """Return the tolerance for two types: that of the coarser one.

    - Types with fewer digits than float32: two epsilons (float16 2e-3, bfloat16 1.6e-2, float8_e4m3fn 0.25).
      The device sums in float32 and rounds once, which is an error of up to half an epsilon on either side.
      The rest is for inputs that were rounded before.
    - float32 and float64: 64 epsilons (7.6e-6 and 1.4e-14). Sums are kept in the type itself, so that their
      error grows with the square root of their length: 64 are those of 4096 terms.
    - An absolute error up to the smallest number of the coarser type is always close: no rounding to that
      type can be better.
    - Integers and bool must be equal.
    """
    coarser = coarser_of(mine, golden)
    if coarser is None:
        return Tolerance(0.0, 0.0)
    epsilons = _ROUNDED_EPSILONS if coarser.digits < _ROUNDED_DIGITS else _SUMMED_EPSILONS
    return Tolerance(epsilons * coarser.epsilon, math.ldexp(1.0, coarser.exponent - coarser.digits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the user allows; what is not given is decided by the types.

    If a metric has a limit, only the given limits count, and NaN and infinities that differ.
    """

    rtol: float | None = None
    atol: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)  #: by name, as in `LIMITED`

    @property
    def needs_kl(self) -> bool:
        """Whether the Kullback-Leibler divergence has to be computed."""
        return "kl" in self.metrics

    def over(self, base: Limits) -> Limits:
        """Return these limits, and those of *base* for what these leave open."""
        return Limits(
            rtol=base.rtol if self.rtol is None else self.rtol,
            atol=base.atol if self.atol is None else self.atol,
            metrics={**base.metrics, **self.metrics},
        )


@dataclass(frozen=True, slots=True)
class LimitRules:
    """Limits for all tensors, and those of operators whose name or type matches a pattern."""

    base: Limits = field(default_factory=Limits)
    rules: Sequence[tuple[str, Limits]] = ()  #: the first that matches counts, over the base

    @property
    def needs_kl(self) -> bool:
        """Whether the Kullback-Leibler divergence has to be computed."""
        return self.base.needs_kl or any(limits.needs_kl for _, limits in self.rules)

    def of(self, op_name: str | None, op_type: str | None = None) -> Limits:
        """Return the limits for the tensors of an operator."""
        names = [name for name in (op_name, op_type) if name is not None]
        for pattern, limits in self.rules:
            if any(fnmatchcase(name, pattern) for name in names):
                return limits.over(self.base)
        return self.base


def checked_tolerance(name: str, value: float | None) -> float | None:
    """Return *value*, the tolerance *name* that the caller gives.

    Raises:
        ValueError: it is negative, or not a number.
    """
    return None if value is None else _number(name, value)


def parse_limit(text: str) -> tuple[str, float]:
    """Return the metric and the value of ``METRIC=VALUE``.

    Raises:
        ValueError: there is no such metric, or the value is not a number.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not METRIC=VALUE; write cosine=0.999, for example")
    return name, _checked(name, value)


def read_rules(path: str | os.PathLike[str]) -> list[tuple[str, Limits]]:
    """Return the rules in the JSON file *path*: a list, the first rule that matches an operator counts.

    Each rule is an object with ``match``, a pattern for the operator's name or type, and any of ``rtol``,
    ``atol`` and ``limits``, an object of metrics and their limits::

        [{"match": "*LayerNorm*", "rtol": 1e-2, "limits": {"cosine": 0.99}}]

    Raises:
        OSError: it cannot be read.
        ValueError: it is not such a file; the message says where.
    """
    source = os.fspath(path)
    try:
        rules = json.loads(Path(path).read_bytes())
    except json.JSONDecodeError as exc:
        raise ValueError(f"{source} is not JSON: line {exc.lineno}, column {exc.colno}: {exc.msg}") from exc
    except UnicodeDecodeError as exc:
        raise ValueError(f"{source} is not JSON: it is not UTF-8; save it as UTF-8") from exc
    if not isinstance(rules, list):
        raise ValueError(f'{source} is not a list of rules; write [{{"match": "*Norm*", "rtol": 1e-2}}]')  # noqa: TRY004
    found = []
    for number, rule in enumerate(rules, start=1):
        try:
            found.append(_rule(rule))
        except ValueError as exc:
            raise ValueError(f"{source}: rule {number}: {exc}") from exc
    return found


def _rule(rule: Any) -> tuple[str, Limits]:
    if not isinstance(rule, dict):
        raise ValueError('is not an object; write {"match": "*Norm*", "rtol": 1e-2}')  # noqa: TRY004
    for key in rule:
        if key not in _KEYS:
            raise ValueError(f"has no key {key!r}; there are {', '.join(_KEYS)}")
    pattern = rule.get("match")
    if not isinstance(pattern, str) or not pattern:
        raise ValueError('needs "match", a pattern for the names or types of operators')
    metrics = rule.get("limits", {})
    if not isinstance(metrics, dict):
        raise ValueError('"limits" is not an object; write {"cosine": 0.99}')  # noqa: TRY004
    return pattern, Limits(
        rtol=checked_tolerance("rtol", rule.get("rtol")),
        atol=checked_tolerance("atol", rule.get("atol")),
        metrics={name: _checked(name, value) for name, value in metrics.items()},
    )


def _checked(name: str, value: Any) -> float:
    if name not in LIMITED:
        close = get_close_matches(name, LIMITED, 1)
        remedy = f"do you mean {close[0]}?" if close else f"there are {', '.join(LIMITED)}"
        raise ValueError(f"no metric {name!r} has a limit; {remedy}")
    return _number(name, value)


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number) or (number < 0 and name != "cosine"):
        raise ValueError(f"the limit {value!r} of {name} is not a number that it can have")
    return number
