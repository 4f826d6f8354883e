"""The container of a pack, as other programs open it."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import zipfile
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
import zstandard
from tests.conftest import LIMIT_S

from dumpstream.sinks.packs.container import Pack

if TYPE_CHECKING:
    from pathlib import Path


FILES = {
    "a/b": b"first" * 100,
    "empty": b"",
    "名前/ünï cödé": os.urandom(3000),
    "a/b.2": b"not the second a/b",
}


def compressed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def packed(files: dict[str, bytes]) -> bytes:
    pack = Pack()
    for name, data in files.items():
        pack.add(name, compressed(data), size=len(data), crc=crc32(data))
    return pack.finish()


class TestContainer:
    def test_every_member_has_a_name_of_its_own(self) -> None:
        pack = Pack()
        for name in ("a", "a", "a.2", "b.2", "b", "b", "a", "a.2"):
            pack.add(name, compressed(b""), size=0, crc=0)

        with zipfile.ZipFile(io.BytesIO(pack.finish())) as container:
            names = container.namelist()

        assert names == ["a", "a.2", "a.2.2", "b.2", "b", "b.3", "a.3", "a.2.3"]

    def test_position_of_a_member_is_that_of_its_frame(self) -> None:
        pack = Pack()

        starts = {
            name: (pack.add(name, compressed(data), size=len(data), crc=crc32(data)), len(compressed(data)))
            for name, data in FILES.items()
        }

        whole = pack.finish()
        decompressor = zstandard.ZstdDecompressor()
        found = {
            name: decompressor.decompress(whole[start : start + length], max_output_size=1 << 20)
            for name, (start, length) in starts.items()
        }
        assert found == FILES

    def test_directory_is_what_zip_readers_expect(self) -> None:
        with zipfile.ZipFile(io.BytesIO(packed(FILES))) as container:
            infos = container.infolist()

        assert {info.filename: (info.file_size, info.CRC) for info in infos} == {
            name: (len(data), crc32(data)) for name, data in FILES.items()
        }
        assert {info.compress_type for info in infos} == {93}

    def test_headers_alone_lead_a_streaming_reader_through_all_members(self) -> None:
        whole, position, found = packed(FILES), 0, {}

        while whole[position : position + 4] == b"PK\3\4":
            (_, version, flags, method, _, _, crc, stored, _, name_length, extra) = struct.unpack_from(
                "<4s5H3L2H", whole, position
            )
            begin = position + 30 + name_length + extra
            name = whole[position + 30 : position + 30 + name_length].decode()
            found[name] = zstandard.ZstdDecompressor().decompress(
                whole[begin : begin + stored], max_output_size=1 << 20
            )
            assert (version, flags, method, crc) == (63, 0x800, 93, crc32(found[name]))
            position = begin + stored

        assert found == FILES

    def test_name_that_comes_again_is_another_member(self) -> None:
        pack = Pack()
        for data in (b"one", b"two"):
            pack.add("a", compressed(data), size=len(data), crc=crc32(data))

        with zipfile.ZipFile(io.BytesIO(pack.finish())) as container:
            assert container.namelist() == ["a", "a.2"]

    @pytest.mark.parametrize(
        ("tools", "options"),
        [(("7zz", "7z"), ("x", "-so")), (("bsdtar",), ("-xOf",))],
        ids=["7-Zip", "bsdtar"],
    )
    def test_common_tools_open_it(
        self, tmp_path: Path, tools: tuple[str, ...], options: tuple[str, ...]
    ) -> None:
        tool = next(filter(None, map(shutil.which, tools)), None)
        if tool is None:
            pytest.skip(f"{tools[0]} is not installed")
        path = tmp_path / "pack.zip"
        path.write_bytes(packed(FILES))

        done = subprocess.run([tool, *options, path], capture_output=True, check=True, timeout=LIMIT_S)

        assert done.stdout == b"".join(FILES.values())
