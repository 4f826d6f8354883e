"""Pace: how fast something grows, and when it will be done."""

from collections import deque

WINDOW_S = 10.0
_LEAST_S = 0.2


class Pace:
    """The rate of the last *window_s* seconds, from samples of an amount."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, now: float, amount: int) -> None:
        """Note that there is *amount* at the time *now*."""
        samples = self._samples
        if samples and (now < samples[-1][0] or amount < samples[-1][1]):
            samples.clear()
        if len(samples) > 1 and now - samples[-2][0] < _LEAST_S:
            samples.pop()
        samples.append((now, amount))
        while len(samples) > 2 and now - samples[1][0] >= self._window_s:  # noqa: PLR2004 - a rate needs two
            samples.popleft()

    @property
    def per_second(self) -> float | None:
        """The rate; None if it is not known yet."""
        if len(self._samples) < 2:  # noqa: PLR2004 - a rate needs two
            return None
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - start) if end - start >= _LEAST_S else None

    def seconds_left(self, amount: int, total: int) -> float | None:
        """Return when *total* is reached from *amount*; None if that cannot be told."""
        rate = self.per_second
        return max(total - amount, 0) / rate if rate else None


def duration_text(seconds: float) -> str:
    """Return ``0:07``, ``12:30`` or ``1:02:03``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
