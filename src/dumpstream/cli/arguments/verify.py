"""Read every file of a capture again and compare it with the journal.

Decompresses everything, checks sizes, checksums and dump headers, and looks for files that are missing,
damaged or not in the journal. Files in an object store are looked up in its listing, and read only if that
does not match the journal; --deep reads all of them. Prints a line for each problem. Exits with 0 if
everything is whole and with 3 if not, which includes files that came incomplete, losses, and a capture that
was interrupted or is still running.

Examples:
  dumpstream verify run1
  dumpstream verify s3://bucket/run1             whether every file is there, in its size
  dumpstream verify s3://bucket/run1 --deep      whether every byte is as it was captured
  dumpstream verify run1 --json | jq '.problems[] | .kind' | sort | uniq -c
"""

from argparse import ArgumentParser

from dumpstream.cli._arguments import add_capture_argument, add_rank_argument


def add_arguments(parser: ArgumentParser) -> None:
    add_capture_argument(parser)
    add_rank_argument(parser)
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also read files in an object store, instead of looking them up in its listing",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
