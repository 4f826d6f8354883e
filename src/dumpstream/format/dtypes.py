"""Data types: how the elements of a tensor are encoded, and how they become numpy arrays.

Elements of fewer than 8 bits are packed, unless the tensor has exactly as many bytes as elements: then each
has a byte of its own. The first of a byte has its low bits, except that bits (uint1) begin with the highest,
as CANN's own tool unpacks them. Elements that are not numbers become bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray
from typing_extensions import Buffer

from dumpstream.format import hifloat8

_BYTE_BITS = 8
_COMPLEX32 = 32

#: A dimension that was not known when the operator was compiled.
DYNAMIC = 2**64 - 1


@dataclass(frozen=True, slots=True)
class DType:
    """An element encoding; two are equal if their numbers are."""

    number: int  #: in the dump header; aclDataType has other numbers
    name: str = field(compare=False)  #: as CANN prints it
    short: str = field(compare=False)  #: as frameworks write it
    bits: int = field(compare=False)  #: of one element in the file
    numpy: np.dtype[Any] = field(compare=False)  #: of the array that `decode` returns
    #: How the statistics kernels read an element: its type and bytes, ``byte`` if it is a code for a number,
    #: None if it is not a number. They read a complex number as its two components.
    kernel: str | None = field(compare=False)
    #: The value of every code, for elements that cannot be used as they lie.
    table: NDArray[Any] | None = field(compare=False, default=None, repr=False)

    def is_packed(self, count: int, size: int) -> bool:
        """Whether *count* elements in *size* bytes share their bytes."""
        return self.bits < _BYTE_BITS and size != count

    def stored_bytes(self, count: int, size: int) -> int:
        """Return how many of a tensor's *size* bytes its *count* elements take."""
        if self.bits < _BYTE_BITS and not self.is_packed(count, size):
            return count
        return -(-count * self.bits // _BYTE_BITS)

    def unit_bytes(self, *, packed: bool) -> int:
        """Return the fewest bytes that hold a whole number of elements."""
        return self.bits // math.gcd(self.bits, _BYTE_BITS) if packed else -(-self.bits // _BYTE_BITS)


def dtype_of(number: int) -> DType:
    """Return the data type *number*; an unknown one has bytes as elements and is named by its number."""
    return DTYPES.get(number) or _opaque(number, f"UNKNOWN_{number}")


def element_shape(dtype: DType, shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the shape of the array that `decode` makes of *size* bytes.

    That is *shape*, or one dimension with all elements if there is no shape, it is dynamic, or the elements
    are not numbers.
    """
    if dtype.kernel is None or not shape or DYNAMIC in shape:
        return (size * _BYTE_BITS // dtype.bits,)
    return tuple(shape)


def needed_bytes(dtype: DType, shape: Sequence[int], size: int) -> int:
    """Return how many of a tensor's *size* bytes `decode` needs.

    Raises:
        ValueError: it needs more than *size*.
    """
    needed = dtype.stored_bytes(math.prod(element_shape(dtype, shape, size)), size)
    if needed > size:
        raise ValueError(f"{dtype.short}{list(shape)} needs {needed} bytes and has {size}")
    return needed


def decode(dtype: DType, shape: Sequence[int], size: int, data: Buffer) -> NDArray[Any]:
    """Return the elements of a tensor of *size* bytes; *data* holds at least those that are needed.

    Shares memory with *data*, except for bool, complex32, HiFloat8 and types of fewer than 8 bits. Leaves out
    the bytes behind the last element of *shape*, as CANN's own tool does.

    Raises:
        ValueError: the shape does not fit into *size*, or into an array.
    """
    needed = needed_bytes(dtype, shape, size)
    shape = element_shape(dtype, shape, size)
    count = math.prod(shape)
    raw = np.frombuffer(memoryview(data), np.uint8, needed)
    return decode_elements(dtype, raw, count, packed=dtype.is_packed(count, size)).reshape(shape)


def decode_elements(dtype: DType, raw: NDArray[np.uint8], count: int, *, packed: bool) -> NDArray[Any]:
    """Return the *count* elements in the bytes *raw* as `decode` does, in one dimension."""
    elements: NDArray[Any]
    if dtype.table is not None:
        elements = dtype.table[unpack(dtype, raw, count, packed=packed)]
    elif dtype.numpy == np.bool_:
        elements = raw != 0
    elif dtype.number == _COMPLEX32:
        elements = raw.view("<f2").astype("<f4").view(dtype.numpy)
    else:
        elements = raw.view(dtype.numpy)
    return elements


def unpack(dtype: DType, raw: NDArray[np.uint8], count: int, *, packed: bool) -> NDArray[np.uint8]:
    """Return the codes of the *count* elements in the bytes *raw*, of at most 8 bits, a byte each."""
    bits = dtype.bits
    if not packed:
        return raw if bits == _BYTE_BITS else raw & np.uint8((1 << bits) - 1)
    if bits == 1:
        return np.unpackbits(raw, count=count)
    group = dtype.unit_bytes(packed=True)
    padded = np.zeros(-(-len(raw) // group) * group, np.uint8)
    padded[: len(raw)] = raw
    words: NDArray[Any] = padded
    if group > 1:
        words = np.zeros(len(padded) // group, np.uint32)
        for place in range(group):
            words |= padded[place::group].astype(np.uint32) << (_BYTE_BITS * place)
    shifts = np.arange(0, group * _BYTE_BITS, bits, dtype=words.dtype)
    codes: NDArray[Any] = (words[:, np.newaxis] >> shifts) & ((1 << bits) - 1)
    return codes.astype(np.uint8, copy=False).reshape(-1)[:count]


def _plain(number: int, name: str, short: str, numpy: DTypeLike, kernel: str) -> DType:
    dtype = np.dtype(numpy)
    return DType(number, f"DT_{name}", short, dtype.itemsize * _BYTE_BITS, dtype, kernel)


def _opaque(number: int, name: str) -> DType:
    return DType(number, f"DT_{name}", name.lower(), _BYTE_BITS, np.dtype(np.uint8), None)


def _coded(number: int, name: str, short: str, bits: int, table: NDArray[Any]) -> DType:
    return DType(number, f"DT_{name}", short, bits, table.dtype, "byte", table)


def _integers(bits: int) -> NDArray[np.int8]:
    """Return the two's complement of every code."""
    codes = np.arange(1 << bits)
    return np.where(codes >= 1 << bits - 1, codes - (1 << bits), codes).astype(np.int8)


def _naturals(bits: int) -> NDArray[np.uint8]:
    return np.arange(1 << bits, dtype=np.uint8)


def _floats(bits: int, numpy: DTypeLike) -> NDArray[Any]:
    return _naturals(bits).view(numpy)


def _e1m2() -> NDArray[np.float32]:
    """Return the values of FLOAT4_E1M2, which counts in quarters: sign, then 0 to 1.75."""
    quarters = np.arange(8, dtype=np.float32) / 4
    return np.concatenate([quarters, -quarters])


#: The data types of CANN, by number.
DTYPES = {
    dtype.number: dtype
    for dtype in [
        _plain(0, "UNDEFINED", "undefined", "i1", "i1"),  # as CANN's own tool reads it
        _plain(1, "FLOAT", "float32", "<f4", "f4"),
        _plain(2, "FLOAT16", "float16", "<f2", "f2"),
        _plain(3, "INT8", "int8", "i1", "i1"),
        _plain(4, "UINT8", "uint8", "u1", "u1"),
        _plain(5, "INT16", "int16", "<i2", "i2"),
        _plain(6, "UINT16", "uint16", "<u2", "u2"),
        _plain(7, "INT32", "int32", "<i4", "i4"),
        _plain(8, "INT64", "int64", "<i8", "i8"),
        _plain(9, "UINT32", "uint32", "<u4", "u4"),
        _plain(10, "UINT64", "uint64", "<u8", "u8"),
        _plain(11, "BOOL", "bool", "?", "bool"),
        _plain(12, "DOUBLE", "float64", "<f8", "f8"),
        _opaque(13, "STRING"),
        _plain(14, "DUAL_SUB_INT8", "dual_sub_int8", "i1", "i1"),
        _plain(15, "DUAL_SUB_UINT8", "dual_sub_uint8", "u1", "u1"),
        _plain(16, "COMPLEX64", "complex64", "<c8", "f4"),
        _plain(17, "COMPLEX128", "complex128", "<c16", "f8"),
        _plain(18, "QINT8", "qint8", "i1", "i1"),
        _plain(19, "QINT16", "qint16", "<i2", "i2"),
        _plain(20, "QINT32", "qint32", "<i4", "i4"),
        _plain(21, "QUINT8", "quint8", "u1", "u1"),
        _plain(22, "QUINT16", "quint16", "<u2", "u2"),
        _plain(23, "RESOURCE", "resource", "<i8", "i8"),  # likewise
        _opaque(24, "STRING_REF"),
        _opaque(25, "DUAL"),
        _opaque(26, "VARIANT"),
        _plain(27, "BF16", "bfloat16", ml_dtypes.bfloat16, "bf16"),
        _coded(28, "INT4", "int4", 4, _integers(4)),
        _coded(29, "UINT1", "uint1", 1, _naturals(1)),
        _coded(30, "INT2", "int2", 2, _integers(2)),
        _coded(31, "UINT2", "uint2", 2, _naturals(2)),
        DType(_COMPLEX32, "DT_COMPLEX32", "complex32", 32, np.dtype("<c8"), "f2"),
        _coded(33, "HIFLOAT8", "hifloat8", 8, hifloat8.values()),
        _plain(34, "FLOAT8_E5M2", "float8_e5m2", ml_dtypes.float8_e5m2, "byte"),
        _plain(35, "FLOAT8_E4M3FN", "float8_e4m3fn", ml_dtypes.float8_e4m3fn, "byte"),
        _plain(36, "FLOAT8_E8M0", "float8_e8m0", ml_dtypes.float8_e8m0fnu, "byte"),
        _coded(37, "FLOAT6_E3M2", "float6_e3m2", 6, _floats(6, ml_dtypes.float6_e3m2fn)),
        _coded(38, "FLOAT6_E2M3", "float6_e2m3", 6, _floats(6, ml_dtypes.float6_e2m3fn)),
        _coded(39, "FLOAT4_E2M1", "float4_e2m1", 4, _floats(4, ml_dtypes.float4_e2m1fn)),
        _coded(40, "FLOAT4_E1M2", "float4_e1m2", 4, _e1m2()),
        _opaque(41, "HIFLOAT4"),
        _opaque(42, "HIFLOAT4_SCALE"),
    ]
}
