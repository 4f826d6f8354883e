"""Chunks in, whole files out: `assemble`, and the chunks that it takes."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reassemble.conftest import NAME, TEXT, Runner, dump

from dumpstream import AssembledFile, Chunk, Loss, ReassemblyOptions, Verdict, assemble

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNKS = st.lists(
    st.builds(
        Chunk,
        st.sampled_from(["a", "b", TEXT]),
        st.binary(max_size=6),
        st.integers(min_value=-1, max_value=12),
        st.booleans(),
    ),
    max_size=20,
)


def names(files: Iterator[AssembledFile]) -> list[tuple[str, bytes, Verdict]]:
    return [(file.name, file.data, file.verdict) for file in files]


def test_chunks_in_files_out() -> None:
    chunks = [Chunk("a", b"1"), Chunk("b", b"x", is_last=True), Chunk("a", b"2", is_last=True)]

    assert names(assemble(chunks)) == [
        ("b", b"x", Verdict.UNPARSED),
        ("a", b"12", Verdict.UNPARSED),
    ]


def test_a_file_comes_as_soon_as_it_is_finished() -> None:
    def endless() -> Iterator[Chunk]:
        while True:
            yield Chunk("a", b"1", is_last=True)

    assert next(assemble(endless())).data == b"1"


def test_a_file_without_a_last_chunk_ends_with_the_chunks_and_says_so() -> None:
    whole = dump(10)

    files = names(assemble([Chunk("a", b"1"), Chunk(NAME, whole[:20]), Chunk(NAME, whole[20:])]))

    assert files == [("a", b"1", Verdict.NEVER_CLOSED), (NAME, whole, Verdict.COMPLETE)]


def test_bytes_behind_a_gap_are_parts_of_their_own() -> None:
    (file,) = assemble([Chunk("a", b"01", 0), Chunk("a", b"45", 4, is_last=True)])

    assert (file.data, file.verdict) == (b"01", Verdict.GAP)
    assert file.parts == ((0, b"01"), (4, b"45"))


def test_chunks_in_any_order_are_put_in_their_places() -> None:
    (file,) = assemble([Chunk("a", b"23", 2, is_last=True), Chunk("a", b"01", 0)])

    assert (file.data, file.verdict) == (b"0123", Verdict.UNPARSED)


def test_a_loss_among_the_chunks_marks_its_file() -> None:
    loss = Loss("a", "ring_full", 100, ended=True)

    (file,) = assemble([Chunk("a", b"1"), loss])

    assert (file.data, file.verdict) == (b"1", Verdict.LOST)


def test_the_chunks_of_no_file_are_no_files() -> None:
    assert list(assemble([])) == []


def test_too_many_open_files_end_early_and_say_so() -> None:
    chunks = [Chunk(str(number), b"1") for number in range(3)]

    verdicts = [file.verdict for file in assemble(chunks, ReassemblyOptions(max_open_files=1))]

    assert verdicts == [Verdict.NEVER_CLOSED] * 3


@pytest.mark.parametrize("item", [b"bytes", None, [Chunk("a", b"")]])
def test_what_is_not_a_chunk_is_refused(item: object) -> None:
    with pytest.raises(TypeError, match="takes chunks and losses one by one, not"):
        list(assemble([cast("Chunk", item)]))


@given(_CHUNKS)
def test_it_gives_what_the_event_interface_gives(chunks: list[Chunk]) -> None:
    expected = Runner().run([[chunk] for chunk in chunks])

    assert [(file.name, file.verdict, dict(file.parts)) for file in assemble(chunks)] == [
        (file.name, file.verdict, file.parts) for file in expected
    ]


def test_a_chunk_takes_its_arguments_by_position_or_name() -> None:
    chunk = Chunk("a", bytearray(b"data"), 7, True)

    assert (chunk.name, bytes(chunk), chunk.offset, chunk.is_last) == ("a", b"data", 7, True)
    assert (Chunk("a", b"").offset, Chunk("a", b"").is_last) == (-1, False)
    assert list(inspect.signature(Chunk).parameters)[:4] == ["name", "data", "offset", "is_last"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1, b""), TypeError, "the name of a chunk is str or bytes, not <class 'int'>"),
        (("a", "text"), TypeError, "the data of a chunk are bytes or another buffer, not <class 'str'>"),
        (("a", 3), TypeError, "the data of a chunk are bytes"),
        (("a", b"", -2), ValueError, "at least 0, or -1 to append, not -2"),
        (("a",), TypeError, "data"),
    ],
)
def test_a_chunk_that_cannot_be_is_refused(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Chunk(*arguments)
