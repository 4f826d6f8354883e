from __future__ import annotations

from itertools import chain, cycle

from hypothesis import given
from hypothesis import strategies as st

from dumpstream.objectstore.cycle import Cycle


@given(st.integers(0, 200), st.integers(1, 200))
def test_cycle_of_any_length_is_found_soon(before: int, length: int) -> None:
    listing, known = Cycle(), before + length
    keys = chain(range(before), cycle(range(before, known)))

    at = next(count for count, key in enumerate(keys) if listing.is_closed_by(str(key)))

    assert known <= at <= 4 * known


@given(st.sets(st.text()))
def test_listing_that_names_every_key_once_is_not_a_cycle(keys: set[str]) -> None:
    listing = Cycle()

    assert not any(listing.is_closed_by(key) for key in keys)
