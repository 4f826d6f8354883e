"""What the library logs while a command runs, said on standard error."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from dumpstream.cli._display import say

#: The same words are said again after so many seconds: many processes may have one trouble.
_AGAIN_S = 60.0


class _Notices(logging.Handler):
    """Says every record, unless it has just said the same."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text, now = record.getMessage(), monotonic()
        self._said = {text: at for text, at in self._said.items() if now - at < _AGAIN_S}
        if text not in self._said:
            self._said[text] = now
            say(text)


@contextmanager
def notices_said() -> Iterator[None]:
    """Say what dumpstream logs while the block runs: sinks that fail, stores that do not answer."""
    logger, handler = logging.getLogger("dumpstream"), _Notices()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
