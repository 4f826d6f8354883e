"""Blocks: everything comes back, with and without libzstd, and nothing damaged does."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.codec.tensors import CODECS, ELEMENTS, encode, layout, tensors

from dumpstream._native import (
    BLOCK_HEADER,
    Decoder,
    Encoder,
    crc32,
    encoded_bound,
    has_libzstd,
    hide_libzstd,
    layout_of,
)
from dumpstream.codec import Codec, without_suffix
from dumpstream.codec.blocks import (
    MAGIC,
    BlockDecoder,
    BlockEncoder,
    DecodingError,
    decode_file,
    decode_view,
    decode_whole,
)
from dumpstream.codec.decoding import original_of_file, original_of_view
from dumpstream.simulation import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def without_libzstd() -> Iterator[None]:
    """Behave as on a machine that does not have it."""
    hide_libzstd(True)
    yield
    hide_libzstd(False)


def whole(data: bytes) -> bytes:
    return b"".join(map(bytes, decode_view(memoryview(data))))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("codec", CODECS)
def test_every_tensor_comes_back(codec: str, element: int) -> None:
    for data in tensors(element):
        blocks = encode(codec, data, element)

        assert whole(blocks) == data
        assert b"".join(map(bytes, decode_file(io.BytesIO(blocks)))) == data
        assert decode_whole(memoryview(blocks), len(data), BlockDecoder()) == data
        assert len(blocks) <= len(data) * 1.001 + 2 * BLOCK_HEADER


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("codec", CODECS)
def test_files_are_exchanged_with_machines_without_libzstd(codec: str, element: int) -> None:
    made = {data: encode(codec, data, element) for data in tensors(element)}
    hide_libzstd(True)
    try:
        assert not has_libzstd()
        assert all(whole(blocks) == data for data, blocks in made.items())
        made_without = {data: encode(codec, data, element) for data in made}
        assert all(whole(blocks) == data for data, blocks in made_without.items())
    finally:
        hide_libzstd(False)
    assert all(whole(blocks) == data for data, blocks in made_without.items())


@pytest.mark.usefixtures("without_libzstd")
def test_without_libzstd_text_is_compressed_all_the_same() -> None:
    text = b"layer_0,MatMulV2,float16\n" * 1000

    assert len(encode("auto", text + b"end", 0)) < len(text) / 10


@given(
    st.integers(0, 7),
    st.sampled_from(CODECS),
    st.binary(max_size=3000),
    st.integers(1, 40),
    st.integers(0, 20),
)
def test_any_bytes_at_any_position_come_back(
    element: int, codec: str, data: bytes, times: int, position: int
) -> None:
    data *= times
    out = memoryview(bytearray(encoded_bound(len(data))))

    length = BlockEncoder(Codec(codec), 1).encode(data, position, layout(element, len(data)), out)

    assert whole(bytes(out[:length])) == data


@given(st.data())
def test_damaged_blocks_are_refused_or_give_the_bytes(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from([*tensors(data.draw(st.sampled_from(ELEMENTS)))]))
    blocks = bytearray(
        encode(data.draw(st.sampled_from(CODECS)), original, data.draw(st.sampled_from(ELEMENTS)))
    )
    place = data.draw(st.integers(0, len(blocks) - 1))
    blocks[place] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        hide_libzstd(True)
    try:
        found = whole(bytes(blocks))
    except DecodingError:
        pass
    else:
        assert found == original
    finally:
        hide_libzstd(False)


def test_blocks_that_are_cut_off_are_refused() -> None:
    data = next(it for it in tensors(2) if len(it) > 9000)
    blocks = encode("float", data, 2)

    for length in (1, 19, 20, len(blocks) - 1):
        with pytest.raises(DecodingError, match="cut off"):
            whole(blocks[:length])
        with pytest.raises(DecodingError, match="cut off"):
            list(decode_file(io.BytesIO(blocks[:length])))
        with pytest.raises(DecodingError):
            decode_whole(memoryview(blocks)[:length], len(data), BlockDecoder())


@pytest.mark.parametrize("size", [0, 9, 11])
def test_a_file_has_as_many_bytes_as_it_should(size: int) -> None:
    with pytest.raises(DecodingError):
        decode_whole(memoryview(encode("none", b"0123456789", 0)), size, BlockDecoder())


@pytest.mark.parametrize("hidden", [False, True])
def test_a_block_cannot_claim_more_than_the_limit(*, hidden: bool) -> None:
    bomb = zstandard.compress(bytes(64 << 20))
    block = MAGIC + bytes([1, 0, 0, 0]) + (64 << 20).to_bytes(4, "little") + len(bomb).to_bytes(4, "little")
    short = MAGIC + bytes([1, 0, 0, 0]) + (1 << 20).to_bytes(4, "little") + len(bomb).to_bytes(4, "little")
    hide_libzstd(hidden)
    try:
        for header in (block, short):
            with pytest.raises(DecodingError):
                whole(header + bytes(4) + bomb)
    finally:
        hide_libzstd(False)


def test_nothing_is_written_behind_what_a_block_says_it_makes() -> None:
    block = MAGIC + bytes([4, 0, 0, 0]) + (8).to_bytes(4, "little") + (73).to_bytes(4, "little")
    memory = bytearray(100)

    taken, made, _, fault = Decoder().decode(
        block + crc32(b"A" * 8).to_bytes(4, "little") + b"A" * 73, memoryview(memory)[:8]
    )

    assert (taken, made, fault) == (0, 0, "a block is damaged")
    assert not any(memory)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_length_that_cannot_be_is_not_read(*, hidden: bool) -> None:
    header = MAGIC + bytes([1, 0, 0, 0]) + (1 << 20).to_bytes(4, "little") + b"\xff" * 4 + bytes(4)
    file = io.BytesIO(header + bytes(8 << 20))
    hide_libzstd(hidden)
    try:
        with pytest.raises(DecodingError, match="too long"):
            list(decode_file(file))
    finally:
        hide_libzstd(False)
    assert file.tell() < 1 << 20


def test_concatenated_files_are_one() -> None:
    assert whole(encode("auto", b"one", 0) + encode("none", b"", 0) + encode("float", b"two", 0)) == b"onetwo"


@pytest.mark.parametrize("codec", CODECS[:3])
def test_chunks_that_cut_tensors_anywhere_come_back(codec: str, expected_workload: Workload) -> None:
    file = max((it.data for it in expected_workload.expected_files("/dump")), key=len)
    runs, encoder, pieces = layout_of(file), Encoder(codec), []
    out = memoryview(bytearray(encoded_bound(len(file))))
    assert runs
    for step in (1001, 4099, 65_537):
        pieces = [
            bytes(out[: encoder.encode(file[start : start + step], start, runs, out)])
            for start in range(0, len(file), step)
        ]

        assert whole(b"".join(pieces)) == file


def test_the_header_of_a_file_tells_its_tensors(expected_workload: Workload) -> None:
    file = max((it.data for it in expected_workload.expected_files("/dump")), key=len)
    header = 8 + int.from_bytes(file[:8], "little")

    assert layout_of(file[: header - 1]) == b""
    assert layout_of(file[:header]) == layout_of(file)
    assert layout_of(b"no header") == b""


@pytest.fixture
def expected_workload() -> Workload:
    return Workload(models=1, ops=2, inputs=2, tensor_bytes="200000", dtypes="float32+bfloat16+int32+float16")


def test_each_codec_is_told_by_its_suffix() -> None:
    data = b"\x28\xb5\x2f\xfd looks like zstd, and is not"
    stored = {".raw": data, ".zst": zstandard.compress(data), ".dsz": encode("auto", data, 0)}

    for suffix, content in stored.items():
        assert b"".join(map(bytes, original_of_file(io.BytesIO(content), f"a{suffix}", len(data)))) == data
        assert without_suffix(f"a{suffix}") == "a"
    assert without_suffix("a.zip") == "a.zip"
    assert {codec.suffix for codec in Codec} == stored.keys()
    assert bytes(next(original_of_view(memoryview(stored[".zst"])))) == data


def test_an_encoder_wants_room_and_a_layout() -> None:
    encoder = Encoder("auto")
    with pytest.raises(ValueError, match="too small"):
        encoder.encode(b"abc", 0, b"", bytearray(3))
    with pytest.raises(ValueError, match="layout"):
        encoder.encode(b"abc", 0, b"abc", bytearray(encoded_bound(3)))
    with pytest.raises(ValueError, match="no codec best; there are"):
        Encoder("best")
