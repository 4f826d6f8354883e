"""The flags of commands whose work can be cut, and what they stand for."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dumpstream.cli._arguments import location
from dumpstream.cli._exit import WrongUsageError
from dumpstream.engine.plan import Shard
from dumpstream.system.location import Prefix

_DASK = "dask"
_SCHEMES = ("tcp://", "tls://", "ucx://", "ws://", "wss://")


class Engine(NamedTuple):
    """What computes the tasks of a plan."""

    address: str | None = None  #: of the scheduler; None if a cluster is started here

    @classmethod
    def parse(cls, text: str) -> "Engine":
        """Return what ``dask`` or ``dask=tcp://HOST:PORT`` stands for."""
        name, equals, address = text.partition("=")
        if name != _DASK or (equals and not address.startswith(_SCHEMES)):
            raise ArgumentTypeError(f"{text!r} is not an engine; write dask, or dask=tcp://HOST:PORT")
        return cls(address or None)


def add_engine_arguments(parser: ArgumentParser) -> None:
    """Declare ``engine``, ``shard`` and ``parts``."""
    add = parser.add_argument_group("several machines").add_argument
    add(
        "--engine",
        type=Engine.parse,
        metavar="ENGINE",
        help="compute on dask: dask starts a cluster here, dask=tcp://HOST:PORT uses one that is there",
    )
    add(
        "--shard",
        type=_shard,
        metavar="K/N",
        help="compute only the Kth of N shares, and leave them in --parts for `dumpstream merge`",
    )
    add("--parts", type=location, metavar="PLACE", help="keep the parts in this directory, or at this URL")


def is_planned(args: Namespace, *, without: Iterable[str] = ()) -> bool:
    """Whether *args* ask for an engine or a shard; they then have none of the flags *without*.

    Raises:
        WrongUsageError: the flags do not go together.
    """
    if args.engine is None and args.shard is None:
        if args.parts is not None:
            raise WrongUsageError("--parts is for --shard and --engine; give one of them, too")
        return False
    if args.engine is not None and args.shard is not None:
        raise WrongUsageError("--engine computes all shards by itself; leave --shard out")
    if args.shard is not None:
        if args.parts is None:
            raise WrongUsageError("--shard leaves parts; say where with --parts")
        if getattr(args, "out", None) is not None:
            raise WrongUsageError("a shard is not yet the answer; give --out to `dumpstream merge`")
    for name in without:
        if getattr(args, name):
            raise WrongUsageError(
                f"--{name.replace('_', '-')} does not go with --engine or --shard; leave it out"
            )
    return True


def refuse_relative(engine: Engine | None, locations: Iterable[Path | Prefix]) -> None:
    """Raise `WrongUsageError` if workers elsewhere would look for one of *locations* where they are."""
    for it in () if engine is None or engine.address is None else locations:
        if isinstance(it, Path) and not it.is_absolute():
            raise WrongUsageError(
                f"{it} is relative, and workers have directories of their own; write {it.absolute()}"
            )


def _shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except ValueError as exc:
        raise ArgumentTypeError(str(exc)) from None
