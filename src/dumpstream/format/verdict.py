"""Verdict: whether a file is whole, once nothing more of it will come."""

from enum import StrEnum

from typing_extensions import Buffer

from dumpstream._native import read_header

#: ``(state, total, present)``, as `read_header` returns it.
Header = tuple[int, int, int]

#: The states of a `Header`: it is all there, only its beginning is there, the file does not have one.
WHOLE_HEADER, PARTIAL_HEADER, _NONE = 0, 1, 2

#: The header of a file before its first byte, and of a file without a dump header.
NO_HEADER: Header = (_NONE, 0, 0)


class Verdict(StrEnum):
    """Whether a file is whole, and if not, why; the first that applies."""

    LOST = "lost"  #: bytes of it were refused or discarded
    GAP = "gap"  #: a range never came
    OVERLAP = "overlap"  #: a range came twice, with different bytes
    NEVER_CLOSED = "never_closed"  #: no last chunk came, and the header does not confirm the length
    SHORT = "short"  #: fewer bytes than the header promises
    LONG = "long"  #: more bytes than the header promises
    COMPLETE = "complete"  #: exactly what the header promises, or statistics text
    UNPARSED = "unparsed"  #: closed in order, without a dump header

    @property
    def whole(self) -> bool:
        """Whether nothing is missing, as far as the file can tell."""
        return self is Verdict.COMPLETE or self is Verdict.UNPARSED


def judge(length: int, header: Header, *, closed: bool = True) -> Verdict:
    """Return the verdict on *length* bytes that came in order, without loss, gap or overlap.

    A file of fewer than eight bytes does not tell the length of its header, so it is never found to be short.
    """
    state, total, present = header
    if state == WHOLE_HEADER and length in (total, present):
        return Verdict.COMPLETE
    if not closed:
        return Verdict.NEVER_CLOSED
    if state == WHOLE_HEADER:
        return Verdict.SHORT if length < total else Verdict.LONG
    return Verdict.SHORT if state == PARTIAL_HEADER and total else Verdict.UNPARSED


class HeaderReader:
    """Reads the dump header of a file that comes in pieces.

    Keeps bytes only while they are the beginning of a header, and at most *limit* of them: a longer header is
    not read.
    """

    __slots__ = ("_ahead", "_limit", "_need", "header", "kept", "settled")

    def __init__(self, limit: int) -> None:
        self.header = NO_HEADER
        self.settled = False  #: whether further bytes cannot change `header`
        self._limit = limit
        self.kept = bytearray()  #: the beginning of the file, unless the first piece was enough
        self._need = 0
        self._ahead: dict[int, bytes] = {}

    def add(self, position: int, data: Buffer) -> None:
        """Take in the bytes at *position*; each byte once, in any order."""
        if position != len(self.kept):
            if position < self._limit:
                self._ahead[position] = bytes(memoryview(data)[: self._limit - position])
            return
        self._extend(data)
        while self._ahead and not self.settled:
            following = self._ahead.pop(len(self.kept), None)
            if following is None:
                return
            self._extend(following)

    def _extend(self, data: Buffer) -> None:
        source = data
        if self.kept:
            self.kept += memoryview(data)[: self._limit - len(self.kept)]
            if len(self.kept) < self._need:
                return
            source = self.kept
        self.header = read_header(source)
        state, need, _ = self.header
        if state == PARTIAL_HEADER and need <= self._limit:
            self._need = need
            if not self.kept:
                self.kept += memoryview(data)
            return
        if state == PARTIAL_HEADER:
            self.header = NO_HEADER
        self.settled = True
