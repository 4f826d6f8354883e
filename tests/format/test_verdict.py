from __future__ import annotations

import struct
from itertools import pairwise, permutations

import pytest

from dumpstream._native import read_header
from dumpstream.format.verdict import NO_HEADER, Header, HeaderReader, Verdict, judge

WHOLE, PARTIAL, NONE = 0, 1, 2

#: A header of 8 + 20 bytes: an operator name and nothing else.
HEADER = struct.pack("<Q", 20) + b"\x32\x12" + b"n" * 18


@pytest.mark.parametrize(
    ("length", "header", "closed", "not_closed"),
    [
        (100, (WHOLE, 100, 80), Verdict.COMPLETE, Verdict.COMPLETE),
        (80, (WHOLE, 100, 80), Verdict.COMPLETE, Verdict.COMPLETE),
        (90, (WHOLE, 100, 80), Verdict.SHORT, Verdict.NEVER_CLOSED),
        (79, (WHOLE, 100, 80), Verdict.SHORT, Verdict.NEVER_CLOSED),
        (101, (WHOLE, 100, 80), Verdict.LONG, Verdict.NEVER_CLOSED),
        (12, (PARTIAL, 100, 0), Verdict.SHORT, Verdict.NEVER_CLOSED),
        (100, (PARTIAL, 100, 0), Verdict.SHORT, Verdict.NEVER_CLOSED),
        (3, (PARTIAL, 0, 0), Verdict.UNPARSED, Verdict.NEVER_CLOSED),
        (0, (PARTIAL, 0, 0), Verdict.UNPARSED, Verdict.NEVER_CLOSED),
        (0, NO_HEADER, Verdict.UNPARSED, Verdict.NEVER_CLOSED),
        (50, NO_HEADER, Verdict.UNPARSED, Verdict.NEVER_CLOSED),
    ],
)
def test_length_and_header_give_the_verdict(
    length: int, header: Header, closed: Verdict, not_closed: Verdict
) -> None:
    assert judge(length, header) is closed
    assert judge(length, header, closed=False) is not_closed


def test_only_complete_and_unparsed_are_whole() -> None:
    assert [verdict for verdict in Verdict if verdict.whole] == [Verdict.COMPLETE, Verdict.UNPARSED]


def test_header_is_the_same_in_one_piece_and_in_any_order_of_pieces() -> None:
    pieces = [(start, HEADER[start:end]) for start, end in pairwise([0, 3, 9, 20, len(HEADER)])]

    for order in permutations(pieces):
        reader = HeaderReader(limit=100)
        for position, data in order:
            reader.add(position, data)

        assert reader.settled
        assert reader.header == read_header(HEADER) == (WHOLE, len(HEADER), len(HEADER))


def test_what_is_no_header_is_settled_at_once() -> None:
    reader = HeaderReader(limit=100)

    reader.add(0, bytes(8))

    assert reader.settled
    assert reader.header[0] == NONE


def test_beginning_of_a_header_is_not_settled() -> None:
    reader = HeaderReader(limit=100)

    reader.add(0, HEADER[:10])

    assert not reader.settled
    assert reader.header == (PARTIAL, len(HEADER), 0)


def test_header_at_the_limit_is_read_and_one_above_it_is_none() -> None:
    readers = [HeaderReader(limit=len(HEADER)), HeaderReader(limit=len(HEADER) - 1)]

    for reader in readers:
        reader.add(0, HEADER[:10])
        reader.add(10, HEADER[10:] + b"payload")

    assert [reader.header[0] for reader in readers] == [WHOLE, NONE]


def test_no_more_than_the_limit_is_kept() -> None:
    reader = HeaderReader(limit=100)

    reader.add(50, bytes(1000))
    reader.add(5000, bytes(1000))

    assert {position: len(data) for position, data in reader._ahead.items()} == {50: 50}
