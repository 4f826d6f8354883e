"""Table: the statistics of tensors, one row each, with the same columns wherever they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, auto
from typing import Any, NamedTuple, NewType, get_type_hints

#: An exact integer, or the value of a float.
Number = int | float

#: Where a tensor lies on its device; never 0.
Address = NewType("Address", int)

#: What computed a row.
HOST, DEVICE = "host", "device"


@dataclass(frozen=True)
class _Origin:
    """Where a tensor is from, and what it is."""

    __slots__ = ()  # `TensorRow` has them: of the bases of a class, only one may

    file: str
    op_type: str | None = None
    op_name: str | None = None
    model: str | None = None
    iteration: int | None = None
    device: int | None = None
    task: int | None = None
    stream: int | None = None
    timestamp: int | None = None  #: microseconds since the epoch, by the device's clock
    io: str | None = None  #: None only if there is nothing to say but the problem
    index: int | None = None
    dtype: str | None = None
    format: str | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """The numbers of one tensor.

    Of elements that are not numbers, only the hash is known. Real and imaginary parts of a complex tensor are
    elements of their own.
    """

    count: int | None = None
    max: Number | None = None
    min: Number | None = None
    mean: float | None = None
    l2norm: float | None = None
    std: float | None = None
    nan: int | None = None
    pos_inf: int | None = None
    neg_inf: int | None = None
    zero: int | None = None
    negative: int | None = None
    subnormal: int | None = None
    finite_max: Number | None = None
    finite_min: Number | None = None
    finite_mean: float | None = None
    hash: str | None = None  #: xxh3-64 of the bytes the elements take, 16 hex digits
    saturated: float | None = None  #: share of the elements at the largest finite magnitude, of 8-bit floats
    histogram: tuple[int, ...] | None = None  #: of exponents, on request


@dataclass(frozen=True, slots=True)
class TensorRow(TensorStatistics, _Origin):
    """One tensor; None where a value is not known. The fields are the columns of the table, in order."""

    original_shape: tuple[int, ...] | None = None
    size: int | None = None  #: bytes, as the header promises
    bytes: int | None = None  #: bytes that came
    address: Address | None = None  #: on the device
    model_id: int | None = None
    source: str = HOST  #: `HOST`, or `DEVICE` if the runtime computed the row
    problem: str | None = None  #: why the row, or the file if there is no `io`, is not to be trusted
    host: str | None = None  #: on which the process ran, in a job of several
    rank: int | None = None  #: of the process, in a capture of several
    capture: str | None = None  #: the path that it was read from, if several were read at once


class Provenance(NamedTuple):
    """Which process of which capture some rows are from, as `TensorRow` has it."""

    rank: int | None = None
    capture: str | None = None
    host: str | None = None


class Kind(Enum):
    """What a column holds."""

    TEXT = auto()
    WHOLE = auto()
    ADDRESS = auto()  #: an integer from 0 to 2^64 - 1
    REAL = auto()
    EXACT = auto()  #: a real number, or an integer of up to 64 bits that is kept exactly
    LIST = auto()

    @property
    def numeric(self) -> bool:
        """Whether its values can be compared with a number."""
        return self in {Kind.WHOLE, Kind.ADDRESS, Kind.REAL, Kind.EXACT}


_KINDS: dict[Any, Kind] = {
    str: Kind.TEXT,
    str | None: Kind.TEXT,
    int | None: Kind.WHOLE,
    Address | None: Kind.ADDRESS,
    float | None: Kind.REAL,
    Number | None: Kind.EXACT,
    tuple[int, ...] | None: Kind.LIST,
}

#: Every column, in order.
COLUMNS: dict[str, Kind] = {name: _KINDS[hint] for name, hint in get_type_hints(TensorRow).items()}


def find_column(name: str) -> str:
    """Return *name* if it is a column.

    Raises:
        ValueError: it is not one; the message says which may be meant.
    """
    if name not in COLUMNS:
        raise ValueError(unknown_column(name))
    return name


def unknown_column(name: str) -> str:
    """Return that *name* is not a column, and the columns that may be meant."""
    similar = get_close_matches(name.lower(), COLUMNS, 1, 0.75)
    hint = f"did you mean {similar[0]}?" if similar else f"the columns are {', '.join(COLUMNS)}"
    return f"no column {name!r}; {hint}"


class SortKey(NamedTuple):
    """A column to sort by."""

    column: str
    descending: bool = False

    @classmethod
    def parse(cls, text: str) -> SortKey:
        """Return the key that ``COLUMN`` or ``COLUMN:desc`` stands for.

        Raises:
            ValueError: *text* is neither.
        """
        column, colon, order = text.strip().partition(":")
        if colon and order not in {"asc", "desc"}:
            raise ValueError(f"no order {order!r}; write {column} or {column}:desc")
        return cls(find_column(column), order == "desc")


def parse_order(text: str) -> list[SortKey]:
    """Return the keys that ``COLUMN,COLUMN:desc,...`` stands for.

    Clocks differ between processes: `timestamp` orders only the rows of one, so `capture`, `host` and
    `rank` come before it.

    Raises:
        ValueError: one of them is not a key.
    """
    keys: list[SortKey] = []
    for key in [SortKey.parse(part) for part in text.split(",") if part.strip()]:
        if key.column == "timestamp":
            known = {it.column for it in keys}
            keys += [SortKey(name) for name in ("capture", "host", "rank") if name not in known]
        keys.append(key)
    return keys


def sort_columns(columns: Mapping[str, list[Any]], keys: Sequence[SortKey]) -> dict[str, list[Any]]:
    """Return *columns* by the first of *keys*, then the next; in either order NaN and then None come last."""
    order: Iterable[int] = range(len(columns[keys[0].column]))
    for column, descending in reversed(keys):
        values = columns[column]
        ordered = [row for row in order if not _is_unordered(values[row])]
        rest = [row for row in order if _is_unordered(values[row])]
        ordered.sort(key=values.__getitem__, reverse=descending)
        rest.sort(key=lambda row: values[row] is None)
        order = ordered + rest
    return {name: [values[row] for row in order] for name, values in columns.items()}


def _is_unordered(value: object) -> bool:
    return value is None or value != value  # noqa: PLR0124 - only NaN differs from itself


def json_object(row: TensorRow, columns: Iterable[str] = COLUMNS) -> dict[str, Any]:
    """Return *columns* of *row* as JSON can hold them: what is not finite becomes a string."""
    return {name: json_value(getattr(row, name)) for name in columns}


def json_value(value: Any) -> Any:
    """Return *value* as JSON can hold it: what is not finite becomes a string, a complex number a pair."""
    if isinstance(value, complex):
        return [json_value(value.real), json_value(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
