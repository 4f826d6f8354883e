"""Upload to an object store what captures had to leave behind.

A capture that ends, or is killed, while its store is away keeps the files that it had finished in its spill
directory, and its journal there or in the user's state directory. May be repeated; what has been uploaded is
removed. Ctrl-C ends it within seconds, and the next upload goes on; twice ends it at once.

Examples:
  dumpstream upload /var/tmp/spill     everything that captures with --spill /var/tmp/spill left
  dumpstream upload                    what captures without --spill left

exit codes: 0 everything was uploaded, or there was nothing; 1 something was not; 130 interrupted by Ctrl-C
(143 by SIGTERM)
"""

from argparse import ArgumentParser
from pathlib import Path


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.add_argument(
        "directory",
        type=Path,
        nargs="?",
        metavar="DIR",
        help="a --spill directory, or one capture's in it (default: the user's state directory)",
    )
