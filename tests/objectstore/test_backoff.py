from __future__ import annotations

import pytest

from dumpstream.objectstore.backoff import Backoff


@pytest.fixture(autouse=True)
def longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have chance choose the longest pauses."""
    monkeypatch.setattr("random.uniform", lambda _, most: most)


def test_pauses_double_up_to_a_limit() -> None:
    backoff = Backoff()

    pauses = [backoff.next_pause() for _ in range(8)]

    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]


def test_store_that_has_answered_is_tried_soon_again() -> None:
    backoff = Backoff()
    for _ in range(3):
        backoff.next_pause()

    backoff.reset()

    assert backoff.next_pause() == 0.5
