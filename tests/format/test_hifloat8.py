from __future__ import annotations

import en_dtypes
import numpy as np

from dumpstream.format import hifloat8


def test_every_code_has_the_value_that_en_dtypes_gives_it() -> None:
    expected = np.arange(256, dtype=np.uint8).view(en_dtypes.hifloat8).astype(np.float32)

    values = hifloat8.values()

    np.testing.assert_array_equal(values, expected)
    assert not np.signbit(values[0])


def test_only_the_codes_without_exponent_and_sign_prefix_are_subnormal() -> None:
    magnitudes = np.abs(hifloat8.values())

    subnormal = np.flatnonzero((magnitudes > 0) & (magnitudes < hifloat8.MIN_NORMAL))

    assert subnormal.tolist() == [*range(0x01, 0x08), *range(0x81, 0x88)]
