from __future__ import annotations

import struct
from collections import Counter
from itertools import groupby, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream._native import Chunk
from dumpstream.format.verdict import Verdict
from dumpstream.reassemble import ReassemblyOptions

from .conftest import Runner

fast = settings(max_examples=150, deadline=None)


def dump(payload: bytes) -> bytes:
    """Return a dump file with one tensor, so that its verdict depends on its length."""
    size = struct.pack("<BB", 0x80 | len(payload) & 0x7F, len(payload) >> 7)
    message = b"\x0a\x032.0\x1a\x05\x30" + size + b"\x48\x01"
    return struct.pack("<Q", len(message)) + message + payload


def cut(draw: st.DrawFn, data: bytes) -> list[tuple[int, bytes]]:
    """Cut *data* into pieces, some of them perhaps empty."""
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=6))
    return [(start, data[start:end]) for start, end in pairwise([0, *sorted(cuts), len(data)])]


def batched(draw: st.DrawFn, chunks: list[Chunk]) -> list[list[Chunk]]:
    return [chunks[start:end] for start, end in pairwise([0, *sorted(draw(_CUTS)), len(chunks)])]


def interleaved(draw: st.DrawFn, queues: list[list[Chunk]]) -> list[Chunk]:
    """Merge *queues*, each in its own order."""
    turns = draw(st.permutations([i for i, queue in enumerate(queues) for _ in queue]))
    sources = [iter(queue) for queue in queues]
    return [next(sources[turn]) for turn in turns]


_CUTS = st.lists(st.integers(0, 60), max_size=4)
_FILES = st.lists(st.binary(max_size=200).map(dump), min_size=1, max_size=4)


@st.composite
def append_streams(draw: st.DrawFn) -> tuple[list[bytes], list[list[Chunk]]]:
    files = draw(_FILES)
    queues = []
    for index, data in enumerate(files):
        pieces = cut(draw, data)
        queues.append(
            [Chunk(f"op.{index}", piece, is_last=i == len(pieces)) for i, (_, piece) in enumerate(pieces, 1)]
        )
    return files, batched(draw, interleaved(draw, queues))


@fast
@given(append_streams())
def test_any_split_in_append_mode_gives_the_files_back(
    stream: tuple[list[bytes], list[list[Chunk]]],
) -> None:
    files, batches = stream

    ended = Runner().run(batches)

    assert sorted((name, verdict, parts[0]) for name, verdict, parts, _ in ended) == [
        (f"op.{index}", Verdict.COMPLETE, data) for index, data in enumerate(files)
    ]


@st.composite
def offset_streams(draw: st.DrawFn) -> tuple[list[bytes], int, list[list[Chunk]]]:
    """Chunks of several files in any order, each callback in one or more records, some sent again."""
    files = draw(_FILES)
    queues: list[list[Chunk]] = []
    repeated = 0
    for index, data in enumerate(files):
        pieces = [piece for piece in cut(draw, data) if piece[1]]
        again = draw(st.lists(st.sampled_from(pieces[:-1]), max_size=3)) if pieces[1:] else []
        repeated += len(again)
        # A chunk that comes again after the end would begin a new file, so an empty chunk ends the file.
        for offset, piece in draw(st.permutations(pieces + again)):
            middle = draw(st.sampled_from([0, len(piece) // 2])) if (offset, piece) not in again else 0
            sequence = len(queues)
            records = [(offset, piece[:middle], True)] if middle else []
            records.append((offset + middle, piece[middle:], False))
            queues.append(
                [Chunk(f"op.{index}", d, offset=o, sequence=sequence, more=more) for o, d, more in records]
            )
    chunks = interleaved(draw, queues)
    chunks += [Chunk(f"op.{i}", b"", offset=len(data), is_last=True) for i, data in enumerate(files)]
    return files, repeated, batched(draw, chunks)


@fast
@given(offset_streams())
def test_any_order_of_real_offsets_with_repetitions_gives_the_files_back(
    stream: tuple[list[bytes], int, list[list[Chunk]]],
) -> None:
    files, repeated, batches = stream

    ended = Runner().run(batches)

    assert sorted((name, verdict, parts) for name, verdict, parts, _ in ended) == [
        (f"op.{index}", Verdict.COMPLETE, {0: data}) for index, data in enumerate(files)
    ]
    assert sum(file.duplicates for *_, file in ended if file is not None) == repeated


@st.composite
def last_chunk_anywhere(draw: st.DrawFn) -> tuple[bytes, list[list[Chunk]]]:
    data = draw(st.binary(max_size=200).map(dump))
    pieces = cut(draw, data)
    chunks = [
        Chunk("op", piece, offset=offset, is_last=offset + len(piece) == len(data))
        for offset, piece in pieces
        if piece
    ]
    return data, batched(draw, draw(st.permutations(chunks)))


@fast
@given(last_chunk_anywhere())
def test_last_chunk_may_come_at_any_time(stream: tuple[bytes, list[list[Chunk]]]) -> None:
    data, batches = stream

    [ended] = Runner().run(batches)

    assert (ended.verdict, ended.parts) == (Verdict.COMPLETE, {0: data})


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[bytes, list[list[Chunk]]]:
    """Real offsets in any order for the beginning of a file, append mode for the rest."""
    data = draw(st.binary(max_size=200).map(dump))
    middle = draw(st.integers(1, len(data)))
    placed = [Chunk("op", d, offset=o) for o, d in cut(draw, data[:middle]) if d]
    appended = [Chunk("op", d) for _, d in cut(draw, data[middle:])]
    appended.append(Chunk("op", b"", is_last=True))
    furthest = max(placed, key=lambda chunk: chunk.offset)
    others = draw(st.permutations([chunk for chunk in placed if chunk is not furthest]))
    return data, batched(draw, [furthest, *interleaved(draw, [list(others), appended])])


@fast
@given(mixtures())
def test_append_mode_among_real_offsets_goes_to_the_end(stream: tuple[bytes, list[list[Chunk]]]) -> None:
    data, batches = stream

    [ended] = Runner().run(batches)

    assert (ended.verdict, ended.parts) == (Verdict.COMPLETE, {0: data})


@st.composite
def concurrent_callbacks(draw: st.DrawFn) -> tuple[dict[int, bytes], list[list[Chunk]]]:
    """Callbacks of one name from several threads, each in several records."""
    texts = draw(st.lists(st.binary(min_size=8, max_size=40), min_size=1, max_size=5))
    queues = []
    for sequence, data in enumerate(texts):
        pieces = cut(draw, data)
        final = len(pieces) - 1
        queues.append([Chunk("op", d, sequence=sequence, more=i < final) for i, (_, d) in enumerate(pieces)])
    return dict(enumerate(texts)), batched(draw, interleaved(draw, queues))


@fast
@given(concurrent_callbacks())
def test_callbacks_in_several_records_are_appended_one_after_the_other(
    stream: tuple[dict[int, bytes], list[list[Chunk]]],
) -> None:
    texts, batches = stream
    by_arrival = dict.fromkeys(chunk.sequence for batch in batches for chunk in batch)

    [ended] = Runner().run(batches)

    assert ended.parts == {0: b"".join(texts[sequence] for sequence in by_arrival)}
    assert ended.file is not None
    assert ended.file.chunks == len(texts)


_HEADER = b"Input/Output,Index\n"
_ROWS = st.lists(
    st.sampled_from([b"Input,0\n", b"Output,1\n", b"Input/Out\n", b"\n", _HEADER[:-1] + b",x\n"])
)


@st.composite
def statistics(draw: st.DrawFn) -> tuple[bytes, list[list[Chunk]]]:
    expected = b""
    chunks = []
    for sequence in range(draw(st.integers(1, 5))):
        rows = b"".join(draw(_ROWS))
        repeat = sequence == 0 or draw(st.booleans())
        expected += _HEADER + rows if sequence == 0 else rows
        text = (_HEADER if repeat else b"") + rows + (b"\0" if draw(st.booleans()) else b"")
        pieces = [piece for piece in cut(draw, text) if piece[1]] or [(0, b"")]
        for i, (_, data) in enumerate(pieces, 1):
            final = i == len(pieces)
            chunks.append(Chunk("op.csv", data, is_last=final, sequence=sequence, more=not final))
    return expected, batched(draw, chunks)


@fast
@given(statistics())
def test_statistics_text_is_rid_of_nuls_and_repeated_headers(stream: tuple[bytes, list[list[Chunk]]]) -> None:
    expected, batches = stream

    [ended] = Runner().run(batches)

    assert (ended.verdict, ended.parts) == (Verdict.COMPLETE, {0: expected})


@st.composite
def scattered(draw: st.DrawFn) -> list[list[Chunk]]:
    pieces = draw(st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=12)), max_size=25))
    return batched(draw, [Chunk("op", data, offset=offset) for offset, data in pieces])


@fast
@given(scattered())
def test_of_bytes_that_come_twice_the_first_stay_and_the_rest_is_missing(batches: list[list[Chunk]]) -> None:
    model: dict[int, int] = {}
    for batch in batches:
        for chunk in batch:
            for position, value in enumerate(bytes(chunk), chunk.offset):
                model.setdefault(position, value)
    runs = [
        [position for position, _ in group]
        for _, group in groupby(
            ((position, position - rank) for rank, position in enumerate(sorted(model))), lambda item: item[1]
        )
    ]
    expected = {run[0]: bytes(model[position] for position in run) for run in runs}

    ended = Runner().run(batches)

    if not model:
        assert ended == []
        return
    [(_, verdict, parts, file)] = ended
    assert file is not None
    assert parts == {0: b""} | expected
    edges = [(offset, offset + len(data)) for offset, data in parts.items()]
    assert file.missing == [(end, start) for (_, end), (start, _) in pairwise(edges)]
    assert (verdict is Verdict.GAP) == bool(file.missing)


_CHUNKS = st.builds(
    Chunk,
    st.sampled_from(["a", "b", "c.csv"]),
    st.binary(max_size=20) | st.sampled_from([dump(b"payload"), dump(b"payload")[:9], b"x\n\0"]),
    offset=st.just(-1) | st.integers(0, 50),
    is_last=st.sampled_from([False, False, False, True]),
    sequence=st.integers(0, 3),
    more=st.sampled_from([False, False, True]),
)
_LOSSES = st.tuples(st.sampled_from(["a", "b", "c.csv"]), st.booleans())


@settings(max_examples=250, deadline=None)
@given(st.lists(st.lists(_CHUNKS, max_size=12) | _LOSSES, max_size=8), st.integers(0, 4))
def test_no_stream_breaks_it_and_every_byte_is_accounted_for(
    steps: list[list[Chunk] | tuple[str, bool]], max_digests: int
) -> None:
    options = ReassemblyOptions(max_digests=max_digests, max_header_bytes=12)
    runner = Runner(options)
    fed: Counter[str] = Counter()

    for now, step in enumerate(steps):
        if isinstance(step, tuple):
            name, ended = step
            runner.handle(runner.reassembler.lose(name, "cause", 1, ended=ended, now=float(now)))
        else:
            for chunk in step:
                fed[chunk.name] += len(chunk)
            runner.handle(runner.reassembler.feed(step, float(now)))
    runner.run([])

    accounted: Counter[str] = Counter()
    for name, _, parts, file in runner.ended:
        accounted[name] += sum(map(len, parts.values()))
        accounted[name] += file.dropped_bytes if file is not None else 0
    assert +accounted == +fed
