"""Upload what captures could not bring to their object store.

A capture that ends, or is killed, while its store is away keeps finished files in its spill directory, and
its journal there or in the user's state directory. The command may be repeated; it removes what is uploaded.
Ctrl-C ends it within seconds, and the next upload goes on from there; a second Ctrl-C ends it at once.

Examples:
  dumpstream upload /var/tmp/spill     everything from captures with --spill /var/tmp/spill
  dumpstream upload                    everything from captures without --spill

exit codes: 0 nothing is left to upload, 1 something is, 130 interrupted by Ctrl-C (143 by SIGTERM)
"""

from argparse import ArgumentParser
from pathlib import Path


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "directory",
        type=Path,
        nargs="?",
        metavar="DIR",
        help="a --spill directory, or that of one capture in it (default: the user's state directory)",
    )
