"""Read every file of a capture again and compare it with the journal.

Decompresses everything; checks sizes, checksums and dump headers; looks for files that are missing, damaged
or not in the journal. Of what is in an object store, asks the store what is there, and reads it only if that
does not match the journal; with --deep reads it, too. Prints a line for each problem. Exits with 0 if
everything is whole and with 3 if not, which includes files that came incomplete, losses, and a capture that
was interrupted or is still running.

Examples:
  dumpstream verify run1
  dumpstream verify s3://bucket/run1             whether everything is there, with its size
  dumpstream verify s3://bucket/run1 --deep      whether every byte is what was captured
  dumpstream verify run1 --json | jq '.problems[] | .kind' | sort | uniq -c
"""

from argparse import ArgumentParser

from dumpstream.cli._arguments import add_capture_argument, add_rank_argument


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    add_capture_argument(parser)
    add_rank_argument(parser)
    parser.add_argument(
        "--deep",
        action="store_true",
        help="read back what is in an object store, too, instead of asking the store whether it is there",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
