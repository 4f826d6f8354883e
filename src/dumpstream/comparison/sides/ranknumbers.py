"""Numbers for the processes of jobs whose launchers count the ranks of each host from 0.

Ranks that are unique over all hosts pair the processes of two runs, wherever each of them ran. If they are
not, processes are paired by host and rank, and counted through in that order, as a launcher would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dumpstream.reading.collection import HostCaptures, by_number

#: A process of a job.
Seat = tuple[str | None, int]


def number_processes(
    mine: Sequence[HostCaptures], golden: Sequence[HostCaptures]
) -> tuple[Mapping[Seat, int], Mapping[Seat, int]] | None:
    """Return numbers for the processes of *mine* and of *golden*; None if their ranks are unique.

    A side whose hosts have no names keeps its ranks.
    """
    sides = [_seats(mine), _seats(golden)]
    if all(map(_are_unique, sides)):
        return None
    if any(host is None for of_side in sides for host, _ in of_side):
        one, other = (_own(of_side) if _are_unique(of_side) else _count_through(of_side) for of_side in sides)
        return one, other
    both = _count_through(dict.fromkeys([*sides[0], *sides[1]]))
    return both, both


def _seats(hosts: Iterable[HostCaptures]) -> list[Seat]:
    return [(host.name, it.rank) for host in hosts for it in host.processes or () if it.rank is not None]


def _are_unique(seats: Iterable[Seat]) -> bool:
    hosts_of: dict[int, set[str | None]] = {}
    for host, rank in seats:
        hosts_of.setdefault(rank, set()).add(host)
    return all(len(hosts) == 1 for hosts in hosts_of.values())


def _count_through(seats: Iterable[Seat]) -> dict[Seat, int]:
    ordered = sorted(dict.fromkeys(seats), key=lambda seat: (by_number(seat[0] or ""), seat[1]))
    return {seat: number for number, seat in enumerate(ordered)}


def _own(seats: Iterable[Seat]) -> dict[Seat, int]:
    return {seat: seat[1] for seat in seats}
