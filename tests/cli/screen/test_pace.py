from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpstream.cli.screen.pace import Pace, duration_text
from dumpstream.cli.screen.progress import Progress


@given(st.lists(st.tuples(st.floats(0.01, 5), st.integers(0, 10**12)), max_size=50))
def test_rate_is_never_negative_and_bounded_by_what_came(steps: list[tuple[float, int]]) -> None:
    pace = Pace()
    now, amount = 0.0, 0
    for seconds, more in steps:
        now, amount = now + seconds, amount + more
        pace.note(now, amount)

    assert pace.per_second is None or 0 <= pace.per_second <= amount / 0.2
    left = pace.seconds_left(amount, amount + 100)
    assert left is None or left > 0


def test_rate_is_that_of_the_last_seconds() -> None:
    pace = Pace()
    for second in range(100):
        pace.note(second, 10 * min(second, 50))
    assert pace.per_second == 0

    for second in range(100, 120):
        pace.note(second, 500 + 20 * (second - 99))
    assert pace.per_second == 20
    assert pace.seconds_left(900, 1000) == 5


def test_rate_of_what_comes_seldom_is_that_of_a_longer_time() -> None:
    pace = Pace(window_s=600)
    for second in range(120):
        pace.note(second, second // 30)

    assert pace.per_second == pytest.approx(3 / 119)
    assert pace.seconds_left(3, 4) == pytest.approx(119 / 3)


def test_amount_that_shrinks_begins_again() -> None:
    pace = Pace()
    pace.note(0, 100)
    pace.note(1, 200)
    pace.note(2, 0)

    assert pace.per_second is None


def test_durations_are_read_as_on_a_clock() -> None:
    assert [duration_text(it) for it in (0, 7.9, 65, 3600, 100_000)] == [
        *("0:00", "0:07", "1:05", "1:00:00", "27:46:40")
    ]


def test_progress_of_long_tasks_says_their_rate_and_the_time_left() -> None:
    progress = Progress("computing", "task", window_s=600)
    progress.expect(8)
    for second in range(60):
        progress.show(second // 30)
        progress.note(second)

    assert progress.text() == "computing: 12 %, 1 of 8 tasks, 0.02 tasks/s, 6:53 left"
