from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import xxhash
import zstandard
from blockbuster import blockbuster_ctx

import dumpstream
from dumpstream.destination import Destination
from dumpstream.rows import JOURNAL, Outcome, StoredPart, begin_row, end_row, file_row, timestamp
from dumpstream.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_UVLOOP = pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is not installed")


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop", marks=_NO_UVLOOP),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


@pytest.fixture(autouse=True)
def _nothing_blocks_the_loop() -> Iterator[None]:
    """Make a blocking call on the event loop fail if dumpstream's code is what makes it."""
    # An editable install has the native part in a directory of its own, and only the first is looked at.
    scanned = ModuleType("dumpstream")
    scanned.__path__ = [str(Path(dumpstream.__file__).parent)]
    with blockbuster_ctx(scanned) as guard:
        # /proc and /sys answer from memory.
        guard.functions["io.TextIOWrapper.read"].can_block_in("dumpstream/memory.py", "available_memory")
        yield


class CaptureBuilder:
    """Leaves a capture as the pipeline does, step by step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._destination = Destination.open(path)
        self._run = self._destination.begin_run({"level": 1})
        self.write(begin_row(self._run, timestamp()))

    def write(self, line: str, end: str = "\n") -> None:
        """Append *line* to the journal."""
        with (self.path / JOURNAL).open("a", encoding="ascii") as file:
            file.write(line + end)

    def store(self, path: str, data: bytes, *, offset: int = 0) -> StoredPart:
        """Write *data* to *path* as the zstd sink does, and return its entry."""
        compressed = zstandard.ZstdCompressor().compress(data)
        target = self.path / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.write_bytes(compressed)
        digest = xxhash.xxh3_64_hexdigest(data)
        return StoredPart("zstd", path, offset, len(data), len(compressed), digest)

    def add(self, name: str, data: bytes, verdict: Verdict = Verdict.UNPARSED, **more: Any) -> StoredPart:
        """Store a file in one part and write its row."""
        part = self.store(f"files/{name.strip('/')}.zst", data)
        self.write(file_row(name, len(data), 1, verdict, [part], **more))
        return part

    def add_gapped(self, name: str, before: bytes, behind: bytes, offset: int) -> None:
        """Store a file that misses what is between *before* and *offset*."""
        parts = [self.store(f"files/{name}.zst", before)]
        parts.append(self.store(f"files/{name}.2.zst", behind, offset=offset))
        size, gap = len(before) + len(behind), (len(before), offset)
        self.write(file_row(name, size, 2, Verdict.GAP, parts, missing=[gap]))

    def finish(self, outcome: Outcome = Outcome.FINISHED) -> Path:
        """End the run and return the capture."""
        self.write(end_row(self._run, timestamp(), outcome, {}))
        self._destination.end_run(outcome)
        return self.interrupt()

    def interrupt(self) -> Path:
        """Leave it as a killed process does."""
        self._destination.close()
        return self.path


@pytest.fixture
def builder(tmp_path: Path) -> CaptureBuilder:
    return CaptureBuilder(tmp_path / "capture")
