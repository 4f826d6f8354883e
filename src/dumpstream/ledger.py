"""Ledger: every file that ends gets its line in the journal, and is counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dumpstream._errors import SinkError
from dumpstream.rows import StoredPart, file_row
from dumpstream.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dumpstream.assembly import File
    from dumpstream.chunk import Chunk
    from dumpstream.events import Whole
    from dumpstream.journal import Journal
    from dumpstream.plan import Writer
    from dumpstream.sinks import Stored
    from dumpstream.source import Loss


class Ledger:
    """Writes into *journal* what became of the files in the sinks, which it calls by *labels*."""

    def __init__(self, journal: Journal, labels: Sequence[str]) -> None:
        self._journal = journal
        self._labels = labels
        self.verdicts: Counter[Verdict] = Counter()
        self.stored_bytes = 0
        self.lost_chunks = 0  #: of files that the capture gave up, not of those that the ring refused
        self.lost_bytes = 0

    def record_wholes(
        self, wholes: Iterable[Whole], results: Iterable[Sequence[Stored | SinkError]], cause: str
    ) -> None:
        """Record files that came in one chunk.

        *results* has for each what the sinks say; *cause* is why one failed, if one did.
        """
        add, labels, verdicts = self._journal.add, self._labels, self.verdicts
        for (chunk, verdict), of_sinks in zip(wholes, results, strict=True):
            size = len(chunk)
            parts = []
            failed = False
            for label, result in zip(labels, of_sinks, strict=True):
                if isinstance(result, SinkError):
                    failed = True
                elif result.path is not None:
                    parts.append(StoredPart(label, result.path, 0, size, result.bytes, result.xxh3))
                    self.stored_bytes += result.bytes
            if failed:
                self.record_lost(chunk.name, 1, size, cause, parts)
            else:
                verdicts[verdict] += 1
                add(file_row(chunk.name, size, 1, verdict, parts))

    def record_ended(self, ended: Iterable[tuple[File, Sequence[Writer]]], cause: str) -> None:
        """Record files that came in several chunks; *cause* is why a sink failed, if one did."""
        for file, writers in ended:
            parts = [part for writer in writers for part in self._parts_of(writer)]
            self.stored_bytes += sum(part.stored_bytes for part in parts)
            if any(writer.failed for writer in writers):
                self.record_lost(file.name, file.chunks, file.bytes, cause, parts)
                continue
            self.verdicts[file.verdict] += 1
            self._journal.add(
                file_row(
                    file.name,
                    file.bytes,
                    file.chunks,
                    file.verdict,
                    parts,
                    cause=file.cause,
                    lost_bytes=file.lost_bytes,
                    missing=file.missing,
                    duplicates=file.duplicates,
                )
            )

    def record_lost(
        self, name: str, chunks: int, size: int, cause: str, parts: Sequence[StoredPart] = ()
    ) -> None:
        """Record a file that the capture gave up, with what some sink may have of it."""
        self.verdicts[Verdict.LOST] += 1
        self.lost_chunks += chunks
        self.lost_bytes += size
        kept = sum({part.offset: part.bytes for part in parts}.values())
        self._journal.add(file_row(name, kept, chunks, Verdict.LOST, parts, cause=cause, lost_bytes=size))

    def record_refused(self, loss: Loss) -> None:
        """Record a file of which the ring refused bytes, when nothing else is known of it."""
        self.verdicts[Verdict.LOST] += 1
        self._journal.add(
            file_row(loss.name, 0, 0, Verdict.LOST, (), cause=loss.cause, lost_bytes=loss.bytes)
        )

    def _parts_of(self, writer: Writer) -> list[StoredPart]:
        part = writer.part
        return [
            StoredPart(self._labels[index], stored.path, part.offset, part.size, stored.bytes, stored.xxh3)
            for index, stored in sorted(writer.stored.items())
            if stored.path is not None
        ]


class Lost:
    """What a capture gives up, by the names of the files."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, int]] = {}

    def add(self, name: str, chunks: int, size: int) -> None:
        """Add *size* bytes of *name*, which came in *chunks*."""
        seen_chunks, seen_size = self._files.get(name, (0, 0))
        self._files[name] = seen_chunks + chunks, seen_size + size

    def add_chunks(self, chunks: Iterable[Chunk]) -> None:
        """Add what nobody has looked at yet."""
        for chunk in chunks:
            self.add(chunk.name, 0 if chunk.more else 1, len(chunk))

    def record(self, ledger: Ledger, cause: str) -> None:
        """Give every file its line."""
        for name, (chunks, size) in self._files.items():
            ledger.record_lost(name, chunks, size, cause)
