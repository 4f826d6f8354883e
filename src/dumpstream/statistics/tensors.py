"""Tensors: some rows of the table, however they are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from dumpstream.statistics.condition import Condition, holds
from dumpstream.statistics.table import COLUMNS, TensorRow


class Tensors(Protocol):
    """Some rows of the table."""

    def where(self, conditions: Sequence[Condition]) -> Tensors:
        """Return those of which all *conditions* are true."""

    def columns(self, names: Iterable[str]) -> dict[str, list[Any]]:
        """Return the columns *names*, with the values that `TensorRow` has."""


class TensorRows(list[TensorRow]):
    """Rows, one by one."""

    def where(self, conditions: Sequence[Condition]) -> TensorRows:
        """Return those of which all *conditions* are true."""
        return TensorRows(row for row in self if holds(conditions, partial(getattr, row)))

    def columns(self, names: Iterable[str]) -> dict[str, list[Any]]:
        """Return the columns *names*."""
        return {name: [getattr(row, name) for row in self] for name in names}


def rows_of(tensors: Tensors) -> list[TensorRow]:
    """Return *tensors* one by one."""
    if isinstance(tensors, TensorRows):
        return tensors
    return [TensorRow(*values) for values in zip(*tensors.columns(COLUMNS).values(), strict=True)]
