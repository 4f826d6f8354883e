"""Write the original files of a capture.

Joins the parts of each file and checks every part against its checksum. Leaves damaged files out and writes
the others. A file with a gap is written up to the gap. Names are cleaned, so that nothing is ever written
outside the directory. Exits with 3 if a file is damaged or is not whole.

Examples:
  dumpstream extract run1 --out dumps                      every file
  dumpstream extract run1 '*MatMul*' --out dumps           those that match
  dumpstream extract run1 a.csv --out dumps --force        one, replacing an earlier extraction
  dumpstream extract run1 --out dumps --sparse             with what is behind gaps, and holes for the gaps
"""

from argparse import ArgumentParser
from pathlib import Path

from dumpstream.cli._arguments import add_capture_argument, add_rank_argument


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
