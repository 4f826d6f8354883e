"""Sinks that ask for the verdict on each file, and sinks that do not know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dumpstream import Stored, Verdict
from dumpstream.sinks.memory import MemorySink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.capture.conftest import Rig

    from dumpstream import SinkError, SinkFile, WholeFile

pytestmark = pytest.mark.anyio

_LARGE = bytes(2 << 20)


class VerdictSink(MemorySink):
    """Keeps what it is told of each file."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, Verdict]] = []

    async def put(
        self, files: Sequence[WholeFile], *, verdicts: Sequence[Verdict] = ()
    ) -> Sequence[Stored | SinkError]:
        self.told += [(file.name, verdict) for file, verdict in zip(files, verdicts, strict=True)]
        return await super().put(files)

    async def open(self, name: str, *, offset: int = 0) -> Any:
        return VerdictFile(self, f"{name}@{offset}", await super().open(name, offset=offset))


class VerdictFile:
    def __init__(self, sink: VerdictSink, name: str, file: SinkFile) -> None:
        self._sink, self._name = sink, name
        self.write, self.abort, self._commit = file.write, file.abort, file.commit

    async def commit(self, *, verdict: Verdict | None = None) -> Stored:
        assert verdict is not None
        self._sink.told.append((self._name, verdict))
        return await self._commit()


class ForwardingSink(MemorySink):
    """A sink for 0.1 that passes on whatever it gets, which must not become more."""

    async def put(self, *files: Any, **more: Any) -> Any:
        return await super().put(*files, **more)


async def test_a_sink_that_asks_learns_the_verdict_on_every_file(rig: Rig) -> None:
    sink = VerdictSink()

    async with rig.pushed(sinks=[sink]):
        rig.push("one chunk", b"1", last=True)
        rig.push("two chunks", b"1")
        rig.push("two chunks", b"2", last=True)
        rig.push("large", _LARGE)
        rig.push("large", b"end", last=True)
        rig.push("gap", b"0", offset=0)
        rig.push("gap", b"9", offset=9, last=True)
        rig.push("never closed", b"1")

    assert sorted(sink.told) == [
        ("gap", Verdict.GAP),
        ("gap@9", Verdict.GAP),
        ("large@0", Verdict.UNPARSED),
        ("never closed", Verdict.NEVER_CLOSED),
        ("one chunk", Verdict.UNPARSED),
        ("two chunks", Verdict.UNPARSED),
    ]


@pytest.mark.parametrize("kind", [MemorySink, ForwardingSink])
async def test_a_sink_that_does_not_ask_is_called_as_before(rig: Rig, kind: type[MemorySink]) -> None:
    sink = kind()

    async with rig.pushed(sinks=[sink, VerdictSink()]) as capture:
        rig.push("small", b"1", last=True)
        rig.push("large", _LARGE)
        rig.push("large", b"end", last=True)

    assert sink.files == {"small": [b"1"], "large": [_LARGE + b"end"]}
    assert capture.report.whole
