"""How small and how fast the codecs make tensors, beside level 1 of zstd.

Each kind of data is encoded and decoded in pieces of 2 MiB, as the sink that stores files does, on one core
and into memory that is used again. All codecs take turns on the same bytes. Rates are medians of all rounds,
in bytes before compression by the CPU time of all threads, because some codecs work in threads of their own
even if they are told to use one. zipnn and blosc2 (bitshuffle, lz4) are beside them where they are installed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from importlib import import_module
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from zstandard import ZstdCompressor, ZstdDecompressor

from dumpstream._native import Decoder, Encoder, encoded_bound, layout_of
from figures import Arguments, Detail, Figure, Floor, parse_arguments, report
from tensordata import Data, make_data

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PIECE = 2 << 20
_FAST, _SMALL, _AUTO, _ZSTD = "float", "float-small", "auto", "zstd -1"
_OURS = (_FAST, _SMALL, _AUTO)
#: Of the data with a floor: the ratio and the speed, each by codec.
_FLOORS = {
    "bf16 weights": {_FAST: (1.40, 2.5), _SMALL: (1.47, 1.05)},
    "fp32 weights": {_FAST: (1.16, 2.5), _SMALL: (1.18, 1.8)},
    "fp16 after ReLU": {_FAST: (1.80, 4.0), _SMALL: (1.85, 2.5)},
}
_DECODED = {_FAST: 2500, _SMALL: 1500}
_LARGEST, _SLOWEST = 1.001, 0.95


class Coder(NamedTuple):
    """A codec: both functions take a piece and return another, and `encode` also its position."""

    name: str
    encode: Callable[[memoryview, int], Any]
    decode: Callable[[Any], Any]


class Result(NamedTuple):
    """What a codec makes of some data: its size, and the MB/s of every round."""

    stored: int
    encoded: list[float]
    decoded: list[float]


def _layout(data: Data) -> bytes:
    """Return the layout of a file with nothing but this tensor behind its header."""
    if not data.dtype:
        return b""
    size, number = len(data.bytes), bytearray()
    while size:
        number.append(size & 127 | (128 if size > 127 else 0))
        size >>= 7
    output = bytes([0x08, data.dtype, 0x30, *number])
    message = bytes([0x1A, len(output), *output])
    return layout_of(len(message).to_bytes(8, "little") + message)


def _header_bytes(layout: bytes) -> int:
    return int.from_bytes(layout[:8], "little")


def _our_coder(codec: str, layout: bytes) -> Coder:
    encoder, decoder = Encoder(codec), Decoder()
    out, back = memoryview(bytearray(encoded_bound(_PIECE))), bytearray(_PIECE)
    header = _header_bytes(layout)

    def encode(piece: memoryview, position: int) -> memoryview:
        return out[: encoder.encode(piece, header + position, layout, out)]

    def decode(piece: memoryview) -> memoryview:
        made, fault = decoder.decode(piece, back)[1::2]
        assert not fault, fault
        return memoryview(back)[:made]

    return Coder(codec, encode, decode)


def _zstd_coder() -> Coder:
    compressor, decompressor = ZstdCompressor(level=1, write_checksum=True), ZstdDecompressor()
    return Coder(_ZSTD, lambda piece, _: compressor.compress(piece), decompressor.decompress)


def _other_coders(data: Data) -> list[Coder]:
    """Return the codecs of others that are installed, for the types that they know."""
    coders = []
    widths = {27: 2, 2: 2, 5: 2, 1: 4, 12: 8, 7: 4, 8: 8, 11: 1, 0: 1}
    try:
        blosc2 = import_module("blosc2")
    except ImportError:
        pass
    else:
        blosc2.set_nthreads(1)
        options = {
            "codec": blosc2.Codec.LZ4,
            "clevel": 5,
            "typesize": widths[data.dtype],
            "filters": [blosc2.Filter.BITSHUFFLE],
            "nthreads": 1,
        }
        coders.append(
            Coder("blosc2", lambda piece, _: blosc2.compress2(piece, **options), blosc2.decompress2)
        )
    types = {27: "bfloat16", 2: "float16", 1: "float32"}
    if data.dtype in types:
        try:
            zipnn = import_module("zipnn").ZipNN(
                input_format="byte", bytearray_dtype=types[data.dtype], threads=1
            )
        except ImportError:
            pass
        else:
            coders.append(Coder("zipnn", lambda piece, _: zipnn.compress(bytearray(piece)), zipnn.decompress))
    return coders


def _measure(data: Data, coders: Sequence[Coder], rounds: int) -> dict[str, Result]:
    view = memoryview(data.bytes)
    results = {coder.name: Result(0, [], []) for coder in coders}
    for number in range(rounds):
        for coder in coders:
            stored, encoding, decoding = 0, 0.0, 0.0
            for position in range(0, len(view), _PIECE):
                piece = view[position : position + _PIECE]
                start = process_time()
                made = coder.encode(piece, position)
                middle = process_time()
                back = coder.decode(made)
                decoding += process_time() - middle
                encoding += middle - start
                stored += len(made)
                if number == 0 and memoryview(back).cast("B") != piece:
                    sys.exit(f"{coder.name} does not give {data.name} back")
            name = coder.name
            results[name] = results[name]._replace(stored=stored)
            results[name].encoded.append(len(view) / max(encoding, 1e-9) / 1e6)
            results[name].decoded.append(len(view) / max(decoding, 1e-9) / 1e6)
    return results


def _figures(data: Data, results: dict[str, Result]) -> list[Figure]:
    """Return the figures that have a floor, and those beside the codecs of others."""
    size, zstd, figures = len(data.bytes), results[_ZSTD], []
    for codec, (ratio, speed) in _FLOORS.get(data.name, {}).items():
        ours = results[codec]
        figures += [
            Figure(
                name=f"{codec}: {data.name}",
                unit="times smaller",
                ours=size / ours.stored,
                baseline=size / zstd.stored,
                beside=_ZSTD,
                floor=Floor("ours", ">=", ratio),
            ),
            _rate(f"{codec}: {data.name}", ours.encoded, zstd.encoded, _ZSTD, Floor("ratio", ">=", speed)),
        ]
        if data.name == "bf16 weights":
            floor = Floor("ours", ">=", _DECODED[codec])
            figures.append(_rate(f"{codec}: decoding {data.name}", ours.decoded, zstd.decoded, _ZSTD, floor))
        figures += _beside_others(codec, data.name, ours, results)
    return figures


def _beside_others(codec: str, name: str, ours: Result, results: dict[str, Result]) -> list[Figure]:
    figures = []
    for other in ("zipnn", "blosc2"):
        if (theirs := results.get(other)) is None:
            continue
        most = 1.03 if other == "zipnn" else 1.0
        if codec == _SMALL or other == "blosc2":
            figures.append(
                Figure(
                    name=f"{codec}: stored {name}",
                    unit="bytes",
                    ours=ours.stored,
                    baseline=theirs.stored,
                    beside=other,
                    floor=Floor("ratio", "<=", most),
                )
            )
        if codec == _FAST or other == "zipnn":
            floor = Floor("ratio", ">=", 1.0)
            figures.append(_rate(f"{codec}: {name}", ours.encoded, theirs.encoded, other, floor))
    return figures


def _rate(name: str, ours: Sequence[float], baseline: Sequence[float], beside: str, floor: Floor) -> Figure:
    return Figure(
        name=name, unit="MB/s", ours=median(ours), baseline=median(baseline), beside=beside, floor=floor
    )


def _worst(every: dict[str, dict[str, Result]], sizes: dict[str, int]) -> list[Figure]:
    """Return the figures of the data for which our codecs are worst."""
    figures = []
    for codec in _OURS:
        slowest = min(
            every, key=lambda name: median(every[name][codec].encoded) / median(every[name][_ZSTD].encoded)
        )
        largest = max(every, key=lambda name: every[name][codec].stored / sizes[name])
        figures += [
            _rate(
                f"{codec}: slowest, {slowest}",
                every[slowest][codec].encoded,
                every[slowest][_ZSTD].encoded,
                _ZSTD,
                Floor("ratio", ">=", _SLOWEST),
            ),
            Figure(
                name=f"{codec}: largest, {largest}",
                unit="bytes",
                ours=every[largest][codec].stored,
                baseline=sizes[largest],
                beside="original",
                floor=Floor("ratio", "<=", _LARGEST),
            ),
        ]
    return figures


def _table(every: dict[str, dict[str, Result]], sizes: dict[str, int]) -> Detail:
    rows: list[Sequence[str | float]] = []
    for name, results in every.items():
        for codec, result in results.items():
            ratio = f"{sizes[name] / result.stored:.3f}"
            rows.append((name, codec, ratio, median(result.encoded), median(result.decoded)))
    return Detail("times smaller, and MB/s", ("data", "codec", "smaller", "encoding", "decoding"), rows)


def _run(arguments: Arguments) -> None:
    rounds, size = (1, 2 << 20) if arguments.quick else (5, 24 << 20)
    every: dict[str, dict[str, Result]] = defaultdict(dict)
    sizes: dict[str, int] = {}
    figures: list[Figure] = []
    for data in make_data(size):
        layout = _layout(data)
        coders = [*(_our_coder(codec, layout) for codec in _OURS), _zstd_coder(), *_other_coders(data)]
        every[data.name], sizes[data.name] = _measure(data, coders, rounds), len(data.bytes)
        figures += _figures(data, every[data.name])
    report(arguments, figures + _worst(every, sizes), _table(every, sizes))


if __name__ == "__main__":
    _run(parse_arguments(__doc__))
