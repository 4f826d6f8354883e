"""What a recovery stored, as text or as one JSON object."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dumpstream.cli._display import print_json
from dumpstream.cli._exit import NOT_WHOLE
from dumpstream.cli._loop import run_async
from dumpstream.cli._report import process_text
from dumpstream.outside.recovery import recover

if TYPE_CHECKING:
    from argparse import Namespace


def run(args: Namespace) -> int:
    processes = run_async(partial(recover, args.directory, sinks=args.sink))
    if args.json:
        print_json({"processes": [process.as_dict() for process in processes]})
    else:
        for process in processes:
            print(process_text(process))
        print("nothing was left to recover" if not processes else f"recovered into {args.directory}")
    return 0 if all(process.whole for process in processes) else NOT_WHOLE
