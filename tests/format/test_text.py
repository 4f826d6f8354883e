from __future__ import annotations

import pytest

from dumpstream._native import Chunk
from dumpstream.format.text import TextFilter

HEADER = b"Input/Output,Index,Data Size\n"


def filtered(*callbacks: bytes, step: int = 1000, header_row: bytes | None = None) -> bytes:
    """Return the text of *callbacks*, each of which comes in records of *step* bytes."""
    text_filter = TextFilter(header_row)
    left = bytearray()
    for sequence, data in enumerate(callbacks):
        for start in range(0, len(data), step):
            more = start + step < len(data)
            left += text_filter.text_of(
                Chunk("op.csv", data[start : start + step], sequence=sequence, more=more)
            )
    return bytes(left)


@pytest.mark.parametrize("step", [1, 2, 1000])
def test_one_nul_is_taken_off_the_end_of_a_callback(step: int) -> None:
    assert filtered(b"a\0b\n\0\0", b"c\n", b"d\n\0", step=step) == b"a\0b\n\0c\nd\n"


@pytest.mark.parametrize(
    "rows",
    [
        b"b\n",
        b"",
        b"b\n" + HEADER,
    ],
)
@pytest.mark.parametrize("step", [1, 3, len(HEADER), 1000])
def test_repeated_header_row_is_dropped_in_whatever_records_it_comes(rows: bytes, step: int) -> None:
    left = filtered(HEADER + b"a\n\0", HEADER + rows + b"\0", b"c\n\0", step=step)

    assert left == HEADER + b"a\n" + rows + b"c\n"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        HEADER[:-2],
        HEADER[:-1] + b",Format\n",
        b"\n" + HEADER,
    ],
)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_text_that_only_resembles_the_header_row_stays(text: bytes, step: int) -> None:
    left = filtered(HEADER + b"a\n\0", text + b"\0", step=step)

    assert left == HEADER + b"a\n" + text


@pytest.mark.parametrize("step", [1, 1000])
def test_header_row_without_newline_is_known_again(step: int) -> None:
    assert filtered(HEADER + b"a\n\0", HEADER[:-1] + b"\0", step=step) == HEADER + b"a\n"
    assert filtered(HEADER[:-1] + b"\0", HEADER + b"b\n\0", step=step) == HEADER[:-1] + b"b\n"


def test_empty_first_callback_leaves_the_header_row_to_the_next() -> None:
    assert filtered(b"\0", HEADER + b"\0", HEADER + b"a\n\0") == HEADER + b"a\n"


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    "row", [b"1,2\n", b"Input,0,16\n", b"Input/Output\n", b",Input/Output,\n", b"a,nan\n"]
)
def test_first_line_that_is_no_header_row_may_come_again(row: bytes, step: int) -> None:
    assert filtered(row, row + b"\0", row, step=step) == 3 * row


@pytest.mark.parametrize("step", [1, 3, len(HEADER), 1000])
def test_header_row_of_an_earlier_file_is_dropped_from_the_first_callback_on(step: int) -> None:
    left = filtered(HEADER + b"a\n\0", b"b\n\0", HEADER + b"c\n\0", step=step, header_row=HEADER)

    assert left == b"a\nb\nc\n"


def test_header_row_is_known_once_its_line_has_come() -> None:
    text_filter = TextFilter()

    known = []
    for data in (HEADER[:5], HEADER[5:-1], HEADER[-1:] + b"a"):
        text_filter.text_of(Chunk("op.csv", data, more=True))
        known.append(text_filter.header_row)

    assert known == [None, None, HEADER]


def test_endless_header_row_is_not_looked_for_again() -> None:
    line = HEADER[:-1] + b"x" * 5000

    assert filtered(line, line, step=1000) == line + line


def test_callbacks_whose_records_interleave_are_told_apart() -> None:
    text_filter = TextFilter()
    text_filter.text_of(Chunk("op.csv", HEADER))

    left = [
        bytes(text_filter.text_of(Chunk("op.csv", data, sequence=sequence, more=more)))
        for sequence, data, more in [
            (1, HEADER[:5], True),
            (2, HEADER[:9], True),
            (1, b"differs\n", False),
            (2, HEADER[9:] + b"row\n", False),
        ]
    ]

    assert left == [b"", b"", HEADER[:5] + b"differs\n", b"row\n"]


def test_any_row_of_words_may_be_the_header_row() -> None:
    assert filtered(b"op, value\na,1\n\0", b"op, value\nb,2\n\0", step=1000) == b"op, value\na,1\nb,2\n"
