"""Formats: the numbers in a dump header for how the elements of a tensor are laid out."""

from typing import NamedTuple

_NAMES = {
    0: "NCHW",
    1: "NHWC",
    2: "ND",
    3: "NC1HWC0",
    4: "FRACTAL_Z",
    5: "NC1C0HWPAD",
    6: "NHWC1C0",
    7: "FSR_NCHW",
    8: "FRACTAL_DECONV",
    9: "C1HWNC0",
    10: "FRACTAL_DECONV_TRANSPOSE",
    11: "FRACTAL_DECONV_SP_STRIDE_TRANS",
    12: "NC1HWC0_C04",
    13: "FRACTAL_Z_C04",
    14: "CHWN",
    15: "FRACTAL_DECONV_SP_STRIDE8_TRANS",
    16: "HWCN",
    17: "NC1KHKWHWC0",
    18: "BN_WEIGHT",
    19: "FILTER_HWCK",
    20: "HASHTABLE_LOOKUP_LOOKUPS",
    21: "HASHTABLE_LOOKUP_KEYS",
    22: "HASHTABLE_LOOKUP_VALUE",
    23: "HASHTABLE_LOOKUP_OUTPUT",
    24: "HASHTABLE_LOOKUP_HITS",
    25: "C1HWNCoC0",
    26: "MD",
    27: "NDHWC",
    28: "FRACTAL_ZZ",
    29: "FRACTAL_NZ",
    30: "NCDHW",
    31: "DHWCN",
    32: "NDC1HWC0",
    33: "FRACTAL_Z_3D",
    34: "CN",
    35: "NC",
    36: "DHWNC",
    37: "FRACTAL_Z_3D_TRANSPOSE",
    38: "FRACTAL_ZN_LSTM",
    39: "FRACTAL_Z_G",
    40: "RESERVED",
    41: "ALL",
    42: "NULL",
    43: "ND_RNN_BIAS",
    44: "FRACTAL_ZN_RNN",
    45: "NYUV",
    46: "NYUV_A",
    47: "NCL",
    48: "FRACTAL_Z_WINO",
    49: "C1HWC0",
    255: "MAX",
    # Not in the enumeration of dumps, but in aclFormat; dumps have them too.
    50: "FRACTAL_NZ_C0_16",
    51: "FRACTAL_NZ_C0_32",
    52: "FRACTAL_NZ_C0_2",
    53: "FRACTAL_NZ_C0_4",
    54: "FRACTAL_NZ_C0_8",
}


class Format(NamedTuple):
    """A layout: its number in the header and CANN's name for it."""

    number: int
    name: str


#: Every format that has a name, by number.
FORMATS = {number: Format(number, name) for number, name in _NAMES.items()}


def format_of(number: int) -> Format:
    """Return the format *number*; an unknown one is named by its number."""
    return FORMATS.get(number) or Format(number, f"UNKNOWN_{number}")
