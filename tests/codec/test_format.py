"""docs/format.md: its reader reads what the codecs write, and its test vectors are what they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from tests.codec.tensors import CODECS, ELEMENTS, encode, tensors

from dumpstream.codec.blocks import BlockDecoder, decode_whole

_PAGE = (Path(__file__).parent.parent.parent / "docs/format.md").read_text("utf-8")
_MOST_LINES = 60


def reader_code() -> str:
    (code,) = re.findall(r"^```python\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)
    return cast("str", code)


@pytest.fixture(scope="module")
def read_dsz() -> Callable[[bytes], bytes]:
    """Return the function of the document."""
    names: dict[str, object] = {}
    exec(reader_code(), names)
    return cast("Callable[[bytes], bytes]", names["read_dsz"])


def vectors() -> list[tuple[str, bytes, bytes]]:
    """Return the names, the original bytes and the files of the test vectors."""
    text = _PAGE.partition("<!-- vectors -->\n```text\n")[2].partition("\n```")[0]
    found = []
    for vector in text.split("\n\n"):
        title, *digits = vector.splitlines()
        name, _, expression = title.partition(": ")
        found.append((name, eval(expression), bytes.fromhex("".join(digits))))
    return found


def test_the_reader_is_short() -> None:
    assert len([line for line in reader_code().splitlines() if line.strip()]) <= _MOST_LINES
    assert set(re.findall(r"^import (.+)$", reader_code(), re.MULTILINE)) == {
        "struct, zlib",
        "numpy as np, zstandard",
    }


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("codec", CODECS)
def test_the_reader_reads_what_the_codecs_write(
    codec: str, element: int, read_dsz: Callable[[bytes], bytes]
) -> None:
    for data in tensors(element):
        assert read_dsz(encode(codec, data, element)) == data


def test_the_reader_refuses_a_damaged_file(read_dsz: Callable[[bytes], bytes]) -> None:
    with pytest.raises(AssertionError, match="damaged"):
        read_dsz(encode("none", b"some bytes", 0)[:-1] + b"?")


@pytest.mark.parametrize(("name", "original", "file"), vectors(), ids=[it[0] for it in vectors()])
def test_every_test_vector_is_decoded(
    name: str, original: bytes, file: bytes, read_dsz: Callable[[bytes], bytes]
) -> None:
    kind, element, flags = file[4:7]

    assert read_dsz(file) == original
    assert decode_whole(memoryview(file), len(original), BlockDecoder()) == original
    assert name.split(",", maxsplit=1)[0] == ("raw", "zstd", "packed", "planes", "repeated")[kind]
    assert ("without zeros" in name, "rotated" in name, "differences" in name) == tuple(
        bool(flags & flag) for flag in (1, 2, 4)
    )
    if kind in (0, 2, 4):  # what does not depend on the version of libzstd
        assert encode("float", original, element) == file


def test_the_vectors_have_every_kind() -> None:
    assert {file[4] for _, _, file in vectors()} == {0, 1, 2, 3, 4}
