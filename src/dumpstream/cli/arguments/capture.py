"""Capture dump files into a directory.

Runs a command and captures, from outside, each of its processes that uses ACL. With --simulate, captures the
simulated runtime in this process instead. Stores every file whole and compressed, and says for each file
whether anything is missing. Signals go to the command. With --simulate, the first Ctrl-C stops the run and
keeps everything that came; the second aborts.

Examples:
  dumpstream capture --out run1 -- python train.py          a program, with the dump that it configures
  dumpstream capture --out run1 --config acl.json -- torchrun --nproc-per-node 8 train.py
  dumpstream capture --out run1 --simulate                  a small simulated training run
  dumpstream capture --out run1 --simulate steps=20,ops=50  a longer one
  dumpstream capture --out run1 --simulate --on-full drop   never stall the model, lose by name instead
  dumpstream capture --out run1 --simulate --sink null:     measure without writing
  dumpstream capture --out s3://bucket/run1 --pack --spill /var/tmp/spill -- python train.py
                                                            to an object store

exit codes: 0 everything is whole, 1 failed, 2 wrong usage, 3 finished but not everything is whole;
a command's own, if it is not 0
"""

from argparse import ArgumentParser
from pathlib import Path

from dumpstream.cli._arguments import place
from dumpstream.cli._options import add_capture_arguments
from dumpstream.cli._profile import add_profile_arguments


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--out", type=place, metavar="PLACE", required=True, help="the directory or URL for this capture")
    add(
        "--simulate",
        nargs="?",
        const="small",
        metavar="WORKLOAD",
        help="capture from the simulated runtime: a preset, a JSON file, or key=value,... (default: small)",
    )
    add("--config", type=Path, metavar="FILE", help="the dump configuration (acl.json) to apply")
    add("--acl-lib", metavar="PATH", help="the library with the ACL functions")
    add("words", nargs="*", metavar="COMMAND", help="behind --: the command to run and capture, from outside")
    add_capture_arguments(parser)
    add_profile_arguments(parser)
    add("--json", action="store_true", help="print the report as one JSON object")
