"""Write the original files of a capture.

Joins the parts of each file and checks every part against its checksum. Leaves damaged files out and writes
the others. A file with a gap is written up to the gap. Names are cleaned, so that nothing is ever written
outside the directory and every name has a file of its own. Exits with 3 if a file is damaged, is not whole or
cannot be written under its name, or if the capture may have further files, which its journal cannot tell.

Examples:
  dumpstream extract run1 --out dumps                      every file
  dumpstream extract run1 '*MatMul*' --out dumps           those that match
  dumpstream extract run1 a.csv --out dumps --force        one, replacing an earlier extraction
  dumpstream extract run1 --out dumps --sparse             with what is behind gaps, and holes for the gaps
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator

from dumpstream.archive.destination import refuse_inside
from dumpstream.cli._arguments import (
    add_capture_argument,
    add_members_arguments,
    add_names_argument,
    local_path,
)
from dumpstream.cli._display import count_text, not_stored_text, say, size_text, summarise
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.cli.screen.progress import Progress
from dumpstream.reading.collection import Collection
from dumpstream.reading.extraction import Extracted, extract_files, find_extracted
from dumpstream.reading.outputs import Outputs
from dumpstream.reading.problem import Problem, problems_of_list
from dumpstream.reading.selection import Selection


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_capture_argument(parser)
    add_names_argument(parser)
    add_members_arguments(parser)
    add("--out", type=local_path, metavar="DIR", required=True, help="where the files go")
    add("--sparse", action="store_true", help="write what is behind a gap at its offset, and leave a hole")
    add("--force", action="store_true", help="replace files that are already there")


def run(args: Namespace) -> int:
    collection = Collection.open(args.capture, args.rank, args.host)
    refuse_inside(args.out, [collection.path])
    selection = Selection(args.names)
    selection.refuse_unmatched(collection)

    lacking: dict[Problem, None] = {}

    def found() -> Iterator[Extracted]:
        for member in collection.members():
            yield from find_extracted(member, selection)
            lacking.update(dict.fromkeys(problems_of_list(member)))

    files = written = size = incomplete = done = 0
    not_stored = _count_not_stored(collection, selection)
    with Outputs(args.out, replace=args.force) as outputs, Progress("extracting") as progress:
        outputs.refuse_existing(it.target for it in _counted(found(), progress))
        for it, extracted in extract_files(found(), outputs, sparse=args.sparse):
            files += 1
            if isinstance(extracted, Exception):
                say(f"{it.name}: {extracted}")
            else:
                size += extracted
                written += 1
            if not it.file.verdict.whole:
                incomplete += 1
                say(f"{it.name}: not whole ({it.file.verdict})")
            done += it.file.bytes
            progress.show(files, done)
    for problem in lacking:
        say(problem.text)
    good = not incomplete and not lacking and written == files
    more = f"; {not_stored_text(not_stored)}" if not_stored else ""
    summarise(f"extracted {written} of {count_text(files, 'file')}, {size_text(size)}{more}", good=good)
    return 0 if good else NOT_WHOLE


def _counted(files: Iterable[Extracted], progress: Progress) -> Iterator[Extracted]:
    """Yield *files*, and let *progress* expect them all."""
    size = 0
    for count, it in enumerate(files, 1):
        size += it.file.bytes
        progress.expect(count, size)
        yield it


def _count_not_stored(collection: Collection, selection: Selection) -> int:
    """Return how many of the selected files the capture was not to store."""
    return sum(
        file.not_stored is not None
        for member in collection.members()
        if member.capture is not None and member.capture.totals.not_stored
        for file in selection.files(member)
    )
