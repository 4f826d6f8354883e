"""Put the parts of all shards together, and print what the command prints without --shard.

Takes the directories and URLs that --parts has named. All parts of one plan must be there, each once; what is
missing or does not belong is named.

Examples:
  dumpstream stats job --format csv --shard 1/2 --parts parts     on one machine,
  dumpstream stats job --format csv --shard 2/2 --parts parts     on another,
  dumpstream merge parts --out job.csv                            and on any of them
  dumpstream merge s3://bucket/parts                              parts in an object store
"""

from argparse import ArgumentParser, Namespace
from importlib import import_module

from dumpstream._errors import DumpstreamError
from dumpstream.cli._arguments import local_path, location
from dumpstream.engine.parts import find_parts
from dumpstream.engine.partsplace import open_parts

_COMMANDS = ("stats", "verify", "compare")
#: What values that no task has written can raise.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("parts", nargs="+", type=location, metavar="PARTS", help="a directory or URL that --parts has named")
    add("--out", type=local_path, metavar="FILE", help="write there instead of printing")
    add("--force", action="store_true", help="replace --out if it is there")


def run(args: Namespace) -> int:
    parts = find_parts([open_parts(it) for it in dict.fromkeys(args.parts)])
    request = parts.request
    command = request.get("command")
    if command not in _COMMANDS:
        raise DumpstreamError(f"these are parts of {command!r}, which this version cannot merge; upgrade it")
    module = import_module(f"dumpstream.cli.commands.{command}")
    try:
        code: int = module.merge(args, request, parts, ())
    except _DAMAGE as exc:
        raise DumpstreamError(f"the parts are damaged ({exc!r}); compute them again") from exc
    return code
