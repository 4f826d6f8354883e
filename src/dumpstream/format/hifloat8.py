"""HiFloat8: the values of its 256 codes.

A code is a sign, a prefix that says how many exponent bits follow, the exponent (sign and magnitude, the
leading bit of the magnitude implied) and the mantissa. Small exponents leave more bits to the mantissa.
"""

import math

import numpy as np
from numpy.typing import NDArray

#: Smaller magnitudes are subnormal.
MIN_NORMAL = 2.0**-15

_SIGN = 0x80
_INFINITY = 0x6F
_BITS = 7  #: without the sign
_SUBNORMAL_BITS = 3
_SUBNORMAL_BIAS = 23
#: Prefixes and how many exponent bits follow them.
_PREFIXES = (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0))


def values() -> NDArray[np.float32]:
    """Return the value of every code, from 0x00 to 0xFF."""
    codes = [_value(code) for code in range(_SIGN)]
    negative = [-value for value in codes]
    negative[0] = float("nan")
    return np.array(codes + negative, np.float32)


def _value(code: int) -> float:
    """Return the value of a *code* without its sign."""
    if code == 0:
        return 0.0
    if code == _INFINITY:
        return float("inf")
    bits = f"{code:0{_BITS}b}"
    for prefix, width in _PREFIXES:
        if bits.startswith(prefix):
            rest = bits[len(prefix) :]
            mantissa = rest[width:]
            return math.ldexp(1 + int(mantissa, 2) / (1 << len(mantissa)), _exponent(rest[:width]))
    return math.ldexp(1, int(bits[-_SUBNORMAL_BITS:], 2) - _SUBNORMAL_BIAS)


def _exponent(bits: str) -> int:
    """Return the exponent: a sign, and a magnitude whose leading one is not written."""
    if not bits:
        return 0
    magnitude = int("1" + bits[1:], 2)
    return -magnitude if bits[0] == "1" else magnitude
