"""Tally: every file that ends gets its line in the journal and is counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, cast

from typing_extensions import Buffer

from dumpstream._errors import FileRefusedError, SinkError
from dumpstream.archive.journal import Lines
from dumpstream.archive.rows import FILTERED, FileRow, StoredPart
from dumpstream.chunk import Loss
from dumpstream.custody import Custody, Stage
from dumpstream.format.verdict import Verdict
from dumpstream.sinks import Stored
from dumpstream.stages.account import TOO_MANY_OPEN, TOO_MANY_PIECES
from dumpstream.stages.assembly import File
from dumpstream.stages.events import Whole
from dumpstream.stages.feed import Ending, InHand
from dumpstream.stages.outlet import NOT_STORED
from dumpstream.stages.plan import PartWriter

#: The cause of losses when a sink could not store files.
SINK_FAILED = "sink_failed"
#: The cause of losses when the source failed, or the ring is damaged.
SOURCE_FAILED = "source_failed"
#: The cause of losses when the process ran out of memory.
NO_MEMORY = "no_memory"
#: The cause of losses when the sinks were too slow for what was in the ring at the end.
DRAIN_TIMEOUT = "drain_timeout"
_NOTHING_IN_HAND: Mapping[PartWriter, Buffer] = MappingProxyType({})


class Tally:
    """Writes into *journal* where files went in the sinks, which have *labels* there.

    A file that a sink has taken and not yet made safe gets its line, and is counted, when its bytes are safe.
    """

    def __init__(self, journal: Lines, labels: Sequence[str]) -> None:
        self._journal = journal
        self._labels = labels
        self._unsafe: set[_Unsafe] = set()
        self.verdicts: Counter[Verdict] = Counter()
        self.stored_bytes = 0
        self.not_stored = 0  #: files whose bytes no sink was to store
        #: By cause, the chunks and bytes that the capture gave up; what the ring refused is not among them.
        self.losses: dict[str, tuple[int, int]] = {}

    def record_wholes(  # noqa: C901 - every file passes here, and calls take time
        self,
        wholes: Iterable[Whole],
        results: Iterable[Sequence[Stored | SinkError]],
        cause: str,
        endings: list[Ending] | None = None,
    ) -> None:
        """Record files that came in one chunk, and add them to *endings*, if given.

        *results* has the answers of all sinks for each; *cause* is what files are lost to if a sink failed.
        """
        add, labels, verdicts, new = self._journal.add, self._labels, self.verdicts, tuple.__new__
        unsafe: defaultdict[tuple[Custody, ...], list[_Ended]] = defaultdict(list)
        for whole, of_sinks in zip(wholes, results, strict=True):
            chunk, verdict, step = whole
            size = len(chunk)
            parts = []
            custodies = []
            total = 0
            failure: SinkError | None = None
            not_stored = None
            for label, result in zip(labels, of_sinks, strict=True):
                if isinstance(result, SinkError):
                    failure = result
                elif result is NOT_STORED:
                    not_stored = FILTERED
                elif result.path is not None:
                    _, occupied, xxh3, start, etag, custody, _ = result
                    total += occupied
                    parts.append(StoredPart(label, result.path, 0, size, occupied, xxh3, start, etag))
                    if custody is not None:
                        custodies.append(custody)
            if failure is not None:
                self._record_failed(whole, failure, cause, parts, endings)
                continue
            # A named tuple's own constructor is a Python function and takes twice as long.
            row = new(FileRow, (chunk.name, size, 1, verdict, parts, None, 0, (), 0, not_stored, step))
            if endings is not None:
                endings.append(Ending(row, cast("Sequence[Stored]", of_sinks), [InHand(0, chunk)]))
            line = row.to_line()
            if custodies:
                unsafe[tuple(custodies)].append(_Ended(chunk.name, size, 1, verdict, total, line, not_stored))
            else:
                self.stored_bytes += total
                verdicts[verdict] += 1
                self.not_stored += not_stored is not None
                add(line)
        for shared, files in unsafe.items():
            self._await(_Unsafe(shared, files))

    def record_ended(
        self,
        ended: Iterable[tuple[File, Sequence[PartWriter]]],
        cause: str,
        endings: list[Ending] | None = None,
        in_hand: Mapping[PartWriter, Buffer] = _NOTHING_IN_HAND,
    ) -> None:
        """Record files that came in several chunks, and add them to *endings*, if given.

        *cause* is what they are lost to if a sink failed, *in_hand* what there is of the bytes of parts.
        """
        for file, writers in ended:
            self.count_own(file)
            parts = [part for writer in writers for part in self._parts_of(writer)]
            if any(writer.failed for writer in writers):
                refused = next((writer.cause for writer in writers if writer.cause), None)
                row = self.record_lost(
                    file.name,
                    file.chunks,
                    file.bytes,
                    refused or cause,
                    parts,
                    first_cause=file.cause,
                    step=file.step,
                )
                if endings is not None:
                    endings.append(Ending(row))
                continue
            results = [stored for writer in writers for stored in writer.stored.values()]
            not_stored = FILTERED if any(stored is NOT_STORED for stored in results) else None
            row = FileRow(
                file.name,
                file.bytes,
                file.chunks,
                file.verdict,
                parts,
                file.reason,
                file.lost_bytes,
                file.missing,
                file.duplicates,
                not_stored,
                file.step,
            )
            if endings is not None:
                bytes_of = [
                    InHand(writer.part.offset, in_hand.get(writer), writer.files) for writer in writers
                ]
                endings.append(Ending(row, results, bytes_of))
            custodies = tuple([stored.custody for stored in results if stored.custody is not None])
            occupied = sum([part.stored_bytes for part in parts])
            ended_file = _Ended(*row[:4], occupied, row.to_line(), not_stored)
            self._await(_Unsafe(custodies, [ended_file]))

    def record_lost(
        self,
        name: str,
        chunks: int,
        size: int,
        cause: str,
        parts: Sequence[StoredPart] = (),
        *,
        first_cause: str | None = None,
        step: int | None = None,
    ) -> FileRow:
        """Record a file that the capture gave up, with the *parts* that sinks have stored; return its row.

        *first_cause* is the cause of bytes that it had lost before.
        """
        self.verdicts[Verdict.LOST] += 1
        self._count(cause, chunks, size)
        self.stored_bytes += sum(part.stored_bytes for part in parts)
        kept = sum({part.offset: part.bytes for part in parts}.values())
        row = FileRow(name, kept, chunks, Verdict.LOST, parts, first_cause or cause, size, step=step)
        self._journal.add(row.to_line())
        return row

    def record_refused(self, loss: Loss) -> None:
        """Record a file that is known only by the bytes that the ring refused."""
        self.verdicts[Verdict.LOST] += 1
        row = FileRow(loss.name, 0, 0, Verdict.LOST, (), cause=loss.cause, lost_bytes=loss.bytes)
        self._journal.add(row.to_line())

    def count_own(self, file: File) -> None:
        """Count what *file*, which has ended, lost because too much of it waited, or to make room."""
        if file.refusing:
            self._count(TOO_MANY_PIECES, max(1, file.refused), file.refused_bytes)
        if file.reason == TOO_MANY_OPEN:
            self._count(TOO_MANY_OPEN, 1, 0)

    def give_up_unsafe(self, cause: str) -> None:
        """Record as lost to *cause* the files that no sink has made safe. All sinks are closed by then."""
        for files in list(self._unsafe):
            self._settle(files, cause)

    def _record_failed(
        self,
        whole: Whole,
        failure: SinkError,
        cause: str,
        parts: Sequence[StoredPart],
        endings: list[Ending] | None,
    ) -> None:
        """Record a file that came in one chunk and that a sink has not stored."""
        lost_to = failure.cause if isinstance(failure, FileRefusedError) else cause
        chunk, _, step = whole
        row = self.record_lost(chunk.name, 1, len(chunk), lost_to, parts, step=step)
        if endings is not None:
            endings.append(Ending(row))

    def _count(self, cause: str, chunks: int, size: int) -> None:
        before_chunks, before_bytes = self.losses.get(cause, (0, 0))
        self.losses[cause] = before_chunks + chunks, before_bytes + size

    def _parts_of(self, writer: PartWriter) -> list[StoredPart]:
        part = writer.part
        return [
            StoredPart(self._labels[index], stored.path, part.offset, part.size, *stored[1:5])
            for index, stored in sorted(writer.stored.items())
            if stored.path is not None
        ]

    def _await(self, files: _Unsafe) -> None:
        """Record *files* as soon as all of their bytes are safe or some are lost."""
        self._unsafe.add(files)
        if files.safe:
            self._settle(files)
            return
        for custody in files.custodies:
            custody.when(Stage.KEPT, lambda: self._settle(files) if files.safe else None)

    def _settle(self, files: _Unsafe, cause: str | None = None) -> None:
        if files not in self._unsafe:  # settled already
            return
        self._unsafe.remove(files)
        lost = next((custody for custody in files.custodies if custody.stage is Stage.LOST), None)
        if lost is not None or cause is not None:
            lost_to = (None if lost is None else lost.cause) or cause or SINK_FAILED
            for file in files.files:
                # It is not known which of the parts are there, so none is named.
                self.record_lost(file.name, file.chunks, file.size, lost_to)
            return
        for file in files.files:
            self.stored_bytes += file.stored_bytes
            self.verdicts[file.verdict] += 1
            self.not_stored += file.not_stored is not None
            self._journal.add(file.line, files.custodies)


class _Ended(NamedTuple):
    """A file that ended, and the line that it gets once its bytes are safe."""

    name: str
    size: int
    chunks: int
    verdict: Verdict
    stored_bytes: int
    line: str
    not_stored: str | None = None


@dataclass(slots=True, eq=False)
class _Unsafe:
    """Files that ended together, and the custodies that their lines wait for."""

    custodies: tuple[Custody, ...]
    files: Sequence[_Ended]

    @property
    def safe(self) -> bool:
        """Whether a kill would lose nothing more; also true if something is lost already."""
        return all(custody.stage is not Stage.TAKEN for custody in self.custodies)
