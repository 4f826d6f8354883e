"""Store what a collector that died had left in its rings.

Works on what collect or capture -- COMMAND wrote with --buffer-file: the rings in its files are read to
their ends, and every file gets its verdict.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dumpstream.cli._arguments import place

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_EPILOG = """\
examples:
  dumpstream recover run1

exit codes: 0 everything that was left is whole, 1 failed, 2 wrong usage, 3 done, but not everything is whole
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `run` reads."""
    parser.epilog = _EPILOG
    parser.add_argument("directory", type=place, metavar="DIR", help="what the collector wrote to")
    parser.add_argument(
        "--sink",
        action="append",
        metavar="KIND:LOCATION",
        help="where files go, as the collector had it; may be repeated (default: zstd:)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: Namespace) -> int:
    """Recover, print what came, and return the exit code."""
    import anyio  # noqa: PLC0415 - --help need not wait for it

    from dumpstream.cli._exit import NOT_WHOLE  # noqa: PLC0415
    from dumpstream.cli._report import process_text  # noqa: PLC0415
    from dumpstream.outside.recovery import recover  # noqa: PLC0415

    uvloop = {"use_uvloop": find_spec("uvloop") is not None}
    processes = anyio.run(lambda: recover(args.directory, sinks=args.sink), backend_options=uvloop)
    if args.json:
        print(json.dumps({"processes": [process.as_dict() for process in processes]}, indent=2))
    else:
        for process in processes:
            print(process_text(process))
        print("nothing was left to recover" if not processes else f"recovered into {args.directory}")
    return 0 if all(process.whole for process in processes) else NOT_WHOLE
