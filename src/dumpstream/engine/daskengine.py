"""The tasks of a plan on dask.distributed: a cluster of this machine, or one that is there already."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from io import BytesIO
from itertools import islice
from multiprocessing import resource_tracker
from secrets import token_hex
from typing import Any

from dumpstream._errors import DumpstreamError
from dumpstream.engine.computing import Computed, Failure, compute_apart
from dumpstream.engine.partsplace import PartsPlace
from dumpstream.engine.plan import Heading, Plan, Task
from dumpstream.system.batches import WORKERS

#: How often a task is tried again if a store does not answer; each attempt waits for 15 seconds.
_RETRIES = 8
#: Tasks that are submitted ahead: for each thread of the cluster, and for those that join later.
_AHEAD, _LEAST_AHEAD = 4, 64
#: A warning of multiprocessing, as Python's own variable names it.
_UNSAID = "ignore:resource_tracker:UserWarning"
_CONNECT_S = 10
_WORKERS_S = 30


def require_distributed() -> None:
    """Check that dask.distributed is there, without importing it.

    Raises:
        DumpstreamError: it is not; the message names the extra that is missing.
    """
    if find_spec("distributed") is None:
        raise DumpstreamError("--engine dask needs dask.distributed; pip install 'dumpstream[dask]'")


def compute_on_dask(
    plan: Plan, place: PartsPlace, address: str | None, tell: Callable[[int], None]
) -> Computed:
    """Compute all tasks on the cluster whose scheduler is at *address*, and keep their parts at *place*.

    Without an *address*, a cluster of this machine is started, and stopped afterwards. The scheduler repeats
    a task whose worker dies. If this call is interrupted, what it has started is cancelled.

    Raises:
        DumpstreamError: there is no such cluster, or its workers have another version of dumpstream.
        StoreError: a store does not answer.
    """
    require_distributed()
    computed, names = Computed(), set[str]()
    with _client(address) as client:
        _refuse_other_versions(client)
        for result in _results(client, plan):
            if isinstance(result, Failure):
                computed = computed._replace(failures=(*computed.failures, result))
            else:
                name, data = result
                place.write(name, BytesIO(data))
                names.add(name)
                computed = computed._replace(done=computed.done + 1)
            tell(computed.done + len(computed.failures))
    return computed._replace(failures=tuple(sorted(computed.failures)), names=frozenset(names))


def _results(client: Any, plan: Plan) -> Iterator[tuple[str, bytes] | Failure]:
    """Yield what comes out of each task, in any order; so many are submitted that no worker waits."""
    run = token_hex(4)  # two clients may have the same plan
    numbers: dict[Any, int] = {}  # of the tasks that are submitted, by their futures
    waiting = iter(range(len(plan.tasks)))
    completed = _distributed().as_completed(loop=client.loop)

    def submit() -> None:
        """Submit tasks until each thread of the cluster has some."""
        for number in islice(waiting, _ahead(client) - len(numbers)):
            task, heading = plan.tasks[number], plan.heading(number)
            key = f"dumpstream-{plan.key}-{run}-{number}"
            future = client.submit(_compute, task, heading, key=key, retries=_RETRIES)
            numbers[future] = number
            completed.add(future)

    try:
        submit()
        for future in completed:
            yield _result_of(future, plan.heading(numbers[future]))
            del numbers[future]
            future.release()  # its part need not stay in the memory of a worker
            if len(numbers) <= _LEAST_AHEAD:
                submit()
    finally:
        if numbers:
            with suppress(Exception):  # the cluster may be gone
                client.cancel([*numbers], force=True)


def _ahead(client: Any) -> int:
    """Return how many tasks may be submitted and not be done: more than `_LEAST_AHEAD`."""
    threads: int = sum(client.nthreads().values())
    return _LEAST_AHEAD + _AHEAD * max(threads, 1)


def _result_of(future: Any, heading: Heading) -> tuple[str, bytes] | Failure:
    try:
        found: tuple[str, bytes] | Failure = future.result()
    except _distributed().KilledWorker as exc:
        problem = f"the worker died whenever it was computed ({exc.last_worker.address} was the last one)"
        return Failure(heading.task, heading.label, f"{problem}; give workers more memory, or fewer threads")
    return found


def _compute(task: Task, heading: Heading) -> tuple[str, bytes] | Failure:
    """Do the work of one task, on a worker."""
    if (here := version("dumpstream")) != heading.version:  # one that came later
        raise DumpstreamError(_other_version("a worker", here, heading.version))
    return compute_apart(task, heading)


def _distributed() -> Any:
    """Return dask.distributed, which is slow to import and optional."""
    return import_module("distributed")


@contextmanager
def _client(address: str | None) -> Iterator[Any]:
    distributed = _distributed()
    for name in ("distributed", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what fails is told in a line
    if address is None:
        _start_tracker()
        with (
            distributed.LocalCluster(
                n_workers=WORKERS,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",  # the default port may be taken, and listens everywhere
                silence_logs=logging.CRITICAL,
            ) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            yield client
        return
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as exc:
        raise DumpstreamError(
            f"no dask scheduler answers at {address} ({exc}); start one with: dask scheduler"
        ) from exc
    with client:
        try:
            client.wait_for_workers(1, timeout=_WORKERS_S)
        except TimeoutError:
            raise DumpstreamError(
                f"the dask scheduler at {address} has no workers; start some with: dask worker {address}"
            ) from None
        yield client


def _start_tracker() -> None:
    """Start what removes the semaphores of workers if this process cannot, and have it say nothing of them.

    Ctrl-C ends this process and its workers at once. Of the semaphores that are left, multiprocessing warns.
    """
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join([*([before] if before else []), _UNSAID])
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _refuse_other_versions(client: Any) -> None:
    """Raise `DumpstreamError` if a worker has another version of dumpstream, or none."""
    own = version("dumpstream")
    for worker, found in client.run(_version, on_error="return").items():
        if isinstance(found, ImportError):
            raise DumpstreamError(f"the worker {worker} has no dumpstream; install {own} there")
        if isinstance(found, Exception):
            raise DumpstreamError(f"the worker {worker} cannot use dumpstream ({found}); install {own} there")
        if found != own:
            raise DumpstreamError(_other_version(f"the worker {worker}", found, own))


def _version() -> str:
    return version("dumpstream")


def _other_version(worker: str, found: str, own: str) -> str:
    return f"{worker} has dumpstream {found}, and this is {own}; install the same version everywhere"
