"""Write the original files of a capture.

Joins the parts of each file and checks every part against its checksum. Leaves damaged files out and writes
the others. A file with a gap is written up to the gap. Names are cleaned, so that nothing is ever written
outside the directory and every name has a file of its own. Exits with 3 if a file is damaged, is not whole or
cannot be written under its name.

Examples:
  dumpstream extract run1 --out dumps                      every file
  dumpstream extract run1 '*MatMul*' --out dumps           those that match
  dumpstream extract run1 a.csv --out dumps --force        one, replacing an earlier extraction
  dumpstream extract run1 --out dumps --sparse             with what is behind gaps, and holes for the gaps
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from dumpstream._errors import DumpstreamError, PartError
from dumpstream.archive.destination import refuse_inside
from dumpstream.cli._arguments import add_capture_argument, add_rank_argument
from dumpstream.cli._display import ProgressLine, count_text, say, size_text
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.extraction import extract
from dumpstream.reading.outputs import OutputNameError, Outputs
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile
from dumpstream.system.batches import run_batches
from dumpstream.system.targets import Target, Targets

_FileError = PartError | OutputNameError


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_capture_argument(parser)
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help="a name as `ls` shows it, or a pattern with * ? [ ] (default: all files)",
    )
    add_rank_argument(parser)
    add("--out", type=Path, metavar="DIR", required=True, help="where the files go")
    add("--sparse", action="store_true", help="write what is behind a gap at its offset, and leave a hole")
    add("--force", action="store_true", help="replace files that are already there")


class _Found(NamedTuple):
    """A file, where it is and where it goes."""

    name: str  #: as `ls` shows it
    file: StoredFile
    capture: StoredCapture
    below: Target  #: the directory of its capture, if it is one of several
    targets: Targets
    taken: int | None

    @property
    def target(self) -> Target:
        """Where it goes; made anew each time, because the paths of all files would take much memory."""
        return (*self.below, *self.targets.target(self.file.name, self.taken))


def run(args: Namespace) -> int:
    collection = Collection.open(args.capture, args.rank)
    refuse_inside(args.out, [collection.path])
    found = _select([it for member in collection.members() for it in _find(member)], args.names)
    written = size = 0
    with Outputs(args.out, replace=args.force) as outputs, ProgressLine() as line:
        outputs.refuse_existing(it.target for it in found)
        for it, extracted in zip(found, _extract(found, outputs, sparse=args.sparse), strict=True):
            if isinstance(extracted, _FileError):
                line.clear()
                say(f"{it.name}: {extracted}")
            else:
                size += extracted
                written += 1
            line.show(f"extracted {written} of {count_text(len(found), 'file')}, {size_text(size)}")
    print(f"extracted {written} of {count_text(len(found), 'file')}, {size_text(size)}")
    incomplete = [it for it in found if not it.file.verdict.whole]
    for it in incomplete:
        say(f"{it.name}: not whole ({it.file.verdict})")
    return NOT_WHOLE if incomplete or written < len(found) else 0


def _find(member: Member) -> Iterator[_Found]:
    if member.capture is None:
        return
    # Of all files, so that the path of a file does not depend on which are asked for.
    files = member.capture.files
    targets = Targets(lambda: (file.name for file in files))
    below = (member.prefix.rstrip("/"),) if member.prefix else ()
    for file in files:
        taken = targets.take(file.name)
        yield _Found(member.prefix + file.name, file, member.capture, below, targets, taken)


def _extract(found: Sequence[_Found], outputs: Outputs, *, sparse: bool) -> Iterator[int | _FileError]:
    """Yield how many bytes of each file were written, or why it was not."""

    def extract_batch(batch: Sequence[_Found]) -> list[int | _FileError]:
        results: list[int | _FileError] = []
        for it in batch:
            try:
                results.append(extract(it.capture, it.file, outputs, it.target, sparse=sparse))
            except (PartError, OutputNameError) as exc:
                results.append(exc)
        return results

    return run_batches(
        extract_batch, found, bytes_of=lambda it: it.file.bytes, is_remote=lambda it: it.capture.remote
    )


def _select(files: Sequence[_Found], patterns: Sequence[str]) -> Sequence[_Found]:
    if not patterns:
        return files
    matches = {
        pattern: [it.name for it in files if it.name == pattern or fnmatchcase(it.name, pattern)]
        for pattern in patterns
    }
    for pattern, names in matches.items():
        if not names:
            raise DumpstreamError(f"no file matches {pattern!r}; `dumpstream ls` shows the names")
    chosen = {name for names in matches.values() for name in names}
    return [it for it in files if it.name in chosen]
