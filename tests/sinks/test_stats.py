from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys
from itertools import pairwise, zip_longest
from threading import Event
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.to_thread import run_sync

from dumpstream import SinkError, StoredCapture, open_capture
from dumpstream.archive.destination import Destination
from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.format.verdict import Verdict
from dumpstream.reading.verification import verify
from dumpstream.simulation import SimulatedRuntime, Workload, dump_config, simulated_library
from dumpstream.sinks import SinkSettings, Stored, WholeFile, load_sink
from dumpstream.sinks.stats import StatsSink
from dumpstream.sinks.tables.parts import ParquetParts, TreeTables
from dumpstream.statistics.engine import measure_whole
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.statistics.parquet import read_tensors
from dumpstream.statistics.table import TensorRow
from dumpstream.statistics.tensors import rows_of
from dumpstream.system.durable import Fsync
from dumpstream.system.publishing import is_temporary
from dumpstream.system.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import CaptureBuilder

    from dumpstream.system.tree import Draft

pytestmark = pytest.mark.anyio

LIBRARY = simulated_library()
WORKLOAD = Workload.parse("models=1,ops=9,nan=3,stats_text=4,null_address=5,tensor_bytes=64-5000")
FILES = [WholeFile(file.name, file.data) for file in WORKLOAD.expected_files("/dump")]


def expected_rows(files: Sequence[WholeFile] = FILES) -> list[str]:
    """Return what must be in the table, as text, since NaN equals nothing."""
    return sorted(
        repr(row) for file in files for row in whole_file(origin_of(file.name), memoryview(file.data))
    )


def read_parts(directory: Path) -> list[str]:
    found = []
    for path in directory.glob("*.parquet"):
        with path.open("rb") as file:
            found += [repr(row) for tensors in read_tensors(file) for row in rows_of(tensors)]
    return sorted(found)


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def sink_for(tmp_path: Path, location: str = "", **settings: Any) -> StatsSink:
    return StatsSink(location, SinkSettings(directory=tmp_path, **settings))


def parts_below(root: Path, **limits: Any) -> ParquetParts:
    tree = Tree(root, below=("stats",), suffix=".parquet", base=root, directories=2, durable=False)
    return ParquetParts(TreeTables(tree, sync=False), **limits)


@pytest.mark.parametrize("workers", [1, 4])
async def test_whole_files_give_their_rows(tmp_path: Path, workers: int) -> None:
    sink = sink_for(tmp_path, workers=workers)

    results = await sink.put(FILES)
    await sink.aclose()

    assert await run_sync(read_parts, tmp_path / "stats") == expected_rows()
    (path,) = {result.path for result in results if isinstance(result, Stored)}
    assert path is not None
    assert (tmp_path / path).is_file()


@pytest.mark.parametrize("location", ["", "?histogram=on"])
async def test_files_of_every_kind_may_come_together(tmp_path: Path, location: str) -> None:
    large = Workload(models=1, ops=1, inputs=1, tensor_bytes="300000")
    others = [
        *(WholeFile(file.name, file.data) for file in large.expected_files("/other")),
        WholeFile("kernel.o", b"\x7fELF and so on"),
        WholeFile("empty", b""),
        WholeFile("cut.off.1.2.3", bytes(FILES[0].data)[:-1]),
    ]
    files = [file for pair in zip_longest(FILES, others) for file in pair if file is not None]
    sink = sink_for(tmp_path, location)

    results = await sink.put(files)
    await sink.aclose()

    found = await run_sync(read_parts, tmp_path / "stats")
    if not location:
        assert found == expected_rows(files)
    assert len(found) == len(expected_rows(files))
    assert all(isinstance(result, Stored) and result.path for result in results)
    assert len(results) == len(files)


def test_a_batch_of_files_may_make_a_part_longer(tmp_path: Path) -> None:
    parts = parts_below(tmp_path, rows=3)
    columns, measured, _ = measure_whole(FILES)

    first = parts.add_columns(columns)
    (second,) = parts.add([("a", [TensorRow("a")])])
    parts.close()

    assert len(measured) > 3
    assert first.path != second.path
    assert len(read_parts(tmp_path / "stats")) == columns.rows + 1


@pytest.mark.parametrize("size", [1, 100, 4096])
async def test_files_in_pieces_give_the_same_rows(tmp_path: Path, size: int) -> None:
    sink = sink_for(tmp_path)

    for name, data in FILES:
        file = await sink.open(name)
        cuts = [*range(0, len(bytes(data)), size), len(bytes(data))]
        if size == 1:  # mid-header and mid-element; the rest in one
            cuts = [*range(200), len(bytes(data))]
        pieces = [memoryview(data)[start:stop] for start, stop in pairwise(cuts)]
        await file.write(pieces[: len(pieces) // 2])
        await file.write(pieces[len(pieces) // 2 :])
        await file.commit()
    await sink.aclose()

    assert await run_sync(read_parts, tmp_path / "stats") == expected_rows()


async def test_large_batches_are_shared_among_threads(tmp_path: Path) -> None:
    workload = Workload(models=1, ops=6, inputs=1, tensor_bytes="3000000")
    files = [WholeFile(file.name, file.data) for file in workload.expected_files("/dump")]
    sink = sink_for(tmp_path, workers=3)

    await sink.put(files)
    await sink.aclose()

    assert await run_sync(read_parts, tmp_path / "stats") == expected_rows(files)


async def test_an_aborted_file_leaves_nothing(tmp_path: Path) -> None:
    sink = sink_for(tmp_path)
    file = await sink.open(FILES[0].name)
    await file.write([FILES[0].data])

    await file.abort()
    await sink.aclose()

    assert not await run_sync(files_below, tmp_path)


async def test_a_file_is_of_no_use_after_its_end(tmp_path: Path) -> None:
    sink = sink_for(tmp_path)
    file = await sink.open(FILES[0].name)
    await file.commit()
    broken = await sink.open(FILES[0].name)
    with pytest.raises(TypeError):
        await broken.write([object()])  # type: ignore[list-item]

    for ended in (file, broken):
        with pytest.raises(anyio.ClosedResourceError):
            await ended.write([b""])
        with pytest.raises(anyio.ClosedResourceError):
            await ended.commit()
    await sink.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await sink.put(FILES)


async def test_what_is_behind_a_gap_has_no_rows(tmp_path: Path) -> None:
    sink = sink_for(tmp_path)
    file = await sink.open(FILES[0].name, offset=100)
    await file.write([b"123"])

    assert await file.commit() == Stored()
    await sink.aclose()
    assert not await run_sync(files_below, tmp_path)


async def test_a_file_that_is_no_dump_is_a_row_with_the_problem(tmp_path: Path) -> None:
    sink = sink_for(tmp_path)

    await sink.put([WholeFile("kernel.o", b"\x7fELF and so on")])
    await sink.aclose()

    (row,) = await run_sync(read_parts, tmp_path / "stats")
    assert "file='kernel.o'" in row
    assert "is not a dump file" in row


async def test_the_location_is_where_parts_go(tmp_path: Path) -> None:
    sink = sink_for(tmp_path / "capture", str(tmp_path / "elsewhere"))

    (result,) = await sink.put(FILES[:1])
    await sink.aclose()

    assert isinstance(result, Stored)
    assert result.path == str(next((tmp_path / "elsewhere").glob("*.parquet")))


async def test_a_histogram_is_kept_on_request(tmp_path: Path) -> None:
    sink = sink_for(tmp_path, "?histogram=on")

    await sink.put(FILES)
    await sink.aclose()

    text = " ".join(await run_sync(read_parts, tmp_path / "stats"))
    assert "histogram=(" in text


async def test_csv_is_a_file_like_canns_for_each_dump_file(tmp_path: Path) -> None:
    sink = sink_for(tmp_path, "?format=csv&select=Max,Negative+Inf")

    results = await sink.put(FILES)
    await sink.aclose()

    header = "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value,Negative Inf Count"
    for file, result in zip(FILES, results, strict=True):
        assert isinstance(result, Stored)
        name = "/".join(part for part in file.name.split("/") if part)
        assert result.path == f"stats/{name.removesuffix('.csv')}.csv"
        lines = (tmp_path / result.path).read_text().splitlines()
        assert lines[0] == header
        assert len(lines) == 4
        assert result.bytes == (tmp_path / result.path).stat().st_size


async def test_csv_of_a_name_that_comes_again_goes_beside(tmp_path: Path) -> None:
    sink = sink_for(tmp_path, "?format=csv")

    (first,) = await sink.put(FILES[:1])
    (second,) = await sink.put(FILES[:1])
    (nothing,) = await sink.put([WholeFile("no dump", b"")])
    await sink.aclose()

    assert isinstance(first, Stored)
    assert isinstance(second, Stored)
    assert first.path != second.path
    assert nothing == Stored()


@pytest.mark.parametrize(
    "location", ["?format=xml", "?formats=csv", "?histogram=yes", "?format=csv&select=Median"]
)
def test_a_location_that_cannot_be_understood_is_refused(tmp_path: Path, location: str) -> None:
    with pytest.raises(SinkError, match=r"write stats:DIR\?format=|dump_stats knows"):
        load_sink(f"stats:{location}", SinkSettings(directory=tmp_path))


def test_without_pyarrow_the_extra_and_the_other_format_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpstream.statistics.parquet.find_spec", lambda _: None)

    with pytest.raises(SinkError, match=r"dumpstream\[parquet\].*stats:\?format=csv"):
        sink_for(tmp_path)
    assert sink_for(tmp_path, "?format=csv")


def test_a_part_ends_with_its_rows_and_is_whole_when_it_appears(tmp_path: Path) -> None:
    parts = parts_below(tmp_path, rows=3)

    (first,) = parts.add([("a", [TensorRow("a"), TensorRow("a")])])
    before = [path.name for path in (tmp_path / "stats").iterdir()]
    (second,) = parts.add([("b", [TensorRow("b")])])
    appeared = read_parts(tmp_path / "stats")
    (third,) = parts.add([("c", [TensorRow("c")])])
    parts.close()

    assert [is_temporary(name) for name in before] == [True]
    assert first.path == second.path != third.path
    assert appeared == sorted(map(repr, [TensorRow("a"), TensorRow("a"), TensorRow("b")]))
    assert len(read_parts(tmp_path / "stats")) == 4


def test_a_part_ends_in_time_even_if_nothing_more_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published, publish = Event(), Tree.publish

    def publish_and_tell(tree: Tree, draft: Draft) -> str:
        path = publish(tree, draft)
        published.set()
        return path

    monkeypatch.setattr(Tree, "publish", publish_and_tell)
    parts = parts_below(tmp_path, seconds=0.01)

    (stored,) = parts.add([("a", [TensorRow("a")])])

    assert published.wait(10)
    assert stored.path is not None
    assert read_parts((tmp_path / stored.path).parent) == [repr(TensorRow("a"))]
    parts.close()
    assert len([*(tmp_path / "stats").iterdir()]) == 1


def test_files_without_rows_begin_no_part(tmp_path: Path) -> None:
    parts = parts_below(tmp_path)

    assert parts.add([("a", [])]) == [Stored()]
    parts.close()
    assert not [*tmp_path.rglob("*")]


async def test_a_full_disk_is_an_error_of_every_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Tree, "publish", refuse)
    sink = sink_for(tmp_path)
    await sink.put(FILES[:2])

    with pytest.raises(
        SinkError, match="cannot write the statistics: No space left on device; free some space"
    ):
        await sink.aclose()

    assert not await run_sync(files_below, tmp_path)


async def test_a_part_that_cannot_be_begun_fails_all_files_from_then_on(tmp_path: Path) -> None:
    (tmp_path / "stats").write_text("in the way")
    sink = sink_for(tmp_path)

    results = await sink.put(FILES[:2])
    file = await sink.open(FILES[0].name)
    await file.write([FILES[0].data])

    assert all(isinstance(result, SinkError) for result in results)
    with pytest.raises(SinkError, match="cannot write the statistics of"):
        await file.commit()
    with pytest.raises(SinkError):
        await sink.aclose()


@pytest.mark.parametrize("fsync", [*Fsync])
async def test_every_fsync_policy_works(tmp_path: Path, fsync: Fsync) -> None:
    sink = sink_for(tmp_path, fsync=fsync)

    await sink.put(FILES)
    await sink.aclose()
    await sink.aclose()

    assert await run_sync(read_parts, tmp_path / "stats") == expected_rows()


async def test_a_capture_of_statistics_only_stores_no_tensor_bytes(tmp_path: Path) -> None:
    (tmp_path / "npu").mkdir()
    (tmp_path / "acl.json").write_text(dump_config(tmp_path / "npu"))

    with SimulatedRuntime(WORKLOAD) as runtime:
        async with open_capture(
            tmp_path / "run",
            config=tmp_path / "acl.json",
            acl_library=LIBRARY,
            sinks=["stats:"],
            buffer_bytes=1 << 20,
        ) as capture:
            await run_sync(runtime.run)

    assert capture.report.whole
    assert not (tmp_path / "run" / "files").exists()
    files = [WholeFile(file.name, file.data) for file in WORKLOAD.expected_files(tmp_path / "npu")]
    assert await run_sync(read_parts, tmp_path / "run" / "stats") == expected_rows(files)
    verified = await run_sync(lambda: verify(StoredCapture.open(tmp_path / "run")))
    assert verified.whole
    assert verified.skipped_parts == len(files)


def test_force_deletes_the_statistics_of_the_capture_before(builder: CaptureBuilder) -> None:
    table = StoredPart("stats", "stats/part.parquet", 0, 4, 0, None)
    builder.write(FileRow("a", 4, 1, Verdict.UNPARSED, [table]).to_line())
    path = builder.finish()
    (path / "stats").mkdir()
    (path / "stats" / "part.parquet").write_bytes(b"")

    destination = Destination.open(path, force=True)
    destination.begin_run({})
    destination.close()

    assert not (path / "stats").exists()


_KILLED = """
import os, signal, sys
from pathlib import Path
from dumpstream.sinks.tables.parts import ParquetParts, TreeTables
from dumpstream.system.tree import Tree
from dumpstream.statistics.table import TensorRow

root = Path(sys.argv[1])
tree = Tree(root, below=("stats",), suffix=".parquet", base=root, directories=2, durable=False)
parts = ParquetParts(TreeTables(tree, sync=False), rows=10)
for number in range(25):
    parts.add([("file", [TensorRow(str(number))])])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_only_the_rows_of_the_part_being_written(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)

    assert done.returncode == -signal.SIGKILL
    assert len(read_parts(tmp_path / "stats")) == 20
    left = [path.name for path in (tmp_path / "stats").iterdir() if path.suffix != ".parquet"]
    assert [is_temporary(name) for name in left] == [True]


async def test_memory_does_not_grow_with_the_tensors(tmp_path: Path) -> None:
    (file,) = Workload(models=1, ops=1, inputs=0, tensor_bytes=str(64 << 20)).expected_files("/dump")
    data = memoryview(file.data)
    sink = sink_for(tmp_path)
    open_file = await sink.open(file.name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for start in range(0, len(data), 1 << 20):
        await open_file.write([data[start : start + (1 << 20)]])
    await open_file.abort()
    await sink.aclose()

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16_000
