"""Runs the plan of a command: all of it on an engine, or a shard of it here."""

import shlex
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from dumpstream.cli._display import count_text, say, summarise
from dumpstream.cli._exit import FAILED
from dumpstream.cli.screen.progress import Progress
from dumpstream.engine.computing import Computed, Failure, compute_kept
from dumpstream.engine.daskengine import compute_on_dask, require_distributed
from dumpstream.engine.parts import Parts, find_parts
from dumpstream.engine.partsplace import PartsPlace, open_parts
from dumpstream.engine.plan import Plan
from dumpstream.statistics.parquet import require_pyarrow
from dumpstream.system.location import Prefix
from dumpstream.system.scratch import ScratchDirectory

#: A task may take minutes, and then nothing is done for as long.
_WINDOW_S = 600.0
#: Prints the answer of all parts but those of failed tasks, and returns the exit code.
Finish = Callable[[Parts, Sequence[Failure]], int]


def run_planned(args: Namespace, plan: Plan, finish: Finish) -> int:
    """Compute what *args* ask for of *plan*, and *finish* if that is all of it; return the exit code."""
    if args.shard is None:
        require_distributed()
    require_pyarrow()
    if args.shard is not None:
        return _run_shard(args, plan)
    scratch = ScratchDirectory("parts") if args.parts is None else None
    with scratch or nullcontext():
        location: Path | Prefix = args.parts if scratch is None else scratch.path
        place = open_parts(location)
        computed = _with_progress(
            plan, len(plan.tasks), partial(compute_on_dask, plan, place, args.engine.address)
        )
        absent = [failure.task for failure in computed.failures]
        # What an earlier run has left there, of captures that have changed since, does not count.
        return finish(find_parts([place], absent, plan, computed.names), computed.failures)


def _run_shard(args: Namespace, plan: Plan) -> int:
    place: PartsPlace = open_parts(args.parts)
    numbers = [*plan.of_shard(args.shard)]
    computed = _with_progress(plan, len(numbers), partial(compute_kept, plan, numbers, place))
    for failure in computed.failures:
        say(str(failure))
    kept = f", {computed.kept} of them there before" if computed.kept else ""
    number, count = args.shard
    location = place.location.url if isinstance(place.location, Prefix) else place.location
    summarise(
        f"shard {number} of {count}: {count_text(computed.done, 'part')} in {location}{kept}; "
        f"`dumpstream merge {shlex.quote(str(location))}` puts all shards together",
        good=not computed.failures,
    )
    return FAILED if computed.failures else 0


def _with_progress(plan: Plan, count: int, compute: Callable[[Callable[[int], None]], Computed]) -> Computed:
    doing = f"{plan.request['command']}: computing"
    with Progress(doing, "task", window_s=_WINDOW_S) as progress:
        progress.expect(count)
        return compute(progress.show)
