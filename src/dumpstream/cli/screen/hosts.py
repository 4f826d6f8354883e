"""The hosts of a job, listed by their manifests alone: no journal is read, however many ranks there are."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from dumpstream.archive.manifest import Process
from dumpstream.cli._display import count_text, print_json_with_list, printable, size_text, summarise
from dumpstream.cli.screen.colour import style_of, verdict
from dumpstream.cli.screen.layout import Column
from dumpstream.cli.screen.table import Table
from dumpstream.reading.collection import Collection, HostCaptures

_HOSTS = (
    Column(name="host", text=printable, least=8, importance=6),
    Column(name="state", style=style_of, importance=5),
    Column(name="processes", numeric=True, importance=3),
    Column(name="ranks", least=7, importance=4),
    Column(name="files", text=printable, least=11, importance=2),
    Column(name="bytes", numeric=True, importance=1),
)


def print_hosts_json(collection: Collection) -> None:
    """Print the hosts of a job, and their processes, as one JSON object."""
    listed = {"state": collection.state(()), "hosts": []}
    print_json_with_list(listed, "hosts", map(_host, collection.hosts))


def print_hosts(collection: Collection) -> None:
    """Print a line for each host of a job, and what is wrong with them."""
    table = Table(_HOSTS)
    if collection.hosts:
        table.add({name: [*values] for name, values in _columns(collection.hosts).items()})
    sys.stdout.writelines(table.lines())
    for problem in _problems(collection.hosts):
        print(printable(problem))
    processes = collection.processes or ()
    total = _total(processes)
    state = collection.state(())
    summary = f"{count_text(len(collection.hosts), 'host')}, {count_text(len(processes), 'process')}: "
    summary += _files_text(total)
    if total.unknown:
        summary += f", and what is not counted yet of {count_text(total.unknown, 'process')}"
    summary += f"; the job is {verdict(state)}; name a host, a rank or a file to list files"
    summarise(summary, good=state == "finished" and not total.lost)


class _Total:
    """What the captures of some processes came to, as their collectors have said."""

    def __init__(self) -> None:
        self.files = self.bytes = self.lost = self.unknown = 0
        self.verdicts: Counter[str] = Counter()


def _total(processes: Iterable[Process]) -> _Total:
    total = _Total()
    for process in processes:
        if process.files is None:
            total.unknown += bool(process.directory)
            continue
        total.files += process.files
        total.bytes += process.bytes or 0
        total.lost += process.lost_chunks or 0
        total.verdicts.update(process.verdicts or {})
    return total


def _files_text(total: _Total) -> str:
    text = count_text(total.files, "file")
    if total.verdicts:
        text += f" ({', '.join(f'{count} {word}' for word, count in sorted(total.verdicts.items()))})"
    return f"{text}, {size_text(total.bytes)}" + (f"; {total.lost} chunks lost" if total.lost else "")


def _columns(hosts: Sequence[HostCaptures]) -> dict[str, Iterable[str]]:
    totals = [_total(host.processes or ()) for host in hosts]
    return {
        "host": [host.name or "" for host in hosts],
        "state": [host.state for host in hosts],
        "processes": [str(len(host.processes)) if host.processes is not None else "-" for host in hosts],
        "ranks": [_ranks_text(host.processes or ()) for host in hosts],
        "files": [
            "-" if host.processes is None or total.unknown else _verdicts_text(total)
            for host, total in zip(hosts, totals, strict=True)
        ],
        "bytes": [
            "-" if host.processes is None or total.unknown else size_text(total.bytes)
            for host, total in zip(hosts, totals, strict=True)
        ],
    }


def _verdicts_text(total: _Total) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(total.verdicts.items())) or "no files"


def _ranks_text(processes: Sequence[Process]) -> str:
    """Return ``0-7, 9``; processes without a rank are not told."""
    spans: list[list[int]] = []
    for rank in sorted({it.rank for it in processes if it.rank is not None}):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans) or "-"


def _problems(hosts: Iterable[HostCaptures]) -> Iterable[str]:
    for host in hosts:
        if host.problem is not None:
            yield f"{host.name}: {host.problem}"
        for process in host.processes or ():
            if process.problem is not None:
                yield f"{host.name}/{process.directory or f'process {process.pid}'}: {process.problem}"


def _host(host: HostCaptures) -> dict[str, Any]:
    processes = [asdict(process) for process in host.processes or ()]
    for process in processes:
        del process["ring"]  # only `recover` needs it
    return {"host": host.name, "state": host.state, "problem": host.problem, "processes": processes}
