"""Write the original files of a capture.

The parts of a file are joined, and each is checked against its checksum on the way; a damaged file is left
out and the others are written. Names are cleaned, so that nothing is ever written outside the directory. Of
a file with a gap, what is before the gap is written. Exits with 3 if a file is damaged or is not whole.
"""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from dumpstream._errors import DumpstreamError, PartError
from dumpstream.cli._display import ProgressLine, count_text, printable, size_text
from dumpstream.cli._exit import NOT_WHOLE

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from dumpstream.stored import StoredFile

_EPILOG = """\
examples:
  dumpstream extract run1 --out dumps                      every file
  dumpstream extract run1 '*MatMul*' --out dumps           those that match
  dumpstream extract run1 a.csv --out dumps --force        one, replacing an earlier extraction
  dumpstream extract run1 --out dumps --sparse             with what is behind gaps, and holes for the gaps
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.epilog = _EPILOG
    parser.add_argument("directory", type=Path, metavar="DIR", help="the capture")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="a name as `ls` shows it, or a pattern with * ? [ ] (all files)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", required=True, help="where the files go")
    parser.add_argument("--sparse", action="store_true", help="place what is behind gaps, leaving holes")
    parser.add_argument("--force", action="store_true", help="replace files that are already there")


def run(args: Namespace) -> int:
    """Write the files."""
    from dumpstream.extraction import Extractor, choose_targets  # noqa: PLC0415 - --help need not wait for it
    from dumpstream.stored import StoredCapture  # noqa: PLC0415 - likewise

    capture = StoredCapture.open(args.directory)
    # Over all files, so that a file's path does not depend on which are asked for.
    targets = choose_targets(capture.files)
    files = _select(capture.files, args.names)
    written = size = 0
    line = ProgressLine()
    with Extractor(capture, args.out, sparse=args.sparse, replace=args.force) as extractor:
        extractor.refuse_existing(targets[file.name] for file in files)
        for file in files:
            try:
                size += extractor.extract(file, targets[file.name])
                written += 1
            except PartError as exc:
                line.clear()
                print(f"dumpstream: {printable(f'{file.name}: {exc}')}", file=sys.stderr)
            line.show(f"extracted {written} of {count_text(len(files), 'file')}, {size_text(size)}")
    line.clear()
    print(f"extracted {written} of {count_text(len(files), 'file')}, {size_text(size)}")
    whole = _tell_incomplete(files)
    return 0 if whole and written == len(files) else NOT_WHOLE


def _select(files: Sequence[StoredFile], patterns: Sequence[str]) -> Sequence[StoredFile]:
    if not patterns:
        return files
    matches = {
        pattern: [file for file in files if file.name == pattern or fnmatchcase(file.name, pattern)]
        for pattern in patterns
    }
    for pattern, found in matches.items():
        if not found:
            raise DumpstreamError(f"no file matches {pattern!r}; `dumpstream ls` shows the names")
    chosen = {file.name for found in matches.values() for file in found}
    return [file for file in files if file.name in chosen]


def _tell_incomplete(files: Sequence[StoredFile]) -> bool:
    """Print which of *files* are not whole, and return whether all are."""
    incomplete = [file for file in files if not file.verdict.whole]
    for file in incomplete:
        print(f"dumpstream: {printable(file.name)}: not whole ({file.verdict})", file=sys.stderr)
    return not incomplete
