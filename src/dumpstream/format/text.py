"""Statistics text, without what the runtime adds to it in every callback."""

from functools import lru_cache

from dumpstream.chunk import Chunk

#: The end of the names of files with statistics text.
TEXT_SUFFIX = ".csv"

_LONGEST_HEADER = 1 << 12
_MATCH_BYTES = 128


class TextFilter:
    """Removes one trailing NUL, and a repeated header row at the start, from the text of each callback.

    The header row is *header_row*, from an earlier file of the same name. Otherwise it is the first line of
    the first callback with text, if it has at most 4 KiB and at least two columns, all of which are neither
    empty nor a number, as the index in a row of data is. Without a header row, every line stays.
    """

    __slots__ = ("_learning", "_line", "_matched")

    def __init__(self, header_row: bytes | None = None) -> None:
        self._line = header_row  #: with its newline; empty if the file lacks one, None until that is known
        self._learning: tuple[int, bytearray] | None = None  #: the callback that has it, and its text so far
        self._matched: dict[int, int] = {}  #: by unfinished callback, how much of the line it has repeated

    @property
    def header_row(self) -> bytes | None:
        """The header row with its newline, once it is known."""
        return self._line or None

    @property
    def kept_bytes(self) -> int:
        """About how much memory it takes."""
        return _LONGEST_HEADER + _MATCH_BYTES * len(self._matched)

    def text_of(self, chunk: Chunk) -> memoryview | bytes:
        """Return the text of *chunk*, a record in append mode, that goes into the file now.

        Leaves out text that may be the start of a repeated header row. If the row turns out to be another
        one, that text comes back in front of the rest.
        """
        text = strip_nul(chunk)
        if self._line is None:
            self._learn(chunk.sequence, text, more=chunk.more)
            return text
        return self._without_repetition(chunk.sequence, text, self._line, more=chunk.more)

    def _learn(self, sequence: int, text: memoryview, *, more: bool) -> None:
        if self._learning is None:
            if not text:
                return
            self._learning = (sequence, bytearray())
        learner, start = self._learning
        if sequence != learner:
            return
        start += text[: _LONGEST_HEADER - len(start)]
        line, newline, _ = start.partition(b"\n")
        if newline or not more or len(start) == _LONGEST_HEADER:
            first = bytes(line)
            known = (newline or len(start) < _LONGEST_HEADER) and _is_header(first)
            self._line = first + b"\n" if known else b""
            self._learning = None
            if more:
                self._matched[sequence] = len(self._line)

    def _without_repetition(
        self, sequence: int, text: memoryview, line: bytes, *, more: bool
    ) -> memoryview | bytes:
        kept: memoryview | bytes = text
        matched = self._matched.pop(sequence, 0)
        if matched < len(line):
            count = min(len(text), len(line) - matched)
            if text[:count] != line[matched : matched + count]:
                kept = line[:matched] + bytes(text) if matched else text
                matched = len(line)
            else:
                kept = text[count:]
                matched += count
                if not more and matched < len(line) - 1:
                    kept = line[:matched]
        if more:
            self._matched[sequence] = matched
        return kept


@lru_cache(maxsize=64)  # most files of a capture have the same
def _is_header(line: bytes) -> bool:
    columns = line.split(b",")
    return len(columns) > 1 and not any(_is_value(column.strip()) for column in columns)


def _is_value(column: bytes) -> bool:
    try:
        float(column)
    except ValueError:
        return not column
    return True


def strip_nul(chunk: Chunk) -> memoryview:
    """Return the bytes of *chunk* without the NUL that may end the text of a callback."""
    text = memoryview(chunk)
    return text[:-1] if text and text[-1] == 0 and not chunk.more else text
